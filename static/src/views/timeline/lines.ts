// Curves over the picture: reserved, and the top edge of the stack. Zoomed out, a pixel shows the greatest value in it.

import { type Frame, pixelToX, xToPixel, yToPixel } from './frame'
import type { RangeMax } from './range-max'

export function drawLines(frame: Frame): void {
  const { scene, inks, plot, ctx } = frame
  if (!scene.data || !scene.allocatedMax || !scene.reservedMax) return
  ctx.save()
  ctx.beginPath()
  ctx.rect(plot.left, plot.top - 1, plot.width, plot.height + 2)
  ctx.clip()
  ctx.lineJoin = 'miter'
  ctx.lineWidth = 1
  ctx.strokeStyle = inks.ink
  ctx.globalAlpha = 0.75
  tracePath(frame, scene.allocatedMax, scene.data.allocated)
  ctx.stroke()
  ctx.globalAlpha = 1
  if (scene.data.reserved.length && scene.info.stats.peak_reserved_bytes > 0) {
    ctx.strokeStyle = inks.halo
    ctx.lineWidth = 3.5
    tracePath(frame, scene.reservedMax, scene.data.reserved)
    ctx.stroke()
    ctx.strokeStyle = inks.reserved
    ctx.lineWidth = 1.5
    ctx.stroke()
  }
  ctx.restore()
  drawReservedLabel(frame)
}

/** Where reserved leaves the window at the top, say so: a line that is not there tells nothing. */
function drawReservedLabel(frame: Frame): void {
  const { scene, window, plot, ctx, inks } = frame
  const { data } = scene
  if (!data || scene.info.stats.peak_reserved_bytes <= 0) return
  const [, to] = scene.positions(frame.scale.axis, window.x0, window.x1)
  const last = data.reserved[Math.min(to, data.reserved.length) - 1]
  const above = last > window.y1
  if (last < window.y0) return
  const text = above ? '↑ reserved' : 'reserved'
  ctx.font = frame.font
  ctx.textAlign = 'right'
  ctx.textBaseline = 'bottom'
  const y = above ? plot.top + 14 : Math.max(plot.top + 13, yToPixel(frame, last) - 3)
  outlineText(frame, text, plot.left + plot.width - 4, y, inks.reserved)
}

/** Text that stays readable on any picture. */
export function outlineText({ ctx, inks }: Frame, text: string, x: number, y: number, color: string): void {
  ctx.lineJoin = 'round'
  ctx.lineWidth = 3
  ctx.strokeStyle = inks.halo
  ctx.strokeText(text, x, y)
  ctx.fillStyle = color
  ctx.fillText(text, x, y)
}

function tracePath(frame: Frame, greatest: RangeMax, values: Float64Array): void {
  const { ctx, scene, scale, window, plot } = frame
  const [from, to] = scene.positions(scale.axis, window.x0, window.x1)
  ctx.beginPath()
  if (to - from <= plot.width) {
    for (let s = from; s < to; s++) {
      const y = yToPixel(frame, values[s])
      ctx.lineTo(xToPixel(frame, scale.toAxis(s - 1)), y)
      ctx.lineTo(xToPixel(frame, scale.toAxis(s)), y)
    }
    return
  }
  for (let pixel = 0; pixel < plot.width; pixel++) {
    const x = plot.left + pixel
    const [low, high] = scene.positions(scale.axis, pixelToX(frame, x), pixelToX(frame, x + 1))
    const y = yToPixel(frame, greatest.max(low, high))
    ctx.lineTo(x, y)
    ctx.lineTo(x + 1, y)
  }
}
