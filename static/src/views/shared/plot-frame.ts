// The frame around a picture over events: its place, its axes, the lines of moments, in CSS pixels of a 2D canvas.

import type { DeviceInfo } from '../../data/model'
import { byteTicks, eventTicks, timeTicks } from '../../layout/ticks'
import { css, type Inks } from './inks'
import type { XWindow } from './x-window'

export interface Box {
  left: number
  top: number
  width: number
  height: number
}

/** Device pixels per CSS pixel of a picture: what the screen has, but no more than some two million pixels in all. */
export function pictureRatio(width: number, height: number): number {
  return Math.min(devicePixelRatio || 1, Math.max(0.5, Math.sqrt(2.2e6 / Math.max(1, width * height))))
}

export function xToPixel({ x0, x1 }: XWindow, box: Box, x: number): number {
  return box.left + ((x - x0) / (x1 - x0)) * box.width
}

export function pixelToX({ x0, x1 }: XWindow, box: Box, pixel: number): number {
  return x0 + ((pixel - box.left) / box.width) * (x1 - x0)
}

export function drawXAxis(
  ctx: CanvasRenderingContext2D,
  box: Box,
  window: XWindow,
  info: DeviceInfo,
  inks: Inks,
): void {
  const y = box.top + box.height
  ctx.fillStyle = css(inks.soft)
  ctx.fillRect(box.left - 1, y, box.width + 1, 1)
  ctx.textBaseline = 'top'
  ctx.textAlign = 'left'
  if (info.events === 0) {
    ctx.fillText('final state', box.left, y + 7)
    return
  }
  const target = box.width / (box.width < 500 ? 78 : 104)
  let free = box.left - 6
  for (const { value, label } of (window.scale.axis === 'time' ? timeTicks : eventTicks)(
    window.x0,
    window.x1,
    target,
  )) {
    const x = xToPixel(window, box, value)
    ctx.fillRect(Math.round(x), y + 1, 1, 4)
    const width = ctx.measureText(label).width
    const start = Math.min(Math.max(x - width / 2, box.left - 5), box.left + box.width + 6 - width)
    if (start < free) continue
    ctx.fillText(label, start, y + 7)
    free = start + width + 12
  }
  ctx.textAlign = 'right'
  if (box.left > 40) ctx.fillText(window.scale.axis === 'time' ? 'time' : 'event', box.left - 9, y + 7)
  ctx.textAlign = 'left'
}

/** Byte ticks from 0 to `top` at the left edge, with grid lines over the picture. */
export function drawByteAxis(ctx: CanvasRenderingContext2D, box: Box, top: number, inks: Inks): void {
  ctx.textAlign = 'right'
  ctx.textBaseline = 'middle'
  for (const { value, label } of byteTicks(0, top, box.height / 40)) {
    const y = box.top + box.height - (value / top) * box.height
    ctx.fillStyle = css(inks.ink, 0.09)
    ctx.fillRect(box.left, Math.round(y), box.width, 1)
    ctx.fillStyle = css(inks.soft)
    // Where there is nothing above the box, the highest label would be cut.
    ctx.fillText(label, box.left - 7, Math.max(6, Math.min(y, box.top + box.height - 5)))
  }
  ctx.fillRect(box.left - 1, box.top, 1, box.height + 1)
  ctx.textAlign = 'left'
}

/** An upright line at a moment, with a word at its top. */
export function drawMoment(
  ctx: CanvasRenderingContext2D,
  box: Box,
  window: XWindow,
  x: number,
  colour: string,
  label: string,
  dash: number[] = [],
): void {
  const pixel = xToPixel(window, box, x)
  if (pixel < box.left - 1 || pixel > box.left + box.width + 1) return
  ctx.strokeStyle = colour
  ctx.lineWidth = 1.5
  ctx.setLineDash(dash)
  ctx.beginPath()
  ctx.moveTo(pixel, box.top)
  ctx.lineTo(pixel, box.top + box.height)
  ctx.stroke()
  ctx.setLineDash([])
  if (!label) return
  ctx.textBaseline = 'bottom'
  ctx.fillStyle = colour
  const width = ctx.measureText(label).width
  ctx.fillText(label, Math.min(Math.max(box.left, pixel - width / 2), box.left + box.width - width), box.top - 3)
}
