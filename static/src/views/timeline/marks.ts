// The moments that matter: peak, out-of-memory errors, snapshots. A line through the plot and a label above it.

import { formatBytes, formatCount } from '../../layout/format'
import { type Frame, xToPixel, yToPixel } from './frame'
import type { Mark } from './scene'

const RANK: Record<Mark['kind'], number> = { peak: 0, oom: 1, snapshot: 2 }

/** Where the state after an event begins: a mark stands at the left edge of its position. */
function markX(frame: Frame, mark: Mark): number {
  return xToPixel(frame, frame.scale.toAxis(mark.event))
}

export function drawMarks(frame: Frame): void {
  const { ctx, plot, scene, inks } = frame
  ctx.font = frame.font
  ctx.textBaseline = 'middle'
  ctx.textAlign = 'left'
  const taken: [number, number][] = []
  let lastX = -Infinity
  const visible = scene.marks
    .map((mark) => ({ mark, x: markX(frame, mark) }))
    .filter(({ x }) => x >= plot.left - 0.5 && x <= plot.left + plot.width + 0.5)
    .sort((a, b) => RANK[a.mark.kind] - RANK[b.mark.kind] || a.x - b.x)
  for (const { mark, x } of visible) {
    const color = inks[mark.kind]
    // Hundreds of marks side by side would hide the picture: one line per four pixels is enough to see that they are there.
    if (mark.kind === 'peak' || Math.abs(x - lastX) >= 4) {
      drawMarkLine(frame, mark, x, color)
      lastX = x
    }
    const text = labelOf(mark)
    const width = ctx.measureText(text).width
    const at = Math.min(Math.max(x + 6, plot.left), plot.left + plot.width - width)
    const start = x + 6 + width > plot.left + plot.width ? x - 6 - width : at
    if (taken.some(([low, high]) => start < high && start + width > low)) continue
    taken.push([start - 8, start + width + 8])
    ctx.fillStyle = color
    ctx.fillText(text, start, plot.top - 11)
  }
}

function drawMarkLine(frame: Frame, mark: Mark, x: number, color: string): void {
  const { ctx, plot } = frame
  const at = Math.round(x) + 0.5
  ctx.strokeStyle = color
  ctx.fillStyle = color
  ctx.lineWidth = 1
  ctx.setLineDash(mark.kind === 'oom' ? [] : [3, 3])
  ctx.globalAlpha = mark.kind === 'snapshot' ? 0.6 : 0.9
  ctx.beginPath()
  ctx.moveTo(at, plot.top)
  ctx.lineTo(at, plot.top + plot.height)
  ctx.stroke()
  ctx.setLineDash([])
  ctx.globalAlpha = 1
  ctx.beginPath()
  ctx.moveTo(at, plot.top)
  ctx.lineTo(at - 4, plot.top - 6)
  ctx.lineTo(at + 4, plot.top - 6)
  ctx.fill()
  if (mark.kind !== 'peak') return
  const y = yToPixel(frame, mark.bytes)
  if (y < plot.top || y > plot.top + plot.height) return
  ctx.beginPath()
  ctx.arc(at, y, 4, 0, 2 * Math.PI)
  ctx.fill()
  ctx.strokeStyle = frame.inks.panel
  ctx.lineWidth = 1.5
  ctx.stroke()
}

/** The mark whose arrow is under the pointer. */
export function markAt(frame: Frame, x: number, y: number): Mark | null {
  if (y > frame.plot.top) return null
  let best: Mark | null = null
  let distance = 7
  for (const mark of frame.scene.marks) {
    const away = Math.abs(markX(frame, mark) - x)
    if (away < distance) {
      distance = away
      best = mark
    }
  }
  return best
}

function labelOf(mark: Mark): string {
  if (mark.kind === 'peak') return `peak ${formatBytes(mark.bytes)}`
  if (mark.kind === 'oom') return mark.bytes > 0 ? `OOM, asked ${formatBytes(mark.bytes)}` : 'OOM'
  return 'snapshot'
}

/** A mark in a sentence, for the tooltip. */
export function describeMark(mark: Mark): string {
  const at = mark.event < 0 ? 'before the first event' : `at event ${formatCount(mark.event)}`
  if (mark.kind === 'peak') return `Peak: ${formatBytes(mark.bytes)} allocated ${at}`
  if (mark.kind === 'snapshot') return `Snapshot taken ${at}`
  const asked = mark.bytes > 0 ? `, ${formatBytes(mark.bytes)} asked for` : ''
  const free = Number.isNaN(mark.free) ? '' : `, ${formatBytes(mark.free)} free on the device`
  return `Out of memory ${at}${asked}${free}`
}
