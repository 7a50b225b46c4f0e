// Grid lines, ticks and labels of both axes.

import { formatCount } from '../../layout/format'
import { byteTicks, eventTicks, type Tick, timeTicks } from '../../layout/ticks'
import { type Frame, xToPixel, yToPixel } from './frame'

const TICK_HEIGHT = 44

export function drawAxes(frame: Frame): void {
  drawYAxis(frame)
  drawXAxis(frame)
}

/** Grid lines are drawn over the picture, too faint to be taken for borders of bands. */
function drawYAxis(frame: Frame): void {
  const {
    rects,
    plot,
    inks,
    strips: { left, top },
  } = frame
  const { ticks, base } = yTicksOf(frame)
  rects.ink(inks.grid.rgba)
  left.fillStyle = inks['ink-soft'].css
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
  top.fillStyle = inks['ink-soft'].css
  top.textAlign = 'left'
  top.textBaseline = 'middle'
  top.fillText(`${spellBytes(base)} +`, 4 - plot.left, -12)
}

function drawXAxis(frame: Frame): void {
  const {
    plot,
    inks,
    strips: { bottom },
    scale,
  } = frame
  bottom.fillStyle = inks['ink-soft'].css
  bottom.fillRect(-1, plot.height, plot.width + 1, 1)
  bottom.textBaseline = 'top'
  bottom.textAlign = 'right'
  const y = plot.height + 8
  bottom.fillText(frame.scene.info.events === 0 ? '' : scale.axis === 'time' ? 'time' : 'event', -9, y)
  bottom.textAlign = 'left'
  if (frame.scene.info.events === 0) {
    bottom.fillText('final state', 0, y)
    return
  }
  let free = -6
  for (const { value, label } of xTicksOf(frame)) {
    const x = xToPixel(frame, value)
    bottom.fillRect(Math.round(x), plot.height + 1, 1, 4)
    const width = bottom.measureText(label).width
    const start = Math.min(Math.max(x - width / 2, -5), plot.width + 6 - width)
    if (start < free) continue
    bottom.fillText(label, start, y)
    free = start + width + 12
  }
}

function xTicksOf({ window, plot, scale }: Frame): Tick[] {
  const target = plot.width / (plot.width < 500 ? 78 : 104)
  return (scale.axis === 'time' ? timeTicks : eventTicks)(window.x0, window.x1, target)
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
