// Spans of events with a name: annotated regions, steps, and runs of allocations with the same compile context or
// metadata. Packed into tracks: rows in which no span covers another.

import type { DeviceData, DeviceInfo } from '../data/model'
import { ranges, stepRanges } from './steps'

/** Bits of `ragged`, as snapreport/report/span_columns.py writes them: an end of a span is not recorded. */
export const RAGGED_START = 1
export const RAGGED_END = 2

export type TrackKind = 'step' | 'annotation' | 'cost' | 'operator' | 'kernel' | 'context' | 'metadata'

/** Spans of one row, ascending and without overlap. All arrays have a value for each span. */
export interface Track {
  kind: TrackKind
  /** The row's label. */
  title: string
  names: readonly string[]
  /** Index into names. */
  name: ArrayLike<number>
  first: Int32Array
  /** Inclusive; first - 1 where a span holds no event. */
  last: Int32Array
  ragged: ArrayLike<number> | null
  /** µs since info.time0, where the spans have times of their own; NaN at a ragged end. */
  startUs: Float64Array | null
  endUs: Float64Array | null
  /** Where each lies between events, on either axis; of activities, most of which hold no event. */
  places?: { from: Float64Array; to: Float64Array }
  /** Activities that one span stands for. */
  counts?: ArrayLike<number>
}

/**
 * The tracks of a device, from the outermost inwards; `activities`: those of a profiler's trace. Contexts and metadata come with the columns; that there will be such
 * rows is known before, so that their room can be reserved.
 */
export function tracksOf(info: DeviceInfo, data: DeviceData | null, activities: readonly Track[] = []): Track[] {
  const tracks: Track[] = []
  const steps = stepRanges(info)
  if (steps)
    tracks.push(
      plain(
        'step',
        'Steps',
        steps.names,
        Int32Array.from(steps.names, (_, i) => i),
        steps.first,
        steps.last,
      ),
    )
  tracks.push(
    ...annotationTracks(
      info,
      steps?.source === 'annotation' ? new Set(steps.names.map((name, i) => `${steps.first[i]} ${name}`)) : null,
    ),
    ...activities,
  )
  if (info.contexts.some(Boolean))
    tracks.push(
      data
        ? runs('context', 'Compile contexts', info.contexts, data.context, data.start)
        : nothing('context', 'Compile contexts'),
    )
  // Names of tensors do not say what the program did at a moment.
  if (info.metadata.some(Boolean) && !info.names_only)
    tracks.push(
      data
        ? runs('metadata', 'User metadata', info.metadata, data.metadata, data.start)
        : nothing('metadata', 'User metadata'),
    )
  return tracks
}

/** `shown`: "first name" of spans that have a row of their own already. */
function annotationTracks(info: DeviceInfo, shown: ReadonlySet<string> | null): Track[] {
  const raw = info.spans
  if (!raw) return []
  const { first, last } = ranges(raw.first, raw.events)
  const count = first.length
  const startUs = raw.start_us && info.time0 !== null ? runningSum(raw.start_us) : null
  const endUs = startUs && Float64Array.from(startUs, (start, i) => start + raw.us![i])
  // The ends that are not recorded have no time.
  for (let i = 0; raw.ragged && startUs && endUs && i < count; i++) {
    if (raw.ragged[i] & RAGGED_START) startUs[i] = NaN
    if (raw.ragged[i] & RAGGED_END) endUs[i] = NaN
  }
  const visible: number[] = []
  for (let i = 0; i < count; i++) if (!shown?.has(`${first[i]} ${raw.names[raw.name[i]]}`)) visible.push(i)
  const depth = visible.length === count ? raw.depth : packed(visible, { first, last, startUs, endUs })
  const rows: number[][] = []
  for (const i of visible) (rows[depth[i]] ??= []).push(i)
  return rows.map((row, at) => {
    const of = <T>(array: ArrayLike<T>): T[] => row.map((i) => array[i])
    return {
      kind: 'annotation' as const,
      title: at === 0 ? 'Annotations' : `Annotations inside annotations, ${at} deep`,
      names: raw.names,
      name: of(raw.name),
      first: Int32Array.from(of(first)),
      last: Int32Array.from(of(last)),
      ragged: raw.ragged ? of(raw.ragged) : null,
      startUs: startUs && Float64Array.from(of(startUs)),
      endUs: endUs && Float64Array.from(of(endUs)),
    }
  })
}

/** Rows for some of the spans, outer ones first: the lowest row whose last span is over. By span. */
function packed(
  kept: readonly number[],
  { first, last, startUs, endUs }: Pick<Track, 'first' | 'last' | 'startUs' | 'endUs'>,
): Int32Array {
  const depth = new Int32Array(first.length)
  /** Last span of each row. */
  const latest: number[] = []
  const isOver = (before: number, i: number): boolean =>
    startUs && endUs && !Number.isNaN(endUs[before]) && !Number.isNaN(startUs[i])
      ? endUs[before] <= startUs[i]
      : last[before] < first[i]
  for (const i of kept) {
    let row = 0
    while (row < latest.length && !isOver(latest[row], i)) row++
    latest[row] = i
    depth[i] = row
  }
  return depth
}

/** Stretches of allocations, in the order of their births, that have the same text; those without one end a stretch. */
export function runs(
  kind: TrackKind,
  title: string,
  names: readonly string[],
  text: ArrayLike<number>,
  start: Int32Array,
): Track {
  const name: number[] = []
  const first: number[] = []
  const last: number[] = []
  let before = 0
  for (let id = 0; id < text.length; id++) {
    const event = start[id] - 1
    if (event < 0) continue
    const here = names[text[id]] ? text[id] : 0
    if (here !== 0 && here !== before) {
      name.push(here)
      first.push(event)
      last.push(event)
    } else if (here !== 0) last[last.length - 1] = event
    before = here
  }
  return plain(kind, title, names, name, Int32Array.from(first), Int32Array.from(last))
}

function plain(
  kind: TrackKind,
  title: string,
  names: readonly string[],
  name: ArrayLike<number>,
  first: Int32Array,
  last: Int32Array,
): Track {
  return { kind, title, names, name, first, last, ragged: null, startUs: null, endUs: null }
}

export function nothing(kind: TrackKind, title: string): Track {
  return plain(kind, title, [], [], new Int32Array(0), new Int32Array(0))
}

function runningSum(differences: readonly number[]): Float64Array {
  const out = new Float64Array(differences.length)
  let sum = 0
  for (let i = 0; i < out.length; i++) out[i] = sum += differences[i]
  return out
}
