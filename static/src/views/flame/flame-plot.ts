// The picture of the flame view: its canvas, the pointer and the keys on it, and the keyboard's cell in words
// for screen readers. What happens to a chosen cell is up to the view.

import { type Cell, cellAt, childrenOf, firstBranch, type FlameLayout, isChain } from '../../flame/layout'
import { h } from '../../ui/dom'
import { formatShare } from '../../ui/format'
import { CanvasView, sizeCanvas } from '../shared/canvas-view'
import type { Line } from '../shared/describe'
import { onPointing } from '../shared/tooltip'
import type { ViewContext } from '../view'
import { CellLooks, readLook } from './cell-looks'
import { writePlace } from './choices'
import { moved, sameCell } from './cursor'
import { describeCell, formatAmount, frameOf, MEASURE_NAMES } from './describe'
import type { FlameModel } from './model'
import { paint, ROW } from './painter'

/** Categories, streams or sizes that a tooltip names. */
const MIX_TOLD = 3

const OPPOSITE: Record<string, string> = { ArrowUp: 'ArrowDown', ArrowDown: 'ArrowUp' }

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
  private readonly space = h('div.flame-space', this.canvas)
  private readonly looks = new CellLooks()
  private scene: Scene | null = null
  private hover = -1
  /** What the picture was of when it was last scrolled to its first branch. */
  private opened: readonly unknown[] = []

  /**
   * onActivate: a cell was clicked, or Enter pressed on it. onMenu: its menu was asked for, at a place of the window.
   * isUpward: rows go up, and the first is out of sight, since the plot below shows it.
   */
  constructor(
    private readonly onActivate: (index: number) => void,
    onMenu: (index: number, x: number, y: number) => void,
    private readonly announce: (text: string) => void,
    private readonly isUpward = false,
  ) {
    const id = `flame-item-${++instances}`
    super({ class: 'flame-plot surface', role: 'tree', 'aria-activedescendant': id }, null)
    this.canvas.className = 'flame-canvas'
    this.item = h('div.offscreen', { role: 'treeitem', id })
    this.plot.append(this.space, this.item)
    const redraw = (): void => this.frame.request()
    for (const name of ['scroll', 'focus', 'blur']) this.plot.addEventListener(name, redraw)
    onPointing(
      this.plot,
      (event) => this.pointAt(event),
      () => this.point(-1, 0, 0),
    )
    this.plot.addEventListener('contextmenu', (event) => {
      const { left, top } = this.plot.getBoundingClientRect()
      const row = this.scene?.model.layout.cells[this.cursor]?.row ?? 0
      const isKey = event.clientX === 0 && event.clientY === 0
      // The key of the keyboard has no place of its own in every browser.
      const index = isKey ? this.cursor : this.cellUnder(event)
      if (index < 0) return
      event.preventDefault()
      this.cursor = index
      this.tooltip.hide()
      if (isKey) onMenu(index, left, top + this.yOf(row) - this.plot.scrollTop + ROW)
      else onMenu(index, event.clientX, event.clientY)
    })
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
    this.space.style.height = `${this.height}px`
    const { tree, choices } = scene.model
    const seen = [tree.paths, choices.chains, choices.focus && writePlace(choices.focus)]
    if (seen.some((part, i) => part !== this.opened[i])) this.scrollToBranch(layout)
    this.opened = seen
    this.describeCursor()
    this.frame.now()
  }

  /** Enter and Space choose a cell, arrows go to another; true when used. */
  key({ key, target }: KeyboardEvent): boolean {
    if (!this.scene || !this.plot.contains(target as Node | null)) return false
    if (key === 'Enter' || key === ' ') return (this.onActivate(this.cursor), true)
    const { layout } = this.scene.model
    const next = moved(layout, this.cursor, this.isUpward ? (OPPOSITE[key] ?? key) : key)
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
      yOf: (row) => this.yOf(row),
      look: readLook(plot),
      lookOf: this.looks.of(model, context),
      hover: this.hover,
      cursor: plot.matches(':focus-visible') ? this.cursor : -1,
      isSelected: ({ low, high }) => selected >= low && selected < high,
    })
  }

  /** Of the rows, at least of what is in sight of them. */
  private get height(): number {
    const rows = (this.scene?.model.layout.rows.length ?? 1) - 1 - (this.isUpward ? 1 : 0)
    return Math.max(1, this.plot.clientHeight, rows * ROW)
  }

  private yOf(row: number): number {
    return this.isUpward ? this.height - row * ROW : row * ROW
  }

  private cellUnder({ clientX, clientY }: MouseEvent): number {
    const { layout, scale } = this.scene?.model ?? {}
    if (!layout || !scale) return -1
    const { left, top } = this.plot.getBoundingClientRect()
    const y = clientY - top + this.plot.scrollTop
    const row = this.isUpward ? Math.ceil((this.height - y) / ROW) : Math.floor(y / ROW)
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

  /** Rows of equal width say nothing: the first row that branches is in sight, below the one that it divides. */
  private scrollToBranch(layout: FlameLayout): void {
    const row = firstBranch(layout)
    const isSeen = (row + 2) * ROW <= this.plot.clientHeight / 2
    const { scrollHeight, clientHeight } = this.plot
    if (this.isUpward) this.plot.scrollTop = isSeen ? scrollHeight : this.yOf(row - 1) - clientHeight + 2 * ROW
    else this.plot.scrollTop = isSeen ? 0 : this.yOf(row - 1)
  }

  private scrollTo(row: number): void {
    const { plot } = this
    const top = this.yOf(row)
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
