// Training steps: which events each covers and which step each allocation was born in. Python recognises them
// (snapreport/timeline/steps.py) and writes them into the manifest, so that the page and Python agree.

import type { DeviceData, DeviceInfo } from '../data/model'
import { remembered } from '../data/remembered'

/** Ascending and without overlap. */
export interface Steps {
  source: string
  names: readonly string[]
  /** As the names count them; unique within a device as a rule, but not promised. */
  numbers: readonly number[]
  first: Int32Array
  /** Last event, inclusive; first - 1 where a step holds none. */
  last: Int32Array
  /** The step of each allocation by its alloc event (length N); -1: from before the trace, or outside all steps. */
  of: Int32Array
}

const cache = new WeakMap<DeviceData, Steps | null>()

/** Null where no steps are known. O(N) the first time, then kept. */
export function stepsOf(info: DeviceInfo, data: DeviceData): Steps | null {
  return remembered(cache, data, () => {
    const ranges = stepRanges(info)
    return ranges && { ...ranges, of: stepOfEach(ranges, data.start) }
  })
}

/** The steps alone, before the columns have arrived. */
export function stepRanges(info: DeviceInfo): Omit<Steps, 'of'> | null {
  const raw = info.steps
  if (!raw || raw.names.length === 0) return null
  const { first, last } = ranges(raw.first, raw.events)
  return { source: raw.source, names: raw.names, numbers: raw.numbers, first, last }
}

/** Differences of first events, and counts → first and last events. */
export function ranges(
  differences: ArrayLike<number>,
  events: ArrayLike<number>,
): { first: Int32Array; last: Int32Array } {
  const first = new Int32Array(events.length)
  const last = new Int32Array(events.length)
  let at = 0
  for (let i = 0; i < events.length; i++) {
    at += differences[i]
    first[i] = at
    last[i] = at + events[i] - 1
  }
  return { first, last }
}

/** Allocations are in the order of their births (start: the position after the alloc event), so one pass does. */
function stepOfEach({ first, last }: Pick<Steps, 'first' | 'last'>, start: Int32Array): Int32Array {
  const of = new Int32Array(start.length).fill(-1)
  let step = 0
  for (let id = 0; id < of.length; id++) {
    const event = start[id] - 1
    if (event < 0) continue
    while (step < last.length && last[step] < event) step++
    if (step < first.length && first[step] <= event) of[id] = step
  }
  return of
}
