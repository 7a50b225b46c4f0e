// The flame view: bytes by stack at a moment, as an icicle. What it shows is in ./model; here are the elements around the
// picture, the pointer, the keys, and the words for readers who do not see it.

import { foldedText, speedscopeJson } from '../../flame/export'
import { type Cell, cellAt, childrenOf, type FlameLayout, isChain, layoutFlame, weightOf } from '../../flame/layout'
import type { FlameTree } from '../../flame/tree'
import { h } from '../../ui/dom'
import { download, fileName } from '../../ui/download'
import { formatShare } from '../../ui/format'
import { MomentBar } from '../moment'
import type { Line } from '../shared/describe'
import { onLongPress } from '../shared/long-press'
import { Tooltip } from '../shared/tooltip'
import { WithoutButton } from '../shared/without-button'
import type { View, ViewContext, ViewParts } from '../view'
import { CellLooks, readLook } from './cell-looks'
import { isOfTrace, readChoices, writePlace } from './choices'
import { renderCrumbs } from './crumbs'
import { moved, sameCell } from './cursor'
import { describeCell, describeTotal, explainEmpty, formatAmount, frameOf, MEASURE_NAMES } from './describe'
import { FlameLegend } from './legend'
import { type FlameModel, FlameModels, placeOfNode } from './model'
import { paint, ROW } from './painter'
import { queryBelow } from './query-below'
import { SinceField } from './since'
import { FlameTools } from './tools'

/** Categories, streams or sizes that a tooltip names. */
const MIX_TOLD = 3

/** Views made: two panes have one each, and ids are the page's. */
let instances = 0

export class FlameView implements View {
  readonly element: HTMLElement
  readonly tools: HTMLElement
  private readonly moment: MomentBar
  private readonly momentBox: HTMLElement
  private readonly since: SinceField
  private readonly note = h('p', { class: 'flame-words' })
  private readonly crumbs = h('nav', { class: 'flame-crumbs', 'aria-label': 'Focused frame', hidden: true })
  private readonly empty = h('p', { class: 'flame-empty', hidden: true })
  private readonly item = h('div', { class: 'offscreen', role: 'treeitem', id: `flame-item-${++instances}` })
  private readonly canvas = h('canvas', { class: 'flame-canvas', 'aria-hidden': 'true' })
  private readonly space = h('div', { class: 'flame-space' }, this.canvas)
  private readonly plot = h(
    'div',
    { class: 'flame-plot', role: 'tree', tabindex: 0, 'aria-activedescendant': this.item.id },
    this.space,
    this.item,
  )
  private readonly without: WithoutButton
  private readonly tooltip = new Tooltip()
  private readonly legend = new FlameLegend()
  private readonly controls: FlameTools
  private readonly models = new FlameModels()
  private readonly looks = new CellLooks()
  private context: ViewContext | null = null
  private model: FlameModel | null = null
  private hover = -1
  private cursor = 0
  private frameRequest = 0

  constructor(private readonly parts: ViewParts) {
    const { store } = parts
    this.moment = new MomentBar(store)
    this.without = new WithoutButton(store)
    this.momentBox = h('div', { class: 'flame-moment' }, this.moment.element)
    this.since = new SinceField(store)
    this.controls = new FlameTools(store, { folded: () => this.folded(), saveSpeedscope: () => this.saveSpeedscope() })
    this.tools = this.controls.element
    this.element = h(
      'section',
      { class: 'flame', 'aria-label': 'Bytes by stack' },
      h('div', { class: 'flame-head' }, this.momentBox, this.since.element),
      this.note,
      this.crumbs,
      this.empty,
      this.plot,
      this.legend.element,
      this.tooltip.element,
    )
    this.plot.addEventListener('scroll', () => this.requestPaint())
    this.plot.addEventListener('pointermove', (event) => event.pointerType !== 'touch' && this.pointAt(event))
    // What a long press shows stays when the finger leaves.
    this.plot.addEventListener('pointerleave', (event) => event.pointerType !== 'touch' && this.point(-1, 0, 0))
    this.plot.addEventListener('pointerdown', (event) => event.pointerType === 'touch' && this.point(-1, 0, 0))
    onLongPress(this.plot, (event) => this.pointAt(event))
    this.plot.addEventListener('click', (event) => this.click(event))
    this.plot.addEventListener('focus', () => this.requestPaint())
    this.plot.addEventListener('blur', () => this.requestPaint())
  }

  prepare(context: ViewContext): void {
    this.models.of(context, 1) // the tree is the same for every width
  }

  show(context: ViewContext): void {
    const before = this.model
    const choices = readChoices(context.state.options)
    this.context = context
    this.moment.render(context)
    this.controls.render(choices, context.info.time0 !== null, context.baseline !== null)
    this.since.render(context, choices)
    this.momentBox.hidden = isOfTrace(choices.measure)
    // Hidden it would be without a width.
    this.plot.hidden = false
    const model = this.models.of(context, Math.max(1, this.plot.clientWidth))
    this.model = model
    const nothing = !model || model.tree.rows === 0
    this.empty.hidden = !nothing
    this.plot.hidden = this.note.hidden = nothing
    this.crumbs.hidden = true
    if (nothing) {
      this.tooltip.hide()
      this.legend.element.hidden = true
      this.empty.textContent = explainEmpty(choices.measure, context)
      return
    }
    const goTo = (depth: number) => this.focusOn(model.focus!.stack, depth)
    renderCrumbs(this.crumbs, model.tree, model.focus, model.frame, goTo, this.without.element)
    const query = model.focus && queryBelow(model.tree, model.focus.stack, model.focus.node.depth)
    this.without.render(query, 'Without this stack', context.info, context.data, context.stacks)
    const empty = model.scale === 0 ? '. The focused frame holds nothing at this moment' : ''
    this.note.textContent = describeTotal(model.tree, model.all, choices.from, context) + empty
    if (before && before.layout !== model.layout) {
      this.cursor = sameCell(before.layout, this.cursor, model.layout)
      this.point(-1, 0, 0)
    }
    this.legend.render(model, context.dark)
    this.size(model.layout)
    this.tellCursor(false)
    this.paintNow()
  }

  settled(): Promise<void> {
    return Promise.resolve()
  }

  key(event: KeyboardEvent): boolean {
    if (event.key === 'Escape') {
      if (!this.model?.focus) return false
      this.focusOn(0, 0)
      return true
    }
    if (this.plot.contains(event.target as Node | null) && this.treeKey(event)) return true
    return !this.momentBox.hidden && this.moment.key(event)
  }

  /** A focused frame fills the width, whatever another pane shows. */
  extent(): readonly number[] | null {
    return this.model && !this.model.focus ? [weightOf(this.model.all)] : null
  }

  picture(): HTMLCanvasElement {
    return this.canvas
  }

  /** cells: what is drawn. nodes(): every node of the tree, whatever is folded, focused or too narrow. */
  debug(): unknown {
    const { model } = this
    if (!model) return null
    const { tree, choices, layout, all } = model
    const { measure, root, merge } = choices
    const plain = (cells: readonly Cell[]) =>
      cells.map((cell) => {
        const { kind, row, depth, from, value, loss, count, matched, frames, parent } = cell
        const frame = frameOf(tree, cell, model.frame)
        return {
          kind,
          row,
          depth,
          from,
          value,
          loss,
          count,
          matched,
          frames,
          parent,
          name: frame?.name ?? null,
          file: frame?.filename ?? null,
          line: frame?.line ?? null,
        }
      })
    return {
      measure,
      root,
      merge,
      all,
      width: this.plot.clientWidth,
      cursor: this.cursor,
      cells: plain(layout.cells),
      folded: this.folded(),
      speedscope: this.speedscope(),
      nodes: () => plain(layoutFlame(tree, tree.top, { chains: 'none', open: [], least: 0 }).cells),
    }
  }

  // Picture

  private size({ rows }: FlameLayout): void {
    const { plot, canvas, space } = this
    const ratio = window.devicePixelRatio || 1
    const width = Math.max(1, plot.clientWidth)
    const height = Math.max(1, plot.clientHeight)
    space.style.height = `${Math.max(height, (rows.length - 1) * ROW)}px`
    const [across, down] = [Math.round(width * ratio), Math.round(height * ratio)]
    if (canvas.width !== across || canvas.height !== down) {
      canvas.width = across
      canvas.height = down
    }
    canvas.style.width = `${width}px`
    canvas.style.height = `${height}px`
  }

  private requestPaint(): void {
    if (this.frameRequest === 0) this.frameRequest = requestAnimationFrame(() => this.paintNow())
  }

  private paintNow(): void {
    cancelAnimationFrame(this.frameRequest)
    this.frameRequest = 0
    const { model, context, canvas, plot } = this
    const ctx = canvas.getContext('2d')
    if (!model || !context || !ctx) return
    const ratio = window.devicePixelRatio || 1
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0)
    const selected = selectedRow(model.tree, context)
    paint(ctx, {
      layout: model.layout,
      scale: model.scale,
      width: plot.clientWidth,
      height: plot.clientHeight,
      scrollTop: plot.scrollTop,
      look: readLook(plot),
      lookOf: this.looks.of(model, context),
      hover: this.hover,
      cursor: plot.matches(':focus-visible') ? this.cursor : -1,
      isSelected: ({ low, high }) => selected >= low && selected < high,
    })
  }

  // Pointer

  private cellUnder({ clientX, clientY }: MouseEvent): number {
    if (!this.model || this.model.scale === 0) return -1
    const box = this.plot.getBoundingClientRect()
    const row = Math.floor((clientY - box.top + this.plot.scrollTop) / ROW)
    const { layout, scale } = this.model
    return cellAt(layout, row, layout.cells[0].from + (clientX - box.left) / scale)
  }

  private pointAt(event: PointerEvent): void {
    const box = this.element.getBoundingClientRect()
    this.point(this.cellUnder(event), event.clientX - box.left, event.clientY - box.top)
  }

  private point(index: number, x: number, y: number): void {
    if (index !== this.hover) {
      this.hover = index
      this.requestPaint()
    }
    const { model } = this
    const cell = model?.layout.cells[index]
    if (model && cell) this.tooltip.show(this.linesOf(model, cell), x, y, this.looks.swatch(model, this.context!, cell))
    else this.tooltip.hide()
    this.plot.classList.toggle('over-cell', cell !== undefined)
  }

  private click(event: MouseEvent): void {
    const index = this.cellUnder(event)
    if (index < 0) return
    this.cursor = index
    this.activate(index)
  }

  /** A frame is focused, the top is left, a chain is opened; cells that are no frame focus the one above them. */
  private activate(index: number): void {
    const { model } = this
    const cell = model?.layout.cells[index]
    if (!model || !cell) return
    const { tree } = model
    if (index === 0) this.focusOn(0, 0)
    else if (cell.kind === 'frame') this.focusOn(tree.stack(cell.low), cell.depth)
    else if (isChain(cell.kind)) {
      const opened = writePlace(placeOfNode(tree, tree.stack(cell.low), cell.depth))
      const open = [...model.choices.open.map(writePlace), opened]
      this.parts.store.setOption('flame.open', open.join('~'))
    } else if (cell.parent > 0) this.activate(cell.parent)
    else this.tellCursor(true)
  }

  /** depth 0: the whole tree. */
  private focusOn(stack: number, depth: number): void {
    const { tree } = this.model ?? {}
    if (!tree) return
    const place = depth > 0 ? writePlace(placeOfNode(tree, stack, depth)) : null
    this.plot.scrollTop = 0
    this.cursor = 0
    this.parts.store.setOption('flame.focus', place)
    this.cursor = 0
    this.tellCursor(true)
    this.requestPaint()
  }

  // Keys and words

  private treeKey({ key }: KeyboardEvent): boolean {
    const { model } = this
    if (!model) return false
    if (key === 'Enter' || key === ' ') {
      this.activate(this.cursor)
      return true
    }
    const next = moved(model.layout, this.cursor, key)
    if (next === null) return false
    this.cursor = next
    this.scrollTo(model.layout.cells[next].row)
    this.tellCursor(true)
    this.requestPaint()
    return true
  }

  private scrollTo(row: number): void {
    const { plot } = this
    const top = row * ROW
    if (top < plot.scrollTop) plot.scrollTop = top
    else if (top + ROW > plot.scrollTop + plot.clientHeight) plot.scrollTop = top + ROW - plot.clientHeight
  }

  private tellCursor(aloud: boolean): void {
    const { model, item, plot } = this
    const cell = model?.layout.cells[this.cursor]
    if (!model || !cell) return
    const { layout, choices } = model
    const [first, end] = cell.parent < 0 ? [0, 1] : childrenOf(layout, cell.parent)
    item.setAttribute('aria-level', String(cell.row + 1))
    item.setAttribute('aria-posinset', String(this.cursor - first + 1))
    item.setAttribute('aria-setsize', String(end - first))
    item.setAttribute('aria-selected', 'true')
    if (isChain(cell.kind)) item.setAttribute('aria-expanded', 'false')
    else item.removeAttribute('aria-expanded')
    item.textContent = this.linesOf(model, cell)
      .map(({ text }) => text)
      .join(', ')
    plot.setAttribute(
      'aria-label',
      `${MEASURE_NAMES[choices.measure]} by stack, ${choices.root === 'root' ? 'outermost' : 'innermost'} frames first. ${this.note.textContent}`,
    )
    if (aloud) this.parts.announce(item.textContent)
  }

  private linesOf({ tree, layout, all, frame, mixes }: FlameModel, cell: Cell): Line[] {
    const { cells } = layout
    const above = cells[cell.parent] ?? null
    const lines = describeCell(
      tree,
      cell,
      { cell: above, focus: cells[0], all },
      frameOf(tree, cell, frame),
      above && frameOf(tree, above, frame),
    )
    const nameOf = this.context!.colouring.nameOf
    for (const { key, weight } of (mixes?.of(cell.low, cell.high) ?? []).slice(0, MIX_TOLD)) {
      lines.push({
        kind: 'soft',
        text: `${nameOf(key)}: ${formatAmount(weight, tree.weights.measure)}, ${formatShare(weight, cell.value)}`,
      })
    }
    return lines
  }

  // Other tools

  private folded(): string {
    const { model } = this
    return model ? foldedText(model.tree, model.layout.cells[0], model.names) : ''
  }

  private speedscope(): string {
    const { model, context } = this
    if (!model || !context) return ''
    const { measure } = model.choices
    const moment = isOfTrace(measure) ? '' : ` at event ${context.position - 1}`
    return speedscopeJson(model.tree, model.layout.cells[0], model.names, `${MEASURE_NAMES[measure]}${moment}`)
  }

  private saveSpeedscope(): void {
    const { model, context } = this
    if (!model || !context) return
    const name = fileName(document.title, context.info.kind, String(context.info.device), model.choices.measure)
    this.parts.saved(download(`${name}.speedscope.json`, 'application/json', [this.speedscope()]))
  }
}

/** The row of the selected allocation's stack in the tree; -1 without one, or when it weighs nothing here. */
function selectedRow(tree: FlameTree, { state, data }: ViewContext): number {
  if (state.select === null || state.select >= data.N) return -1
  const stack = data.stack[state.select]
  const row = tree.paths.rowOf[stack]
  if (!(row >= 0)) return -1
  const { low, high } = tree.nodeOf(stack, tree.paths.length(row))!
  for (let at = low; at < high; at++) if (tree.stack(at) === stack) return at
  return -1
}
