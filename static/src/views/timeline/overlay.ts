// The drawing over and around the picture: axes, curves, marks, the selection, and the box that is drawn.

import { RectList } from '../../gl/rects'
import { h } from '../../ui/dom'
import { drawAxes } from './axes'
import { sizeCanvas } from '../shared/canvas'
import { FONT } from '../shared/font'
import { drawFailedRequests, type FailedRequest, failedRequests } from './failed-requests'
import { BOTTOM_STRIP, type Frame, type Plot, type Strips, TOP_STRIP } from './frame'
import { Lines } from './lines'
import { drawMarks } from './marks'
import { Outline } from './outline'
import { PlotLabels } from './plot-labels'
import type { Box } from '../shared/pointer'

export interface Pointed {
  /** Level of the columns on the canvas. */
  level: number
  select: number | null
  box: Box | null
}

export class Overlay {
  readonly elements: readonly HTMLElement[]
  readonly rects = new RectList()
  /** The last drawn frame; input is measured against it. */
  frame: Frame | null = null
  private readonly strips: Strips
  private readonly labels = new PlotLabels()
  /** The last drawn ones, for hit testing. */
  failed: readonly FailedRequest[] = []
  readonly lines = new Lines()
  private readonly selectOutline = new Outline()

  constructor() {
    const [left, top, bottom] = ['left', 'top', 'bottom'].map((side) =>
      h('canvas', { class: `strip ${side}`, 'aria-hidden': 'true' }),
    )
    this.elements = [left, top, bottom, this.labels.cards, this.labels.reserved, this.labels.request]
    const context = (canvas: HTMLCanvasElement): CanvasRenderingContext2D => canvas.getContext('2d')!
    this.strips = { left: context(left), top: context(top), bottom: context(bottom) }
  }

  /** Clears the strips around the plot; from then on they are drawn on in the plot's coordinates. */
  begin(plot: Plot, width: number): Strips {
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
    const { select, level, box } = pointed
    if (select !== null)
      this.selectOutline.draw(frame, select, level, { stroke: 'accent', fill: 'selection', thickness: 2 })
    frame.rects.endFixed()
    if (box) drawBox(frame, box)
    this.labels.place(frame, this.failed)
  }
}

/** Sizes and clears a strip, and moves its origin to the plot's corner. */
function prepare(ctx: CanvasRenderingContext2D, x: number, y: number, width: number, height: number, plot: Plot): void {
  const { canvas } = ctx
  const ratio = sizeCanvas(canvas, width, height)
  canvas.style.transform = `translate(${x}px, ${y}px)`
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0)
  ctx.clearRect(0, 0, width, height)
  ctx.translate(plot.left - x, plot.top - y)
  ctx.font = FONT
}

function drawBox({ rects, plot, inks }: Frame, box: Box): void {
  const clampX = (x: number): number => Math.min(plot.width, Math.max(0, x))
  const clampY = (y: number): number => Math.min(plot.height, Math.max(0, y))
  const x0 = clampX(Math.min(box.x0, box.x1))
  const y0 = clampY(Math.min(box.y0, box.y1))
  const x1 = clampX(Math.max(box.x0, box.x1))
  const y1 = clampY(Math.max(box.y0, box.y1))
  rects.ink(inks.selection.rgba)
  rects.add(x0, y0, x1, y1)
  rects.ink(inks.accent.rgba)
  rects.add(x0, y0, x1, y0 + 1.5)
  rects.add(x0, y1 - 1.5, x1, y1)
  rects.add(x0, y0, x0 + 1.5, y1)
  rects.add(x1 - 1.5, y0, x1, y1)
}
