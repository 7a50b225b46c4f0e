// The frame around a picture over events: its place, its axes, the lines of moments, in CSS pixels of a 2D canvas.

import type { DeviceInfo } from '../../data/model'
import { formatDuration } from '../../layout/format'
import type { Gap } from '../../layout/gaps'
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

/** Under a box: ticks, how long shortened stretches are, and at its left what they count, where there is room. */
export function drawXAxis(
  ctx: CanvasRenderingContext2D,
  box: Box,
  { scale, x0, x1 }: XWindow,
  info: DeviceInfo,
  inks: Inks,
  hasRoom = box.left > 40,
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
  const taken: [number, number][] = []
  const write = (label: string, at: number): void => {
    const x = xToPixel({ scale, x0, x1 }, box, at)
    const width = ctx.measureText(label).width
    const start = Math.min(Math.max(x - width / 2, box.left - 5), box.left + box.width + 6 - width)
    if (taken.some(([from, to]) => start < to + 12 && start + width > from - 12)) return
    ctx.fillText(label, start, y + 7)
    taken.push([start, start + width])
  }
  for (const gap of gapsWithin({ scale, x0, x1 }))
    write(`${formatDuration(gap.to - gap.from)} idle`, (gap.x0 + gap.x1) / 2)
  const target = box.width / (box.width < 500 ? 78 : 104)
  const ticks = scale.axis === 'time' ? timeTicks(x0, x1, target, scale.gaps) : eventTicks(x0, x1, target)
  for (const { value, label } of ticks) {
    ctx.fillRect(Math.round(xToPixel({ scale, x0, x1 }, box, value)), y + 1, 1, 4)
    write(label, value)
  }
  ctx.textAlign = 'right'
  if (hasRoom) ctx.fillText(scale.axis === 'time' ? 'time' : 'event', box.left - 9, y + 7)
  ctx.textAlign = 'left'
}

/** The shortened stretches in sight. */
export function gapsWithin({ scale: { gaps }, x0, x1 }: XWindow): Gap[] {
  return gaps.filter((gap) => gap.x1 > x0 && gap.x0 < x1)
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
