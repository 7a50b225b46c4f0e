// Descriptions of what is at a place of the timeline: for the tooltip, the live text and the axes.

import type { OomEntry } from '../../data/contracts'
import { oomFigures } from '../../data/manifest'
import type { DeviceData, Frame, Stacks } from '../../data/model'
import { telling } from '../../data/own-frames'
import { formatAddress, formatBytes, formatCount, formatDuration, formatMoment } from '../../layout/format'
import { formatOffset, isDate, plural } from '../../ui/format'
import type { Column } from './column'
import type { Scene } from './scene'

/** What is under the pointer. */
export interface Hit {
  column: Column
  /** Allocation id; -1 above the stack. */
  id: number
}

/** Of the program's own frames, so many are named where there is no room for a whole stack. */
export const FRAMES_SHOWN = 3

export interface Line {
  text: string
  kind: 'title' | 'frame' | 'plain' | 'soft'
}

export function describeHit(scene: Scene, hit: Hit): Line[] {
  const data = scene.data
  if (!data) return []
  const lines: Line[] = []
  if (hit.id >= 0) lines.push(...describeAllocation(scene, data, hit.id))
  lines.push(...describeColumn(data, hit.column, hit.id < 0))
  return lines
}

function describeAllocation(scene: Scene, data: DeviceData, id: number): Line[] {
  const { info } = scene
  const pool = info.pools[data.pool[id]]
  return [
    { kind: 'title', text: `${formatBytes(data.size[id])}  ·  ${formatAddress(data.addrHi[id], data.addrLo[id])}` },
    ...framesOf(scene.stacks, data.stack[id]),
    { kind: 'plain', text: describeLifetime(data, id) },
    {
      kind: 'soft',
      text: [
        `stream ${info.streams[data.stream[id]] ?? '?'}`,
        pool && `pool ${pool}`,
        info.categories[data.category[id]],
      ]
        .filter(Boolean)
        .join(' · '),
    },
  ]
}

/** The innermost own frames of a stack, a line each; one that says so where none was recorded. */
export function framesOf(stacks: Stacks | null, stack: number): Line[] {
  const frames = stacks ? telling(stacks, stack, FRAMES_SHOWN) : []
  if (frames.length === 0) return [{ kind: 'frame', text: 'no stack trace recorded' }]
  return frames.map((frame, i) => ({
    kind: 'frame',
    text: i === 0 ? nameOfStack(stacks!, stack) : describeFrame(frame),
  }))
}

/** The same frames in one line, innermost first; null for an empty stack. */
export function framesLine(stacks: Stacks, stack: number): string | null {
  const frames = telling(stacks, stack, FRAMES_SHOWN)
  return frames.length ? [nameOfStack(stacks, stack), ...frames.slice(1).map(describeFrame)].join('  ←  ') : null
}

/** The name of a stack, and the program's line that launched it; null for an empty one. */
export function describeStack(stacks: Stacks | null, stack: number): string | null {
  if (!stacks?.top(stack)) return null
  const launcher = stacks.launcher(stack)
  const name = nameOfStack(stacks, stack)
  return launcher ? `${name} from ${launcher.file}:${launcher.line}` : name
}

/** "forward  dit.py:125 · linear": the frame that names a stack, and the operator that tells it from others of the line. */
export function nameOfStack(stacks: Stacks, stack: number): string {
  const top = stacks.top(stack)
  if (!top) return 'no stack trace'
  const operator = stacks.operator(stack)
  return operator ? `${describeFrame(top)} · ${operator}` : describeFrame(top)
}

/** Callers in a tooltip, which is written with every row that comes into sight. */
const MOST_CALLERS = 8

/** The name of a stack and its nearest callers in Python, innermost first; "…" for those farther out. */
export function wholeStack(stacks: Stacks, stack: number): string[] {
  const { leaf, caller, frameOf, frame } = stacks.trie
  const top = stacks.top(stack)
  const names = [nameOfStack(stacks, stack)]
  let node = leaf[stack]
  while (top && node >= 0 && frame(frameOf[node]) !== top) node = caller[node]
  for (node = caller[node] ?? -1; node >= 0; node = caller[node]) {
    const { python, noise } = frame(frameOf[node])
    if (!python || noise) continue
    if (names.length > MOST_CALLERS) return [...names, '…']
    names.push(describeFrame(frame(frameOf[node])))
  }
  return names
}

/** The request of an event: an allocation, or one that failed. */
export function requestAt(data: DeviceData, event: number): { size: number; stack: number } {
  const row = data.other.event.indexOf(event)
  if (row >= 0) return { size: data.other.size[row], stack: data.other.stack[row] }
  const id = data.start.indexOf(event + 1)
  return { size: data.size[id] ?? 0, stack: data.stack[id] ?? 0 }
}

export function describeFrame(frame: Frame): string {
  return frame.line > 0 || frame.filename ? `${frame.name || '?'}  ${frame.file}:${frame.line}` : frame.name || '?'
}

/** "event 12 → event 80, 68 events, 1.20 ms" and its open-ended forms. */
export function describeLifetime(data: DeviceData, id: number): string {
  if (data.n === 0) return 'alive in the final state'
  const from = data.start[id] === 0 ? 'before the trace' : `event ${formatCount(data.start[id] - 1)}`
  const to = isAlive(data, id) ? 'alive at the end' : `event ${formatCount(data.end[id] - 1)}`
  return `${from} → ${to}, ${describeSpan(data, id)}`
}

/** "68 events, 1.20 ms"; "at least …" where one end lies outside the trace. */
export function describeSpan(data: DeviceData, id: number): string {
  const alive = isAlive(data, id)
  const events = plural((alive ? data.n : data.end[id] - 1) - Math.max(0, data.start[id] - 1), 'event')
  const live = lifetimeUs(data, id)
  return `${data.start[id] === 0 || alive ? 'at least ' : ''}${events}${live === null ? '' : `, ${formatDuration(live)}`}`
}

/** At the end of the trace. */
function isAlive(data: DeviceData, id: number): boolean {
  return data.end[id] === data.P
}

/** µs from its alloc to its free, or as far as the trace reaches; null without times. */
function lifetimeUs(data: DeviceData, id: number): number | null {
  if (!data.timeUs || data.n === 0) return null
  const from = data.timeUs[Math.max(0, data.start[id] - 1)]
  const to = data.timeUs[isAlive(data, id) ? data.n - 1 : data.end[id] - 1]
  return Math.max(0, to - from)
}

function describeColumn(data: DeviceData, column: Column, totals: boolean): Line[] {
  const { s, from, to } = column
  const lines: Line[] = []
  const position =
    data.n === 0
      ? 'final state'
      : s === 0
        ? 'before the first event'
        : `event ${formatCount(s - 1)}${momentOf(data, s)}`
  if (totals) {
    lines.push({ kind: 'title', text: `${formatBytes(data.allocated[s])} allocated` })
    if (data.reserved[s] > 0) lines.push({ kind: 'plain', text: `${formatBytes(data.reserved[s])} reserved` })
  }
  if (to - from > 1) {
    lines.push({
      kind: 'soft',
      text: `column of ${formatCount(to - from)} events (${formatCount(from - 1)} – ${formatCount(to - 2)}), shown at its greatest: ${position}`,
    })
  } else {
    lines.push({ kind: 'soft', text: position })
  }
  return lines
}

function momentOf(data: DeviceData, s: number): string {
  return data.timeUs && s > 0 ? `, ${formatOffset(data.timeUs[s - 1])}` : ''
}

/** A moment with the recorder's clock where it is a date: "+1.234567 s (2026-01-31 … UTC)". */
export function describeMoment(scene: Scene, event: number): string | null {
  const data = scene.data
  if (!data?.timeUs || event < 0 || event >= data.n) return null
  const since = data.timeUs[event]
  const clock = (scene.info.time0 ?? 0) + since
  return isDate(clock) ? `${formatOffset(since)} (${formatMoment(clock)})` : formatOffset(since)
}

/** One line for the live text: size, stack top, lifetime. */
export function describeHeadline(scene: Scene, id: number): string {
  const data = scene.data!
  const name = describeStack(scene.stacks, data.stack[id])
  return `${formatBytes(data.size[id])}, ${name ?? 'no stack trace'}, ${describeLifetime(data, id)}`
}

/** The window in words: its events and the greatest allocated bytes in it. `x` in events, null for all. */
export function describeWindow(scene: Scene, x: readonly [number, number] | null): string {
  const [from, to] = x ?? [-1, scene.info.events]
  const text = x
    ? `events ${formatCount(Math.ceil(from))} to ${formatCount(Math.floor(to))}`
    : `all ${plural(scene.info.events, 'event')}`
  if (!scene.data || !scene.allocatedMax) return text
  const [low, high] = scene.positions('event', from, to)
  return `${text}, at most ${formatBytes(scene.allocatedMax.max(low, high))} allocated`
}

/** "Out of memory: 4.94 GiB requested (4.96 GiB segment), 91.3 MiB free on the device, 1.02 GiB cached and usable, …" */
export function describeOom(oom: OomEntry): string {
  const { requested } = oom
  const figures = oomFigures(oom)
  const words = `Out of memory: ${formatBytes(requested)} requested`
  if (!figures) return words
  const { segment, device_free, usable, largest_usable, shortfall } = figures
  const parts = [
    segment !== null && segment !== requested ? `${words} (${formatBytes(segment)} segment)` : words,
    device_free === null ? null : `${formatBytes(device_free)} free on the device`,
    usable > 0
      ? `${formatBytes(usable)} cached and usable, largest block ${formatBytes(largest_usable)}`
      : 'nothing cached and usable',
    shortfall > 0 ? `${formatBytes(shortfall)} short in total` : null,
  ]
  return parts.filter((part) => part !== null).join(', ')
}
