// What happens in a range of events: allocated, freed and peak by group.

import type { DeviceData, DeviceInfo } from '../../data/model'
import type { Range } from '../../ui/state'

/** What allocations are summed by: the group of each, and how many there are. */
interface GroupOf {
  count: number
  of: ArrayLike<number>
}

/** Events of a device, both included. */
export interface EventRange {
  first: number
  last: number
}

/** Arrays have a value for each group. */
export interface RangeSums {
  /** Bytes and number of what the events of the range allocate, and free. */
  allocated: Float64Array
  freed: Float64Array
  births: Float64Array
  frees: Float64Array
  /** The most that the group holds at once, from the state before the first event on; and all groups together. */
  peak: Float64Array
  peakOfAll: number
}

/** The whole events of a window in events; null: all. At least one where there are any. */
export function rangeOf({ events }: DeviceInfo, x: Range | null): EventRange {
  const last = Math.max(0, events - 1)
  const within = (event: number): number => Math.max(0, Math.min(last, event))
  const first = within(Math.ceil(x?.[0] ?? 0))
  return { first, last: Math.max(first, within(Math.floor(x?.[1] ?? last))) }
}

/** `mask`: 1 for allocations that count; null: all. O(N + events of the range). */
export function sumsInRange(
  { N, start, end, size }: DeviceData,
  { count: groups, of }: GroupOf,
  mask: Uint8Array | null,
  { first, last }: EventRange,
): RangeSums {
  const make = (): Float64Array => new Float64Array(groups)
  const sums = { allocated: make(), freed: make(), births: make(), frees: make(), peak: make(), peakOfAll: 0 }
  const live = make()
  let all = 0
  // Position p is the state after event p - 1. An event allocates one block at most, and frees one at most.
  const born = new Int32Array(last - first + 1).fill(-1)
  const died = new Int32Array(last - first + 1).fill(-1)
  for (let id = 0; id < N; id++) {
    if (mask && mask[id] === 0) continue
    if (start[id] <= first && end[id] > first) {
      live[of[id]] += size[id]
      all += size[id]
    }
    const birth = start[id] - 1 - first
    if (birth >= 0 && birth < born.length) born[birth] = id
    const death = end[id] - 1 - first
    if (death >= 0 && death < died.length) died[death] = id
  }
  sums.peak.set(live)
  sums.peakOfAll = all
  for (let i = 0; i < born.length; i++) {
    const [gone, come] = [died[i], born[i]]
    if (gone >= 0) {
      sums.freed[of[gone]] += size[gone]
      sums.frees[of[gone]]++
      live[of[gone]] -= size[gone]
      all -= size[gone]
    }
    if (come >= 0) {
      sums.allocated[of[come]] += size[come]
      sums.births[of[come]]++
      live[of[come]] += size[come]
      all += size[come]
      sums.peak[of[come]] = Math.max(sums.peak[of[come]], live[of[come]])
    }
    sums.peakOfAll = Math.max(sums.peakOfAll, all)
  }
  return sums
}

/** The selected range within the events of a device; null: none is. */
export function readEventRange(text: string | undefined, info: DeviceInfo): EventRange | null {
  const [, first, last] = /^(\d{1,15})\.\.(\d{1,15})$/.exec(text ?? '') ?? []
  return first === undefined || info.events === 0 ? null : rangeOf(info, [Number(first), Number(last)])
}

export function writeEventRange({ first, last }: EventRange): string {
  return `${first}..${last}`
}
