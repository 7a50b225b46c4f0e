// What reserved memory is used for at every position, and the moments with the most fragmentation.

import type { DeviceData } from '../data/model'
import type { Replay } from './replay'

export interface Parts {
  allocated: number
  rounding: number
  /** Inactive split blocks; below 0 where the file contradicts itself. */
  split: number
  whollyFree: number
  reserved: number
}

export function partsAt({ data, rounding, whollyFree }: Replay, position: number): Parts {
  const allocated = data.allocated[position]
  const reserved = data.reserved[position]
  return {
    allocated,
    reserved,
    rounding: rounding[position],
    whollyFree: whollyFree[position],
    split: reserved - allocated - rounding[position] - whollyFree[position],
  }
}

export interface Worst {
  /** First position at which reserved minus allocated is greatest. */
  fragmentation: number
  /** First position at which rounding plus inactive split blocks, which empty_cache() cannot release, are greatest. */
  stuck: number
}

/**
 * Where a segment was just reserved for an allocation that comes next, its bytes are not fragmentation: such positions do
 * not count. `whollyFree` null where it is not known: then both are the first.
 */
export function worstMoments(data: DeviceData, whollyFree: Float64Array | null): Worst {
  const { reserved, allocated, P } = data
  const passing = beforeTheirAlloc(data)
  let fragmentation = 0
  let stuck = 0
  const lost = (s: number): number => reserved[s] - allocated[s]
  const kept = (s: number): number => lost(s) - (whollyFree ? whollyFree[s] : 0)
  for (let s = 1; s < P; s++) {
    if (passing[s]) continue
    if (lost(s) > lost(fragmentation)) fragmentation = s
    if (kept(s) > kept(stuck)) stuck = s
  }
  return { fragmentation, stuck }
}

/** 1 at every position between the events that reserve memory and the alloc right after them. */
function beforeTheirAlloc({ info, other, start, N, P }: DeviceData): Uint8Array {
  const GROWS = 1
  const ALLOC = 2
  const kind = new Uint8Array(P)
  const grows = info.actions.map((action) => action === 'segment_alloc' || action === 'segment_map')
  for (let row = 0; row < other.event.length; row++) if (grows[other.action[row]]) kind[other.event[row]] = GROWS
  for (let id = 0; id < N; id++) if (start[id] > 0) kind[start[id] - 1] = ALLOC
  const passing = new Uint8Array(P)
  // From the end: a position between two growths is one before an alloc where the later growth's is.
  for (let s = P - 2; s > 0; s--) if (kind[s - 1] === GROWS && (kind[s] === ALLOC || passing[s + 1])) passing[s] = 1
  return passing
}
