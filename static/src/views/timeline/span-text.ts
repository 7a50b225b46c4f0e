// A span of a track, in words: for the tooltip and for screen readers.

import { atEvent, formatBytes, formatCount, formatDuration } from '../../layout/format'
import { RAGGED_END, RAGGED_START, type Track } from '../../steps/spans'
import { plural } from '../../ui/format'
import type { Line } from '../shared/describe'
import type { Scene } from '../shared/scene'

/** Spans [from, to] of a row, drawn as one rectangle. */
export interface Piece {
  x0: number
  x1: number
  from: number
  to: number
}

const NAMES_SHOWN = 4

export const KIND_WORDS: Record<Track['kind'], string> = {
  step: 'step',
  annotation: 'annotation',
  cost: 'what memory costs in time, by the profiler',
  operator: 'outermost operators of a thread, by the profiler',
  kernel: 'kernels and copies of a stream, by the profiler',
  context: 'compile context',
  metadata: 'user metadata',
}

/** Several of each kind. */
export const WHAT: Record<Track['kind'], string> = {
  step: 'spans',
  annotation: 'spans',
  cost: 'costs',
  operator: 'operators',
  kernel: 'kernels',
  context: 'spans',
  metadata: 'spans',
}

/** How many spans, or activities, [from, to] stand for. */
export function countOf({ counts }: Track, from: number, to: number): number {
  if (!counts) return to - from + 1
  let sum = 0
  for (let i = from; i <= to; i++) sum += counts[i]
  return sum
}

export function nameOf(track: Track, i: number): string {
  return track.names[track.name[i]] || '(no name)'
}

/** Memory during a span. Positions first … last + 1: the state in force as it begins counts. */
export interface SpanFacts {
  /** µs; null where a time is not known. */
  us: number | null
  peakBytes: number
  peakEvent: number
  growth: number
}

/** Null before the columns have arrived. */
export function factsOf(scene: Scene, track: Track, i: number): SpanFacts | null {
  const { data, allocatedMax } = scene
  if (!data || !allocatedMax) return null
  const first = track.first[i]
  const last = track.last[i]
  const peak = allocatedMax.argmax(first, last + 2)
  return {
    us: durationOf(scene, track, i),
    peakBytes: data.allocated[peak],
    peakEvent: peak - 1,
    growth: data.allocated[last + 1] - data.allocated[first],
  }
}

/** Between its own times where it has them, else from its first event to its last. */
function durationOf({ data, hasTimes }: Scene, track: Track, i: number): number | null {
  const own = track.startUs && track.endUs ? track.endUs[i] - track.startUs[i] : NaN
  if (!Number.isNaN(own)) return own
  if (!hasTimes || track.last[i] < track.first[i]) return null
  const clock = data?.clockUs
  return clock ? clock[track.last[i]] - clock[track.first[i]] : null
}

export function describePiece(scene: Scene, track: Track, { from, to }: Piece): Line[] {
  if (countOf(track, from, to) > 1) return track.counts ? describeBrief(track, from, to) : describeMany(track, from, to)
  const first = track.first[from]
  const last = track.last[from]
  const facts = factsOf(scene, track, from)
  const lines: Line[] = [{ kind: 'title', text: nameOf(track, from) }]
  const where =
    last < first
      ? `no event, before event ${formatCount(first)}`
      : `${last > first ? `events ${formatCount(first)} – ${formatCount(last)}` : `event ${formatCount(first)}`}, ${plural(last - first + 1, 'event')}`
  lines.push({ kind: 'plain', text: [where, facts?.us != null && formatDuration(facts.us)].filter(Boolean).join(', ') })
  if (facts) {
    lines.push({ kind: 'plain', text: `peak ${formatBytes(facts.peakBytes)} allocated ${atEvent(facts.peakEvent)}` })
    lines.push({
      kind: 'plain',
      text: `${facts.growth > 0 ? '+' : ''}${formatBytes(facts.growth)} from its beginning to its end`,
    })
  }
  const ragged = track.ragged?.[from] ?? 0
  if (ragged & RAGGED_START)
    lines.push({ kind: 'soft', text: 'Its start was not recorded: drawn from the beginning of the trace.' })
  if (ragged & RAGGED_END)
    lines.push({ kind: 'soft', text: 'Its end was not recorded: drawn to the end of the trace.' })
  lines.push({ kind: 'soft', text: KIND_WORDS[track.kind] })
  return lines
}

/** Several spans too close to be distinguished: how many, and the most frequent names. */
function describeMany(track: Track, from: number, to: number): Line[] {
  const counts = new Map<string, number>()
  for (let i = from; i <= to; i++) counts.set(nameOf(track, i), (counts.get(nameOf(track, i)) ?? 0) + 1)
  const names = [...counts].sort((a, b) => b[1] - a[1])
  const lines: Line[] = [{ kind: 'title', text: `${formatCount(to - from + 1)} spans, too close to be told apart` }]
  for (const [name, count] of names.slice(0, NAMES_SHOWN))
    lines.push({ kind: 'plain', text: `${formatCount(count)} × ${name}` })
  if (names.length > NAMES_SHOWN)
    lines.push({ kind: 'soft', text: `and ${plural(names.length - NAMES_SHOWN, 'other name')}` })
  lines.push({
    kind: 'soft',
    text: `events ${formatCount(track.first[from])} – ${formatCount(track.last[to])}; a click zooms in`,
  })
  return lines
}

/** Activities that are drawn as one: how many, how long all of them, and those that take most of it. */
function describeBrief(track: Track, from: number, to: number): Line[] {
  const spent = new Map<string, number>()
  const [start, end] = [track.startUs!, track.endUs!]
  for (let i = from; i <= to; i++)
    spent.set(nameOf(track, i), (spent.get(nameOf(track, i)) ?? 0) + Math.max(0, end[i] - start[i]))
  const names = [...spent].sort((a, b) => b[1] - a[1]).slice(0, NAMES_SHOWN)
  return [
    { kind: 'title', text: `${formatCount(countOf(track, from, to))} ${WHAT[track.kind]}, too short to be told apart` },
    ...names.map(([name]): Line => ({ kind: 'plain', text: name })),
    { kind: 'soft', text: `within ${formatDuration(end[to] - start[from])}, the longest first; a click zooms in` },
  ]
}

/** The problems of a device's annotations, in a sentence; "" where there are none. */
export function describeBroken(scene: Scene): string {
  const { broken_annotations: broken } = scene.info
  if (!broken) return ''
  const words: [number | undefined, string][] = [
    [broken.unpaired_starts, 'without an end'],
    [broken.unpaired_ends, 'without a start'],
    [broken.untimed, 'without a time'],
    [broken.unknown_stage, 'that are neither start nor end'],
    [broken.outside, 'outside the trace'],
    [broken.without_allocation, 'of memory that is not allocated'],
  ]
  const told = words.filter(([count]) => count).map(([count, text]) => `${formatCount(count!)} ${text}`)
  return told.length ? `Broken annotations: ${told.join(', ')}.` : ''
}
