// The drawing over and around the picture: axes, curves, marks, the selection, and the box that is drawn.

import type { Rect } from '../../layout/viewport'
import { css } from '../shared/inks'
import { RectList } from '../../gl/rects'
import { formatCount } from '../../layout/format'
import { byteTicks, type Tick } from '../../layout/ticks'
import { h } from '../../ui/dom'
import { FONT, sizeCanvas } from '../shared/canvas-view'
import { drawXAxis, gapsWithin, type Box } from '../shared/plot-frame'
import type { EventRange } from '../shared/range-sums'
import { drawFailedRequests, drawMarks, type FailedRequest, failedRequests } from './marks'
import { BOTTOM_STRIP, type Frame, type Strips, TOP_STRIP, xToPixel, yToPixel } from './frame'
import { Lines, PlotLabels } from './plot-labels'
import { Outline } from './outline'

interface Pointed {
  /** Level of the columns on the canvas. */
  level: number
  select: number | null
  /** The selected range. */
  range: EventRange | null
  box: Rect | null
}

export class Overlay {
  readonly elements: readonly HTMLElement[]
  readonly rects = new RectList()
  /** The last drawn frame; input is measured against it. */
  frame: Frame | null = null
  private readonly strips: Strips
  readonly labels = new PlotLabels()
  /** The last drawn ones, for hit testing. */
  failed: readonly FailedRequest[] = []
  readonly lines = new Lines()
  private readonly selectOutline = new Outline()

  constructor() {
    const [left, top, bottom] = ['left', 'top', 'bottom'].map((side) =>
      h('canvas', { class: `strip ${side}`, 'aria-hidden': 'true' }),
    )
    this.elements = [left, top, bottom, this.labels.cards, this.labels.reserved, this.labels.request, this.labels.fold]
    const context = (canvas: HTMLCanvasElement): CanvasRenderingContext2D => canvas.getContext('2d')!
    this.strips = { left: context(left), top: context(top), bottom: context(bottom) }
  }

  /** Clears the strips around the plot; from then on they are drawn on in the plot's coordinates. */
  begin(plot: Box, width: number): Strips {
    const { left, top, bottom } = this.strips
    prepare(left, 0, plot.top - 6, plot.left, plot.height + 12, plot)
    prepare(top, 0, 0, width, TOP_STRIP, plot)
    prepare(bottom, 0, plot.top + plot.height, width, BOTTOM_STRIP, plot)
    this.rects.clear()
    return this.strips
  }

  /** Fills the list of rectangles and the strips. */
  draw(frame: Frame, pointed: Pointed): void {
    this.frame = frame
    drawAxes(frame)
    this.lines.draw(frame)
    this.failed = failedRequests(frame)
    drawFailedRequests(frame, this.failed)
    drawMarks(frame)
    drawBreaks(frame)
    const { select, level, range, box } = pointed
    if (range) drawRange(frame, range)
    if (select !== null)
      this.selectOutline.draw(frame, select, level, { stroke: 'accent', fill: 'selection', thickness: 2 })
    frame.rects.endFixed()
    if (box) drawBox(frame, box)
    this.labels.place(frame, this.failed)
  }
}

/** Sizes and clears a strip, and moves its origin to the plot's corner. */
function prepare(ctx: CanvasRenderingContext2D, x: number, y: number, width: number, height: number, plot: Box): void {
  const { canvas } = ctx
  const ratio = sizeCanvas(canvas, width, height)
  canvas.style.transform = `translate(${x}px, ${y}px)`
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0)
  ctx.clearRect(0, 0, width, height)
  ctx.translate(plot.left - x, plot.top - y)
  ctx.font = FONT
}

const TOOTH = 7

/** Torn edges where an axis is broken: across the plot over what never changes, and down it in an idle stretch. */
function drawBreaks(frame: Frame): void {
  const { rects, plot, inks, scene, scale, yBottom, window } = frame
  const tooth = (place: number): number => Math.abs((place % (2 * TOOTH)) - TOOTH) - TOOTH / 2
  rects.ink(inks.panel)
  for (const gap of gapsWithin({ scale, x0: window.x0, x1: window.x1 })) {
    const x = xToPixel(frame, (gap.x0 + gap.x1) / 2)
    for (let y = 0; y < plot.height; y++) rects.add(x + tooth(y) - 1.5, y, x + tooth(y) + 1.5, y + 1)
  }
  if (yBottom === 0 || window.y0 > scene.constant) return
  const middle = (Math.max(yBottom, window.y0) + scene.constant) / 2
  const y = yToPixel(frame, middle)
  if (y > plot.height) return
  for (let x = 0; x < plot.width; x++) rects.add(x, y + tooth(x) - 1.5, x + 1, y + tooth(x) + 1.5)
}

/** Half an event wider on either side. */
function drawRange(frame: Frame, { first, last }: EventRange): void {
  const { rects, plot, inks, scale } = frame
  const [x0, x1] = [first - 0.5, last + 0.5].map((event) => xToPixel(frame, scale.toAxis(event)))
  rects.ink(inks.selection)
  rects.add(Math.max(0, x0), 0, Math.min(plot.width, x1), plot.height)
  rects.ink(inks.accent)
  for (const x of [x0, x1]) if (x >= 0 && x <= plot.width) rects.add(x - 0.75, 0, x + 0.75, plot.height)
}

function drawBox({ rects, plot, inks }: Frame, box: Rect): void {
  const clampX = (x: number): number => Math.min(plot.width, Math.max(0, x))
  const clampY = (y: number): number => Math.min(plot.height, Math.max(0, y))
  const x0 = clampX(Math.min(box.x0, box.x1))
  const y0 = clampY(Math.min(box.y0, box.y1))
  const x1 = clampX(Math.max(box.x0, box.x1))
  const y1 = clampY(Math.max(box.y0, box.y1))
  rects.ink(inks.selection)
  rects.add(x0, y0, x1, y1)
  rects.ink(inks.accent)
  rects.add(x0, y0, x1, y0 + 1.5)
  rects.add(x0, y1 - 1.5, x1, y1)
  rects.add(x0, y0, x0 + 1.5, y1)
  rects.add(x1 - 1.5, y0, x1, y1)
}

const TICK_HEIGHT = 44

function drawAxes(frame: Frame): void {
  drawYAxis(frame)
  const { plot, window, scale, scene, inks, strips } = frame
  const box = { left: 0, top: 0, width: plot.width, height: plot.height }
  drawXAxis(strips.bottom, box, { scale, x0: window.x0, x1: window.x1 }, scene.info, inks, true)
}

/** Grid lines are drawn over the picture, too faint to be taken for borders of bands. */
function drawYAxis(frame: Frame): void {
  const { rects, plot, inks } = frame
  const { left, top } = frame.strips
  const { ticks, base } = yTicksOf(frame)
  rects.ink(inks.grid)
  left.fillStyle = css(inks.soft)
  left.textAlign = 'right'
  left.textBaseline = 'middle'
  for (const { value, label } of ticks) {
    const y = yToPixel(frame, value)
    rects.add(0, y, plot.width, y + 1)
    left.fillRect(-5, Math.round(y), 4, 1)
    // The lowest label would overlap the x axis.
    left.fillText(label, -9, Math.min(y, plot.height - 5))
  }
  left.fillRect(-1, 0, 1, plot.height + 1)
  if (base === 0) return
  top.fillStyle = css(inks.soft)
  top.textAlign = 'left'
  top.textBaseline = 'middle'
  top.fillText(`${spellBytes(base)} +`, 4 - plot.left, -12)
}

/**
 * Zoomed in on a large stack, whole values do not fit beside the axis: then ticks are relative to a base, written above them. Near its
 * bottom that would be 0: there are fewer of them, since a longer step needs fewer digits.
 */
function yTicksOf({ strips: { left }, window, plot }: Frame): { ticks: Tick[]; base: number } {
  const target = plot.height / TICK_HEIGHT
  const round = 2 ** Math.ceil(Math.log2(window.y1 - window.y0))
  const base = Math.floor(window.y0 / round) * round
  for (const fewer of base === 0 ? [1, 2, 4] : [1]) {
    const ticks = byteTicks(window.y0, window.y1, target / fewer)
    if (ticks.every(({ label }) => left.measureText(label).width <= plot.left - 10)) return { ticks, base: 0 }
  }
  const relative = byteTicks(window.y0 - base, window.y1 - base, target)
  const sign = base === 0 ? '' : '+'
  return { ticks: relative.map(({ value, label }) => ({ value: value + base, label: sign + label })), base }
}

/** A whole number of bytes in parts: "27 GiB 513 MiB 64 KiB" */
function spellBytes(bytes: number): string {
  const parts: string[] = []
  let remaining = bytes
  for (const [power, unit] of [
    [40, 'TiB'],
    [30, 'GiB'],
    [20, 'MiB'],
    [10, 'KiB'],
    [0, 'B'],
  ] as const) {
    const count = Math.floor(remaining / 2 ** power)
    if (count > 0) parts.push(`${formatCount(count)} ${unit}`)
    remaining -= count * 2 ** power
  }
  return parts.join(' ')
}
