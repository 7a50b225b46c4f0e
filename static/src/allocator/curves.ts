// What reserved memory holds at every position, and the moments at which it is used worst.

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
  /** First position at which rounding plus inactive split blocks, which no empty_cache gives back, are greatest. */
  stuck: number
}

/** `whollyFree` null where it is not known: then both are the first. */
export function worstMoments({ reserved, allocated, P }: DeviceData, whollyFree: Float64Array | null): Worst {
  let fragmentation = 0
  let stuck = 0
  const lost = (s: number): number => reserved[s] - allocated[s]
  const kept = (s: number): number => lost(s) - (whollyFree ? whollyFree[s] : 0)
  for (let s = 1; s < P; s++) {
    if (lost(s) > lost(fragmentation)) fragmentation = s
    if (kept(s) > kept(stuck)) stuck = s
  }
  return { fragmentation, stuck }
}
