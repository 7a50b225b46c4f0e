// The flame view: bytes by stack at a moment, as an icicle. What it shows is in ./model, the picture in ./flame-plot; here
// are the elements around it, and the effects of choosing a cell.

import { foldedText, speedscopeJson } from '../../flame/export'
import { type Cell, isChain, layoutFlame, weightOf } from '../../flame/layout'
import { h } from '../../ui/dom'
import { download, fileName } from '../../ui/download'
import { MomentBar } from '../moment'
import { WithoutButton } from '../shared/controls'
import type { View, ViewContext, ViewParts } from '../view'
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
  private readonly note = h('p', { class: 'flame-words' })
  private readonly crumbs = h('nav', { class: 'flame-crumbs', 'aria-label': 'Focused frame', hidden: true })
  private readonly empty = h('p', { class: 'flame-empty', hidden: true })
  private readonly plot: FlamePlot
  private readonly without: WithoutButton
  private readonly legend = new FlameLegend()
  private readonly controls: FlameTools
  private readonly models = new FlameModels()
  private context: ViewContext | null = null
  private model: FlameModel | null = null

  constructor(private readonly parts: ViewParts) {
    const { store, announce } = parts
    this.plot = new FlamePlot((index) => this.activate(index), announce)
    this.moment = new MomentBar(store)
    this.without = new WithoutButton(store)
    this.momentBox = h('div', { class: 'row wrap flame-moment' }, this.moment.element)
    this.since = new SinceField(store)
    this.controls = new FlameTools(store, { folded: () => this.folded(), saveSpeedscope: () => this.saveSpeedscope() })
    this.tools = this.controls.element
    this.element = h(
      'section',
      { class: 'column flame', 'aria-label': 'Bytes by stack' },
      h('div', { class: 'row wrap flame-head' }, this.momentBox, this.since.element),
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
    this.crumbs.hidden = true
    if (nothing) {
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
    this.legend.render(model, context.dark)
    this.plot.show({ model, context, note: this.note.textContent })
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
    return this.plot.key(event) || (!this.momentBox.hidden && this.moment.key(event))
  }

  /** A focused frame fills the width, whatever another pane shows. */
  extent(): readonly number[] | null {
    return this.model && !this.model.focus ? [weightOf(this.model.all)] : null
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
      width: this.plot.width,
      cursor: this.plot.cursor,
      cells: plain(layout.cells),
      folded: this.folded(),
      speedscope: this.speedscope(),
      nodes: () => plain(layoutFlame(tree, tree.top, { chains: 'none', open: [], least: 0 }).cells),
    }
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
    else this.plot.announceCursor()
  }

  /** depth 0: the whole tree. */
  private focusOn(stack: number, depth: number): void {
    const { tree } = this.model ?? {}
    if (!tree) return
    const place = depth > 0 ? writePlace(placeOfNode(tree, stack, depth)) : null
    this.plot.toTop()
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
