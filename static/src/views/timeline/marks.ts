// The moments that matter: peak, out-of-memory errors, snapshots, and the one that the other views show. A line through
// the plot and a label above it.

import type { Rect } from '../../layout/viewport'
import { css } from '../shared/inks'
import { telling } from '../../data/own-frames'
import type { DeviceInfo } from '../../data/model'
import { atEvent, formatBytes, formatCount } from '../../layout/format'
import { capital } from '../../ui/format'
import { describeFrame, FRAMES_SHOWN, type Line } from '../shared/describe'
import { type Mark as SceneMark, peakName, type Scene } from '../shared/scene'
import { type Frame, xToPixel, yToPixel } from './frame'

/** Also the moment of the state, with what is allocated then. */
export type Mark = Omit<SceneMark, 'kind'> & { kind: SceneMark['kind'] | 'moment' }

/** The order in which labels are placed; the label of a failure always is. */
const RANK: Record<Mark['kind'], number> = { oom: 0, moment: 1, peak: 2, snapshot: 3 }
const INK = { moment: 'accent', peak: 'peak', oom: 'oom', snapshot: 'snapshot' } as const
const DASH = 4
const LABEL_Y = -14

/** The state after an event begins at its left edge, where its mark is. */
function markX(frame: Frame, mark: Mark): number {
  return xToPixel(frame, frame.scale.toAxis(mark.event))
}

function marksOf({ scene, moment }: Frame): Mark[] {
  if (moment === null || scene.info.events === 0) return scene.marks
  const event = Math.max(-1, Math.min(scene.info.events - 1, moment))
  if (scene.marks.some((mark) => mark.kind === 'oom' && mark.event === event)) return scene.marks
  return [...scene.marks, { kind: 'moment', event, bytes: scene.data?.allocated[event + 1] ?? NaN, free: NaN }]
}

export function drawMarks(frame: Frame): void {
  const { plot, inks } = frame
  const { top } = frame.strips
  top.textBaseline = 'middle'
  top.textAlign = 'left'
  const taken: [number, number][] = []
  let lastX = -Infinity
  const drawn: { mark: Mark; x: number }[] = []
  const visible = marksOf(frame)
    .map((mark) => ({ mark, x: markX(frame, mark) }))
    .filter(({ x }) => x >= -0.5 && x <= plot.width + 0.5)
    .sort((a, b) => rankOf(frame, a.mark) - rankOf(frame, b.mark) || a.x - b.x)
  for (const { mark, x } of visible) {
    // Hundreds of marks side by side would hide the picture: one line per four pixels is enough to see that they are there.
    if (mark.kind === 'peak' || mark.kind === 'moment' || Math.abs(x - lastX) >= 4) {
      drawn.push({ mark, x })
      lastX = x
    }
    const text = labelOf(mark, frame.scene)
    const width = top.measureText(text).width
    const start = placeLabel(
      x,
      width,
      plot.width,
      taken,
      visible.map((other) => other.x),
      mark.kind === 'oom' && taken.length === 0,
    )
    if (start === null) continue
    taken.push([Math.min(start, x) - 8, Math.max(start + width, x) + 8])
    top.fillStyle = css(inks[INK[mark.kind]])
    top.fillText(text, start, LABEL_Y)
  }
  // What matters most comes last: a snapshot is often taken at the failure itself.
  for (const { mark, x } of drawn.reverse()) drawMark(frame, mark, x)
}

function rankOf({ moment }: Frame, { kind, event }: Mark): number {
  return kind === 'oom' && event === moment ? -1 : RANK[kind]
}

/**
 * Left edge of a label beside its mark: to the right, or to the left where that is crowded; null when neither is free. One
 * that `must` be shown is put where it fits.
 */
function placeLabel(
  x: number,
  width: number,
  limit: number,
  taken: [number, number][],
  marks: number[],
  must: boolean,
): number | null {
  const free = [x + 7, x - 7 - width].filter(
    (start) =>
      start >= -20 && start + width <= limit + 14 && !taken.some(([low, high]) => start < high && start + width > low),
  )
  const crossed = (start: number): number =>
    marks.filter((other) => other !== x && other > start - 6 && other < start + width + 6).length
  free.sort((a, b) => Number(crossed(a) > 0) - Number(crossed(b) > 0))
  return free[0] ?? (must ? Math.max(-20, Math.min(limit + 14 - width, x - width / 2)) : null)
}

function drawMark(frame: Frame, mark: Mark, x: number): void {
  const { rects, plot, inks } = frame
  const { top } = frame.strips
  const ink = inks[INK[mark.kind]]
  rects.ink(ink, mark.kind === 'snapshot' ? 0.6 : 0.9)
  if (mark.kind === 'oom' || mark.kind === 'moment') rects.add(x - 0.5, 0, x + 0.5, plot.height)
  else for (let y = 0; y < plot.height; y += 2 * DASH) rects.add(x - 0.5, y, x + 0.5, y + DASH)
  // Shapes distinguish them where colours do not: a cross is a failure, an arrow any other moment.
  if (mark.kind === 'oom') {
    top.strokeStyle = css(ink)
    top.lineWidth = 2.5
    top.beginPath()
    top.moveTo(x - 4, -9)
    top.lineTo(x + 4, -1)
    top.moveTo(x + 4, -9)
    top.lineTo(x - 4, -1)
    top.stroke()
  } else {
    top.fillStyle = css(ink)
    top.beginPath()
    top.moveTo(x, 0)
    top.lineTo(x - 5, -8)
    top.lineTo(x + 5, -8)
    top.fill()
  }
  if (mark.kind !== 'peak') return
  const { drawn, isPart } = frame.scene
  const y = yToPixel(frame, isPart && drawn ? drawn.allocated[mark.event + 1] : mark.bytes)
  if (y < -4 || y > plot.height + 4) return
  rects.ink(inks.panel)
  addDot(frame, x, y, 5.5)
  rects.ink(ink)
  addDot(frame, x, y, 4)
}

/** A disc in rows of one pixel. */
function addDot({ rects }: Frame, x: number, y: number, radius: number): void {
  for (let row = -radius; row < radius; row++) {
    const half = Math.sqrt(radius ** 2 - (row + 0.5) ** 2)
    rects.add(x - half, y + row, x + half, y + row + 1)
  }
}

/** The mark whose arrow is under a place in the strip above the plot. */
export function markAt(frame: Frame, x: number, y: number): Mark | null {
  if (y > 0) return null
  let best: Mark | null = null
  let distance = 8
  for (const mark of marksOf(frame)) {
    const away = Math.abs(markX(frame, mark) - x)
    if (away < distance) {
      distance = away
      best = mark
    }
  }
  return best
}

function labelOf(mark: Mark, { info, isChanged }: Scene): string {
  if (mark.kind === 'peak') return `${isChanged ? 'recorded ' : ''}${peakName(info)} ${formatBytes(mark.bytes)}`
  if (mark.kind === 'oom') return mark.bytes > 0 ? `OOM: ${formatBytes(mark.bytes)} requested` : 'OOM'
  return mark.kind
}

/** A mark for the tooltip. */
export function describeMark({ data, stacks, info }: Scene, mark: Mark): Line[] {
  if (mark.kind !== 'oom') {
    const lines: Line[] = [{ kind: 'plain', text: sentenceOf(mark, info) }]
    const counted = formatBytes(info.counted_bytes ?? 0)
    const lost = `PyTorch counted ${formatBytes(info.lost_peak_bytes ?? 0)} before the first event`
    const rounded = `torch.cuda.max_memory_allocated() would report ${counted}: it counts rounded blocks`
    if (mark.kind === 'peak' && info.lost_peak_bytes !== undefined) lines.push({ kind: 'soft', text: lost })
    else if (mark.kind === 'peak' && info.counted_bytes !== undefined) lines.push({ kind: 'soft', text: rounded })
    return lines
  }
  const row = data ? data.other.event.indexOf(mark.event) : -1
  const frames = stacks && row >= 0 ? telling(stacks, data!.other.stack[row], FRAMES_SHOWN) : []
  const free = Number.isNaN(mark.free) ? '' : `, ${formatBytes(mark.free)} free on the device`
  return [
    { kind: 'title', text: `Out of memory: ${formatBytes(mark.bytes)} requested` },
    ...frames.map((frame) => ({ kind: 'frame', text: describeFrame(frame) }) as const),
    { kind: 'plain', text: `event ${formatCount(mark.event)}${free}` },
    { kind: 'soft', text: 'Click for the whole stack trace and what was allocated' },
  ]
}

function sentenceOf(mark: Mark, info: DeviceInfo): string {
  const at = atEvent(mark.event)
  if (mark.kind === 'peak') return `${capital(peakName(info))}: ${formatBytes(mark.bytes)} allocated ${at}`
  if (mark.kind === 'snapshot') return `Snapshot taken ${at}`
  const allocated = Number.isNaN(mark.bytes) ? '' : `, ${formatBytes(mark.bytes)} allocated`
  return `Moment of the other views: ${at.replace('at ', '')}${allocated}. Press M or Shift-click to set it`
}

/** A block in pixels of the plot, cut at its edges. */
export interface FailedRequest extends Rect {
  event: number
  bytes: number
  /** It continues above the plot. */
  isCut: boolean
}

/** An event is usually thinner than a pixel; its failed request must be visible and clickable. */
const MIN_WIDTH = 44
const MIN_HEIGHT = 6
/** Failures closer together are one block's width apart or left out. */
const MOST = 8
const STRIPE = 9
/** Height of the steps that a stripe is made of, in CSS pixels. */
const STEP = 1.5

export function failedRequests(frame: Frame): FailedRequest[] {
  const { scene, scale, plot, window } = frame
  const found: FailedRequest[] = []
  let free = -Infinity
  if (scene.isPart) return found
  for (const { event, requested: recorded, allocated } of scene.info.ooms) {
    const requested = scene.requests?.get(event) ?? recorded
    const x = scale.toAxis(event)
    if (found.length === MOST || x > window.x1) break
    const below = scene.drawn?.allocated[event + 1] ?? allocated
    const left = xToPixel(frame, x)
    if (requested <= 0 || below === undefined || left < free) continue
    const right = Math.max(left + MIN_WIDTH, xToPixel(frame, scale.toAxis(event + 1)))
    const bottom = yToPixel(frame, below)
    const top = Math.min(yToPixel(frame, below + requested), bottom - MIN_HEIGHT)
    if (right <= 0 || bottom <= 0 || top >= plot.height) continue
    free = right + 4
    found.push({
      event,
      bytes: requested,
      x0: Math.max(0, left),
      x1: Math.min(plot.width, right),
      y0: Math.max(0, top),
      y1: Math.min(plot.height, bottom),
      isCut: top < 0,
    })
  }
  return found
}

export function drawFailedRequests(frame: Frame, blocks: readonly FailedRequest[]): void {
  const { rects, inks } = frame
  for (const { x0, x1, y0, y1, isCut } of blocks) {
    rects.ink(inks.panel, 0.72)
    rects.add(x0, y0, x1, y1)
    rects.ink(inks.oom, 0.6)
    // A stripe leans to the right: its steps are small enough to look like a line.
    for (let y = y0; y < y1; y += STEP) {
      const phase = (x0 + y1 - y) % STRIPE
      for (let x = x0 + STRIPE - phase - 3; x < x1; x += STRIPE) {
        const from = Math.max(x0, x)
        const to = Math.min(x1, x + 3)
        if (to > from) rects.add(from, y, to, Math.min(y1, y + STEP))
      }
    }
    rects.ink(inks.oom)
    if (!isCut) rects.add(x0, y0, x1, y0 + 1.5)
    rects.add(x0, y1 - 1.5, x1, y1)
    rects.add(x1 - 1.5, y0, x1, y1)
    rects.add(x0, y0, x0 + 1.5, y1)
  }
}

export function failedRequestAt(blocks: readonly FailedRequest[], x: number, y: number): FailedRequest | null {
  return blocks.find((block) => x >= block.x0 && x <= block.x1 && y >= block.y0 && y <= block.y1) ?? null
}
