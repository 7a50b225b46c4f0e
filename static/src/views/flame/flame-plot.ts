// The picture of the flame view: its canvas, the pointer and the keys on it, and the keyboard's cell in words
// for screen readers. What happens to a chosen cell is up to the view.

import { type Cell, cellAt, childrenOf, isChain } from '../../flame/layout'
import { h } from '../../ui/dom'
import { formatShare } from '../../ui/format'
import { CanvasView, sizeCanvas } from '../shared/canvas-view'
import type { Line } from '../shared/describe'
import { onPointing } from '../shared/tooltip'
import type { ViewContext } from '../view'
import { CellLooks, readLook } from './cell-looks'
import { moved, sameCell } from './cursor'
import { describeCell, formatAmount, frameOf, MEASURE_NAMES } from './describe'
import type { FlameModel } from './model'
import { paint, ROW } from './painter'

/** Categories, streams or sizes that a tooltip names. */
const MIX_TOLD = 3

/** Number of plots: two panes have one each, and ids are unique in the page. */
let instances = 0

interface Scene {
  model: FlameModel
  context: ViewContext
  /** The meaning of the numbers, in a sentence. */
  note: string
}

export class FlamePlot extends CanvasView {
  /** Index of the cell that the keyboard is on. */
  cursor = 0
  private readonly item: HTMLElement
  private readonly space = h('div', { class: 'flame-space' }, this.canvas)
  private readonly looks = new CellLooks()
  private scene: Scene | null = null
  private hover = -1

  /** onActivate: a cell was clicked, or Enter pressed on it. */
  constructor(
    private readonly onActivate: (index: number) => void,
    private readonly announce: (text: string) => void,
  ) {
    const id = `flame-item-${++instances}`
    super({ class: 'flame-plot surface', role: 'tree', 'aria-activedescendant': id }, null)
    this.canvas.className = 'flame-canvas'
    this.item = h('div', { class: 'offscreen', role: 'treeitem', id })
    this.plot.append(this.space, this.item)
    const redraw = (): void => this.frame.request()
    for (const name of ['scroll', 'focus', 'blur']) this.plot.addEventListener(name, redraw)
    onPointing(
      this.plot,
      (event) => this.pointAt(event),
      () => this.point(-1, 0, 0),
    )
    this.plot.addEventListener('click', (event) => {
      const index = this.cellUnder(event)
      if (index < 0) return
      this.cursor = index
      this.onActivate(index)
    })
  }

  get isHidden(): boolean {
    return this.plot.hidden
  }

  set isHidden(isHidden: boolean) {
    this.plot.hidden = isHidden
    if (isHidden) this.tooltip.hide()
  }

  /** CSS pixels; 0 while hidden. */
  get width(): number {
    return this.plot.clientWidth
  }

  show(scene: Scene): void {
    const { layout } = scene.model
    const before = this.scene?.model.layout
    this.scene = scene
    if (before && before !== layout) {
      this.cursor = sameCell(before, this.cursor, layout)
      this.point(-1, 0, 0)
    }
    this.space.style.height = `${Math.max(1, this.plot.clientHeight, (layout.rows.length - 1) * ROW)}px`
    this.describeCursor()
    this.frame.now()
  }

  toTop(): void {
    this.plot.scrollTop = 0
  }

  /** Enter and Space choose a cell, arrows go to another; true when used. */
  key({ key, target }: KeyboardEvent): boolean {
    if (!this.scene || !this.plot.contains(target as Node | null)) return false
    if (key === 'Enter' || key === ' ') return (this.onActivate(this.cursor), true)
    const { layout } = this.scene.model
    const next = moved(layout, this.cursor, key)
    if (next === null) return false
    this.scrollTo(layout.cells[next].row)
    this.moveCursor(next)
    return true
  }

  moveCursor(index: number): void {
    this.cursor = index
    this.announceCursor()
    this.frame.request()
  }

  announceCursor(): void {
    const text = this.describeCursor()
    if (text !== null) this.announce(text)
  }

  protected draw(): void {
    const { scene, canvas, plot } = this
    const ctx = canvas.getContext('2d')
    if (!scene || !ctx) return
    const { model, context } = scene
    const [width, height] = [Math.max(1, plot.clientWidth), Math.max(1, plot.clientHeight)]
    const ratio = sizeCanvas(canvas, width, height)
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0)
    const selected = selectedRow(model, context)
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

  private cellUnder({ clientX, clientY }: MouseEvent): number {
    const { layout, scale } = this.scene?.model ?? {}
    if (!layout || !scale) return -1
    const { left, top } = this.plot.getBoundingClientRect()
    const row = Math.floor((clientY - top + this.plot.scrollTop) / ROW)
    return cellAt(layout, row, layout.cells[0].from + (clientX - left) / scale)
  }

  private pointAt(event: PointerEvent): void {
    const { left, top } = this.tooltip.element.parentElement!.getBoundingClientRect()
    this.point(this.cellUnder(event), event.clientX - left, event.clientY - top)
  }

  private point(index: number, x: number, y: number): void {
    if (index !== this.hover) {
      this.hover = index
      this.frame.request()
    }
    const { scene } = this
    const cell = scene?.model.layout.cells[index]
    if (scene && cell)
      this.tooltip.show(linesOf(scene, cell), x, y, this.looks.swatch(scene.model, scene.context, cell))
    else this.tooltip.hide()
    this.plot.classList.toggle('over-cell', cell !== undefined)
  }

  private scrollTo(row: number): void {
    const { plot } = this
    const top = row * ROW
    if (top < plot.scrollTop) plot.scrollTop = top
    else if (top + ROW > plot.scrollTop + plot.clientHeight) plot.scrollTop = top + ROW - plot.clientHeight
  }

  /** Brings the item that stands for the cell under the keyboard up to date; returns its text, null without a cell. */
  private describeCursor(): string | null {
    const { scene, item, plot } = this
    const cell = scene?.model.layout.cells[this.cursor]
    if (!scene || !cell) return null
    const { layout, choices } = scene.model
    const [first, end] = cell.parent < 0 ? [0, 1] : childrenOf(layout, cell.parent)
    item.setAttribute('aria-level', String(cell.row + 1))
    item.setAttribute('aria-posinset', String(this.cursor - first + 1))
    item.setAttribute('aria-setsize', String(end - first))
    item.setAttribute('aria-selected', 'true')
    if (isChain(cell.kind)) item.setAttribute('aria-expanded', 'false')
    else item.removeAttribute('aria-expanded')
    const text = linesOf(scene, cell)
      .map(({ text }) => text)
      .join(', ')
    item.textContent = text
    const order = choices.root === 'root' ? 'outermost' : 'innermost'
    plot.setAttribute('aria-label', `${MEASURE_NAMES[choices.measure]} by stack, ${order} frames first. ${scene.note}`)
    return text
  }
}

function linesOf({ model, context }: Scene, cell: Cell): Line[] {
  const { tree, layout, all, frame, mixes } = model
  const { cells } = layout
  const above = cells[cell.parent] ?? null
  const whole = { cell: above, focus: cells[0], all }
  const lines = describeCell(tree, cell, whole, frameOf(tree, cell, frame), above && frameOf(tree, above, frame))
  for (const { key, weight } of (mixes?.of(cell.low, cell.high) ?? []).slice(0, MIX_TOLD)) {
    const amount = formatAmount(weight, tree.weights.measure)
    lines.push({
      kind: 'soft',
      text: `${context.colouring.nameOf(key)}: ${amount}, ${formatShare(weight, cell.value)}`,
    })
  }
  return lines
}

/** The row of the selected allocation's stack in the tree; -1 without one, or when it weighs nothing here. */
function selectedRow({ tree }: FlameModel, { state, data }: ViewContext): number {
  if (state.select === null || state.select >= data.N) return -1
  const stack = data.stack[state.select]
  const row = tree.paths.rowOf[stack]
  if (!(row >= 0)) return -1
  const { low, high } = tree.nodeOf(stack, tree.paths.length(row))!
  for (let at = low; at < high; at++) if (tree.stack(at) === stack) return at
  return -1
}
