// The 2D canvas over the picture: axes, curves, marks, and what the pointer and the selection add.

import { h } from '../../ui/dom'
import { drawAxes } from './axes'
import type { Hit } from './describe'
import { type Frame, xToPixel } from './frame'
import { drawLines } from './lines'
import { drawMarks } from './marks'
import { Outline } from './outline'
import type { Box } from './pointer'

export interface Pointed {
  /** Level of the columns on the canvas. */
  level: number
  hover: Hit | null
  select: number | null
  box: Box | null
}

export class Overlay {
  readonly element = h('canvas', { class: 'overlay', 'aria-hidden': 'true' })
  private readonly ctx: CanvasRenderingContext2D
  readonly font = '11px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif'
  /** What was drawn last; input is measured against it. */
  frame: Frame | null = null
  private readonly hoverOutline = new Outline()
  private readonly selectOutline = new Outline()

  /** inMemory: draw on the processor. Where the graphics are emulated, lines drawn "by the GPU" take ten times as long. */
  constructor(inMemory: boolean) {
    this.ctx = this.element.getContext('2d', { willReadFrequently: inMemory })!
  }

  /** Clears the canvas at this size in CSS pixels. */
  begin(width: number, height: number): CanvasRenderingContext2D {
    const ratio = devicePixelRatio || 1
    const { ctx } = this
    const deviceWidth = Math.max(1, Math.round(width * ratio))
    const deviceHeight = Math.max(1, Math.round(height * ratio))
    if (this.element.width !== deviceWidth || this.element.height !== deviceHeight) {
      this.element.width = deviceWidth
      this.element.height = deviceHeight
    }
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0)
    ctx.clearRect(0, 0, width, height)
    return ctx
  }

  draw(frame: Frame, pointed: Pointed): void {
    this.frame = frame
    const { inks } = frame
    drawAxes(frame)
    drawLines(frame)
    drawMarks(frame)
    const { hover, select, level } = pointed
    if (hover && hover.id >= 0 && hover.id !== select) {
      this.hoverOutline.draw(frame, hover.id, level, { stroke: inks.ink, fill: 'transparent', width: 1 })
    }
    if (select !== null) {
      this.selectOutline.draw(frame, select, level, { stroke: inks.accent, fill: inks.selection, width: 2 })
    }
    if (hover && !pointed.box) drawColumn(frame, hover)
    if (pointed.box) drawBox(frame, pointed.box)
  }
}

/** The column under the pointer, faintly, so that one sees what the tooltip speaks of. */
function drawColumn(frame: Frame, hit: Hit): void {
  const { ctx, plot, inks } = frame
  const x0 = Math.max(plot.left, xToPixel(frame, hit.column.x0))
  const x1 = Math.min(plot.left + plot.width, xToPixel(frame, hit.column.x1))
  ctx.strokeStyle = inks.ink
  ctx.globalAlpha = 0.35
  ctx.lineWidth = 1
  ctx.beginPath()
  // A wide column gets both its edges, a narrow one a line through its middle.
  for (const x of x1 - x0 > 6 ? [x0, x1] : [(x0 + x1) / 2]) {
    ctx.moveTo(Math.round(x) + 0.5, plot.top)
    ctx.lineTo(Math.round(x) + 0.5, plot.top + plot.height)
  }
  ctx.stroke()
  ctx.globalAlpha = 1
}

function drawBox({ ctx, plot, inks }: Frame, box: Box): void {
  const clampX = (x: number): number => Math.min(plot.left + plot.width, Math.max(plot.left, x))
  const clampY = (y: number): number => Math.min(plot.top + plot.height, Math.max(plot.top, y))
  const x0 = clampX(Math.min(box.x0, box.x1))
  const y0 = clampY(Math.min(box.y0, box.y1))
  const width = clampX(Math.max(box.x0, box.x1)) - x0
  const height = clampY(Math.max(box.y0, box.y1)) - y0
  ctx.fillStyle = inks.selection
  ctx.fillRect(x0, y0, width, height)
  ctx.strokeStyle = inks.accent
  ctx.lineWidth = 1.5
  ctx.strokeRect(x0, y0, width, height)
}
