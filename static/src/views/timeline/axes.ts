// Grid lines, ticks and labels of both axes.

import { formatCount } from '../../layout/format'
import { byteTicks, eventTicks, type Tick, timeTicks } from '../../layout/ticks'
import { type Frame, xToPixel, yToPixel } from './frame'

const TICK_HEIGHT = 44

/** Grid lines lie under the lines and over the picture, so faint that they do not read as borders of bands. */
export function drawAxes(frame: Frame): void {
  const { ctx, plot, inks } = frame
  ctx.font = frame.font
  ctx.lineWidth = 1
  const { ticks: yTicks, base } = yTicksOf(frame)
  const xTicks = xTicksOf(frame)

  ctx.strokeStyle = inks.grid
  ctx.beginPath()
  for (const { value } of yTicks) {
    const y = Math.round(yToPixel(frame, value)) + 0.5
    ctx.moveTo(plot.left, y)
    ctx.lineTo(plot.left + plot.width, y)
  }
  ctx.stroke()

  ctx.strokeStyle = inks.soft
  ctx.beginPath()
  ctx.moveTo(plot.left - 0.5, plot.top)
  ctx.lineTo(plot.left - 0.5, plot.top + plot.height + 0.5)
  ctx.lineTo(plot.left + plot.width, plot.top + plot.height + 0.5)
  for (const { value } of xTicks) {
    const x = Math.round(xToPixel(frame, value)) + 0.5
    ctx.moveTo(x, plot.top + plot.height)
    ctx.lineTo(x, plot.top + plot.height + 4)
  }
  ctx.stroke()

  ctx.fillStyle = inks.soft
  ctx.textAlign = 'right'
  ctx.textBaseline = 'middle'
  for (const { value, label } of yTicks) ctx.fillText(label, plot.left - 7, yToPixel(frame, value))
  if (base > 0) {
    ctx.textAlign = 'left'
    ctx.fillText(`${spellBytes(base)} +`, 6, plot.top - 11)
  }
  ctx.textBaseline = 'top'
  drawXLabels(frame, xTicks)
}

function drawXLabels(frame: Frame, ticks: Tick[]): void {
  const { ctx, plot } = frame
  const y = plot.top + plot.height + 7
  const name = frame.scale.axis === 'time' ? 'time' : 'event'
  ctx.textAlign = 'right'
  ctx.fillText(name, plot.left - 7, y)
  let free = plot.left - 4
  ctx.textAlign = 'left'
  for (const { value, label } of ticks) {
    const width = ctx.measureText(label).width
    const right = plot.left + plot.width + 8
    const x = Math.min(xToPixel(frame, value) - width / 2, right - width)
    if (x < free) continue
    ctx.fillText(label, x, y)
    free = x + width + 10
  }
}

function xTicksOf({ window, plot, scale }: Frame): Tick[] {
  const target = plot.width / (plot.width < 500 ? 78 : 104)
  return (scale.axis === 'time' ? timeTicks : eventTicks)(window.x0, window.x1, target)
}

/** Deep in a big stack whole values do not fit beside the axis: then ticks are relative to a base, told above them. */
function yTicksOf({ ctx, window, plot }: Frame): { ticks: Tick[]; base: number } {
  const target = plot.height / TICK_HEIGHT
  const ticks = byteTicks(window.y0, window.y1, target)
  if (ticks.every(({ label }) => ctx.measureText(label).width <= plot.left - 10)) return { ticks, base: 0 }
  const round = 2 ** Math.ceil(Math.log2(window.y1 - window.y0))
  const base = Math.floor(window.y0 / round) * round
  const relative = byteTicks(window.y0 - base, window.y1 - base, target)
  return { ticks: relative.map(({ value, label }) => ({ value: value + base, label: `+${label}` })), base }
}

/** A whole number of bytes in parts: "27 GiB 513 MiB 64 KiB" */
function spellBytes(bytes: number): string {
  const parts: string[] = []
  let rest = bytes
  for (const [power, unit] of [[40, 'TiB'], [30, 'GiB'], [20, 'MiB'], [10, 'KiB'], [0, 'B']] as const) {
    const count = Math.floor(rest / 2 ** power)
    if (count > 0) parts.push(`${formatCount(count)} ${unit}`)
    rest -= count * 2 ** power
  }
  return parts.join(' ')
}
