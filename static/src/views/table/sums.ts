// Sums over allocations: per group, and over all. Exact: whole numbers below 2**53.

import type { DeviceData } from '../../data/model'
import type { Groups } from './grouping'

/** Arrays have a value for each group. Only allocations that count (see `mask`) are in them. */
export interface Sums {
  count: Float64Array
  /** Bytes of all, live or not. */
  bytes: Float64Array
  /** Bytes live at the peak. */
  peak: Float64Array
  /** Events from birth to end, or as far as the trace reaches. */
  events: Float64Array
  /** The same in µs; null without times. */
  us: Float64Array | null
  /** Those with an end outside the trace: their lifetimes are at least the counted ones. */
  open: Float64Array
  /** Those that match the query, whether or not only they count. */
  matching: Float64Array
  /** The oldest allocation; -1 where there is none. */
  first: Int32Array
}

export interface LiveSums {
  count: Float64Array
  bytes: Float64Array
}

/** `mask`: 1 for allocations that count; null: all. `matched`: 1 for what matches the query. O(N). */
export function sumsOf(
  data: DeviceData,
  { count: groups, of }: Groups,
  mask: Uint8Array | null,
  matched: Uint8Array | null,
): Sums {
  const { N, P, start, end, size } = data
  const peakAt = data.info.peak_event + 1
  const timeUs = data.n > 0 ? data.timeUs : null
  const make = (): Float64Array => new Float64Array(groups)
  const sums: Sums = {
    count: make(),
    bytes: make(),
    peak: make(),
    events: make(),
    us: timeUs && make(),
    open: make(),
    matching: make(),
    first: new Int32Array(groups).fill(-1),
  }
  for (let id = 0; id < N; id++) {
    if (mask && mask[id] === 0) continue
    const group = of[id]
    if (sums.count[group]++ === 0) sums.first[group] = id
    sums.bytes[group] += size[id]
    if (start[id] <= peakAt && end[id] > peakAt) sums.peak[group] += size[id]
    sums.events[group] += eventsLived(data, id)
    if (sums.us) sums.us[group] += usLived(data, timeUs!, id)
    if (start[id] === 0 || end[id] === P) sums.open[group]++
    if (!matched || matched[id]) sums.matching[group]++
  }
  return sums
}

/** What is live at a position, by group. O(N). */
export function liveSumsOf(
  { N, start, end, size }: DeviceData,
  { count: groups, of }: Groups,
  mask: Uint8Array | null,
  position: number,
): LiveSums {
  const live = { count: new Float64Array(groups), bytes: new Float64Array(groups) }
  for (let id = 0; id < N; id++) {
    if (start[id] > position || end[id] <= position || (mask && mask[id] === 0)) continue
    live.count[of[id]]++
    live.bytes[of[id]] += size[id]
  }
  return live
}

/** The category of most of a group's bytes at the peak, or of all its bytes where none of it is live there; -1: of an empty group. O(N). */
export function mainCategories(
  { N, start, end, size, category, info }: DeviceData,
  { count: groups, of }: Groups,
  mask: Uint8Array | null,
): Int32Array {
  const kinds = info.categories.length
  const peakAt = info.peak_event + 1
  const [atPeak, inAll] = [new Float64Array(groups * kinds), new Float64Array(groups * kinds)]
  for (let id = 0; id < N; id++) {
    if (mask && mask[id] === 0) continue
    const at = of[id] * kinds + category[id]
    inAll[at] += size[id]
    if (start[id] <= peakAt && end[id] > peakAt) atPeak[at] += size[id]
  }
  return Int32Array.from({ length: groups }, (_, group) => {
    let main = -1
    for (const bytes of [atPeak, inAll]) {
      let most = 0
      for (let kind = 0; main < 0 && kind < kinds; kind++) most = Math.max(most, bytes[group * kinds + kind])
      if (main < 0 && most > 0) main = bytes.indexOf(most, group * kinds) - group * kinds
    }
    return main
  })
}

/** Events from its birth to its end, as far as the trace shows. */
export function eventsLived({ start, end, n, P }: DeviceData, id: number): number {
  return (end[id] === P ? n : end[id] - 1) - Math.max(0, start[id] - 1)
}

/** The same in µs; the trace must hold an event. */
export function usLived({ start, end, n, P }: DeviceData, timeUs: ArrayLike<number>, id: number): number {
  return Math.max(0, timeUs[end[id] === P ? n - 1 : end[id] - 1] - timeUs[Math.max(0, start[id] - 1)])
}

export function total(values: Float64Array): number {
  let sum = 0
  for (const value of values) sum += value
  return sum
}

/** Ids of the `most` largest allocations of a group, largest first, older first among equals. O(N + found · log). */
export function largestOf(
  data: DeviceData,
  { of }: Groups,
  group: number,
  mask: Uint8Array | null,
  most: number,
): number[] {
  const ids: number[] = []
  for (let id = 0; id < data.N; id++) if (of[id] === group && (!mask || mask[id])) ids.push(id)
  return ids.sort((a, b) => data.size[b] - data.size[a] || a - b).slice(0, most)
}
