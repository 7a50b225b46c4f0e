// The spread of a group's peaks on one line: whiskers from the least to the most, a box of the middle half, the median, and a
// dot for each rank that stands out. What lies beyond the scale is an arrow at its end.

import { formatBytes } from '../layout/format'
import { h } from '../ui/dom'
import { css } from '../views/shared/inks'
import { prepareCanvas } from '../views/shared/canvas'
import type { JobModel } from './job-model'
import { spreadOf } from './statistics'

const WIDTH = 150
const HEIGHT = 20

/** All charts of a page have the same scale, 0 to `end` bytes. */
export function spreadChart({ data, inks, peaks }: JobModel, rows: readonly number[], end: number): HTMLElement {
  const canvas = h('canvas', { class: 'job-spread', role: 'img' })
  const spread = spreadOf(rows.map((row) => peaks.allocated[row]))
  if (!spread) return canvas
  const [min, lower, median, upper, max] = spread
  const beyond = max > end ? `; the chart ends at ${formatBytes(Math.round(end))}` : ''
  const range = `${formatBytes(min)} to ${formatBytes(max)}, median ${formatBytes(Math.round(median))}${beyond}`
  canvas.setAttribute('aria-label', `Peaks from ${range}`)
  canvas.title = `Peaks: ${range}`
  const ctx = prepareCanvas(canvas, WIDTH, HEIGHT)
  const x = (bytes: number): number => 4 + Math.min(1, bytes / Math.max(1, end)) * (WIDTH - 8)
  const middle = HEIGHT / 2
  ctx.fillStyle = css(inks.line)
  ctx.fillRect(4, HEIGHT - 2, WIDTH - 8, 1)
  ctx.fillStyle = css(inks.soft)
  ctx.fillRect(x(min), middle - 0.5, x(max) - x(min), 1)
  for (const bytes of [min, max]) if (bytes <= end) ctx.fillRect(x(bytes) - 0.5, middle - 4, 1, 8)
  ctx.fillStyle = css(inks.allocated)
  ctx.fillRect(x(lower), middle - 5, Math.max(2, x(upper) - x(lower)), 10)
  ctx.fillStyle = css(inks.ink)
  ctx.fillRect(x(median) - 1, middle - 7, 2, 14)
  for (const row of rows) {
    const peak = peaks.allocated[row]
    if (!(data.bytesAbove[row] > 0 || peak > end)) continue
    ctx.fillStyle = css(data.bytesAbove[row] > 0 ? inks.peak : inks.soft)
    ctx.beginPath()
    if (peak > end) {
      ctx.moveTo(WIDTH - 8, middle - 5)
      ctx.lineTo(WIDTH, middle)
      ctx.lineTo(WIDTH - 8, middle + 5)
    } else ctx.arc(x(peak), middle, 3.5, 0, 2 * Math.PI)
    ctx.fill()
  }
  return canvas
}
