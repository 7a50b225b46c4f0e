// The flame view: bytes by stack at a moment, as an icicle. What it shows is in ./model, the picture in ./flame-plot; here
// are the elements around it, and the effects of choosing a cell.

import { atEvent } from '../../layout/format'
import type { Frame } from '../../data/model'
import { foldedText, speedscopeJson } from '../../flame/export'
import { type Cell, isChain, layoutFlame, weightOf } from '../../flame/layout'
import { quoted } from '../../search/grammar'
import { fill, h } from '../../ui/dom'
import { download, fileName } from '../../ui/download'
import { MomentBar } from '../moment'
import { openMenu, termItems } from '../shared/context-menu'
import { WithoutButton } from '../shared/controls'
import type { View, ViewContext, ViewParts } from '../view'
import { labelOf } from './cell-looks'
import { isOfTrace, readChoices, writePlace } from './choices'
import { renderCrumbs } from './crumbs'
import { describeTotal, explainEmpty, frameOf, MEASURE_NAMES } from './describe'
import { FlamePlot } from './flame-plot'
import { FlameLegend } from './legend'
import { type FlameModel, FlameModels, placeOfNode } from './model'
import { queryBelow } from './query-below'
import { SinceField } from './since'
import { FlameTools } from './tools'

export class FlameView implements View {
  readonly element: HTMLElement
  readonly tools: HTMLElement
  private readonly moment: MomentBar
  private readonly momentBox: HTMLElement
  private readonly since: SinceField
  private readonly note = h('p.flame-words')
  private readonly crumbs = h('nav.flame-crumbs', { 'aria-label': 'Focused frame', hidden: true })
  private readonly empty = h('p.flame-empty', { hidden: true })
  private readonly plot: FlamePlot
  private readonly without: WithoutButton
  private readonly legend = new FlameLegend()
  private readonly controls: FlameTools
  private readonly models = new FlameModels()
  /** The upper half of a function's picture: who calls it. */
  private readonly callers: FlamePlot
  private readonly callerParts: readonly HTMLElement[]
  private readonly callerModels = new FlameModels('callers')
  private callerModel: FlameModel | null = null
  private context: ViewContext | null = null
  private model: FlameModel | null = null

  constructor(private readonly parts: ViewParts) {
    const { store, announce } = parts
    const plotOf = (model: () => FlameModel | null, isUpward: boolean): FlamePlot =>
      new FlamePlot(
        (index) => this.activate(model(), index),
        (index, x, y) => this.openMenu(model(), index, x, y),
        announce,
        isUpward,
      )
    this.plot = plotOf(() => this.model, false)
    this.callers = plotOf(() => this.callerModel, true)
    this.callerParts = [this.callers.element, this.callers.tooltip.element]
    this.moment = new MomentBar(store)
    this.without = new WithoutButton(store)
    this.momentBox = h('div.row.wrap.flame-moment', this.moment.element)
    this.since = new SinceField(store)
    this.controls = new FlameTools(store, { folded: () => this.folded(), saveSpeedscope: () => this.saveSpeedscope() })
    this.tools = this.controls.element
    this.element = h(
      'section.column.flame',
      { 'aria-label': 'Bytes by stack' },
      h('div.row.wrap.flame-head', this.momentBox, this.since.element),
      this.note,
      this.crumbs,
      this.empty,
      this.plot.element,
      this.legend.element,
      this.plot.tooltip.element,
    )
  }

  prepare(context: ViewContext): void {
    this.models.of(context, 1) // the tree is the same for every width
  }

  show(context: ViewContext): void {
    const choices = readChoices(context.state.options)
    this.context = context
    this.moment.render(context)
    this.controls.render(choices, context.info.time0 !== null, context.baseline !== null)
    this.since.render(context, choices)
    this.momentBox.hidden = isOfTrace(choices.measure)
    // A hidden element has no width.
    this.plot.isHidden = false
    const model = this.models.of(context, Math.max(1, this.plot.width))
    this.model = model
    const nothing = !model || model.tree.rows === 0
    this.empty.hidden = !nothing
    this.plot.isHidden = this.note.hidden = nothing
    if (nothing || !model.middle) for (const part of this.callerParts) part.remove()
    else if (!this.callers.element.isConnected) this.plot.element.before(...this.callerParts)
    this.crumbs.hidden = true
    if (nothing) {
      this.legend.element.hidden = true
      this.empty.textContent = explainEmpty(choices.measure, context)
      return
    }
    const goTo = (depth: number) => this.focusOn(model.focus!.stack, depth)
    if (model.middle) this.showMiddle(model.middle)
    else renderCrumbs(this.crumbs, model.tree, model.focus, model.frame, goTo, this.without.element)
    const query =
      model.focus && choices.measure !== 'reserved'
        ? queryBelow(model.tree, model.focus.stack, model.focus.node.depth)
        : null
    this.without.render(query, 'Without this stack', context.info, context.data, context.stacks)
    const empty = model.scale === 0 ? '. The focused frame holds nothing at this moment' : ''
    this.note.textContent = describeTotal(model.tree, model.all, choices.from, context) + empty
    this.legend.render(model, context.dark)
    this.plot.show({ model, context, note: this.note.textContent })
    this.callerModel = model.middle && this.callerModels.of(context, Math.max(1, this.callers.width))
    if (this.callerModel) this.callers.show({ model: this.callerModel, context, note: this.note.textContent })
  }

  /** The function whose callers are above and whose callees are below, and the way back. */
  private showMiddle({ name, file }: Frame): void {
    const all = (): void => this.parts.store.setOption('flame.middle', null)
    this.crumbs.hidden = false
    fill(
      this.crumbs,
      h('button.link', { title: 'Show the whole tree (Escape)', onclick: all }, 'All'),
      h('span', ' · Callers above and callees below ', h('code', name || '?'), ` ${file}`),
    )
  }

  key(event: KeyboardEvent): boolean {
    if (event.key === 'Escape') {
      if (this.model?.middle) return (this.parts.store.setOption('flame.middle', null), true)
      if (!this.model?.focus) return false
      this.focusOn(0, 0)
      return true
    }
    return this.callers.key(event) || this.plot.key(event) || (!this.momentBox.hidden && this.moment.key(event))
  }

  /** A focused frame fills the width, whatever another pane shows. */
  extent(): readonly number[] | null {
    return this.model && !this.model.focus && !this.model.middle ? [weightOf(this.model.all)] : null
  }

  picture(): HTMLCanvasElement {
    return this.plot.picture()
  }

  /** cells: what is drawn. nodes(): every node of the tree, whatever is folded, focused or too narrow. */
  debug(): unknown {
    const { model } = this
    if (!model) return null
    const { tree, choices, layout, all } = model
    const { measure, root, merge } = choices
    const plain = (cells: readonly Cell[], of = model) =>
      cells.map((cell) => {
        const frame = frameOf(of.tree, cell, of.frame)
        return {
          ...cell,
          name: frame?.name ?? null,
          file: frame?.filename ?? null,
          line: frame?.line ?? null,
          label: labelOf(of, cell),
        }
      })
    return {
      measure,
      root,
      merge,
      all,
      width: this.plot.width,
      cursor: this.plot.cursor,
      cells: plain(layout.cells),
      callers: this.callerModel && plain(this.callerModel.layout.cells, this.callerModel),
      folded: this.folded(),
      speedscope: this.speedscope(),
      nodes: () => plain(layoutFlame(tree, tree.top, { chains: 'none', open: [], least: 0 }).cells),
    }
  }

  /** A frame is focused, the top is left, a chain is opened; cells that are no frame focus the one above them. */
  private activate(model: FlameModel | null, index: number): void {
    const cell = model?.layout.cells[index]
    if (!model || !cell) return
    const { tree } = model
    if (model.middle && cell.kind === 'frame') this.showCallersOf(model, cell)
    else if (index === 0) this.focusOn(0, 0)
    else if (cell.kind === 'frame') this.focusOn(tree.stack(cell.inner.low), cell.depth)
    else if (isChain(cell.kind)) {
      const opened = writePlace(placeOfNode(tree, tree.stack(cell.inner.low), cell.depth))
      const open = [...model.choices.open.map(writePlace), opened]
      this.parts.store.setOption('flame.open', open.join('~'))
    } else if (cell.parent > 0) this.activate(model, cell.parent)
    else this.plot.announceCursor()
  }

  private showCallersOf({ tree }: FlameModel, { inner, depth }: Cell): void {
    const { store } = this.parts
    const { 'flame.focus': _, ...rest } = store.state.options
    store.set({ options: { ...rest, 'flame.middle': writePlace(placeOfNode(tree, tree.stack(inner.low), depth)) } })
  }

  /** A frame's callers and callees, and searches for its function, or for exactly the stacks below it. */
  private openMenu(model: FlameModel | null, index: number, x: number, y: number): void {
    const cell = model?.layout.cells[index]
    if (!model || !cell) return
    const { store } = this.parts
    const { tree } = model
    const frame = frameOf(tree, cell, model.frame)
    if (!frame) return
    const below =
      model.middle || model.choices.measure === 'reserved'
        ? null
        : queryBelow(tree, tree.stack(cell.inner.low), cell.depth)
    openMenu(
      [
        { label: `Callers and callees of ${frame.name || '?'}`, run: () => this.showCallersOf(model, cell) },
        ...(below ? [{ label: 'Search for what is below', run: () => store.set({ query: below }) }] : []),
        ...termItems(store, frame.name ? `func:${quoted(frame.name)}` : null),
      ],
      x,
      y,
    )
  }

  /** depth 0: the whole tree. */
  private focusOn(stack: number, depth: number): void {
    const { tree } = this.model ?? {}
    if (!tree) return
    const place = depth > 0 ? writePlace(placeOfNode(tree, stack, depth)) : null
    this.plot.cursor = 0
    this.parts.store.setOption('flame.focus', place)
    // Showing it may have moved the cursor along with its cell.
    this.plot.moveCursor(0)
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
    const moment = isOfTrace(measure) ? '' : ` ${atEvent(context.position - 1)}`
    return speedscopeJson(model.tree, model.layout.cells[0], model.names, `${MEASURE_NAMES[measure]}${moment}`)
  }

  private saveSpeedscope(): void {
    const { model, context } = this
    if (!model || !context) return
    const name = fileName(document.title, context.info.kind, String(context.info.device), model.choices.measure)
    this.parts.saved(download(`${name}.speedscope.json`, 'application/json', [this.speedscope()]))
  }
}
