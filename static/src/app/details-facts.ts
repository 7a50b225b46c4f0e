// What the details panel says of an allocation beside its own columns: what had its address before and after, what else the
// same code allocated, which steps and annotated spans it lived through. One pass over the columns each; no DOM.

import type { DeviceData } from '../data/model'
import { tracksOf } from '../steps/spans'
import { stepsOf } from '../steps/steps'
import { nameOf } from '../views/timeline/span-text'

/** Of the allocations that contained an address: the one before and the one after; -1 for none. */
export interface AddressHistory {
  before: number
  after: number
}

/** Any allocation that covers the first byte counts, not only one that begins there. */
export function addressHistory(d: DeviceData, id: number): AddressHistory {
  const { N, addrHi, addrLo, size, start, end } = d
  const hi = addrHi[id]
  const lo = addrLo[id]
  let before = -1
  let after = -1
  for (let other = 0; other < N; other++) {
    // Exact: addresses near each other differ by less than 2**53.
    const inside = (hi - addrHi[other]) * 2 ** 32 + (lo - addrLo[other])
    if (inside < 0 || (inside >= size[other] && inside !== 0) || other === id) continue
    if (end[other] <= start[id] && (before < 0 || end[other] >= end[before])) before = other
    else if (start[other] >= end[id] && (after < 0 || start[other] < start[after])) after = other
  }
  return { before, after }
}

export interface Siblings {
  /** Allocations with the stack. */
  count: number
  bytes: number
  liveAtPeak: number
  bytesAtPeak: number
  /** At the given position. */
  liveThen: number
  bytesThen: number
  /** The largest of the others, the first born among equals first. */
  largest: number[]
}

/** What a stack allocated; `id`: an allocation left out of the largest, since it is shown already (null: none). */
export function siblingsOf(d: DeviceData, mine: number, id: number | null, most: number, position: number): Siblings {
  const { N, stack, size, start, end } = d
  const peak = d.info.peakEvent + 1
  const out: Siblings = { count: 0, bytes: 0, liveAtPeak: 0, bytesAtPeak: 0, liveThen: 0, bytesThen: 0, largest: [] }
  const { largest } = out
  for (let other = 0; other < N; other++) {
    if (stack[other] !== mine) continue
    out.count++
    out.bytes += size[other]
    if (start[other] <= peak && end[other] > peak) {
      out.liveAtPeak++
      out.bytesAtPeak += size[other]
    }
    if (start[other] <= position && end[other] > position) {
      out.liveThen++
      out.bytesThen += size[other]
    }
    if (other === id || (largest.length === most && size[other] <= size[largest[most - 1]])) continue
    let at = largest.length
    while (at > 0 && size[largest[at - 1]] < size[other]) at--
    largest.splice(at, 0, other)
    if (largest.length > most) largest.pop()
  }
  return out
}

/** Names of the steps that it was born in and freed in (null: in none, or alive at the end), and how many it lived through. */
export interface StepsLived {
  born: string | null
  freed: string | null
  count: number
}

/** Null where no steps are known. */
export function stepsLived(d: DeviceData, id: number): StepsLived | null {
  const steps = stepsOf(d.info, d)
  if (!steps) return null
  const from = Math.max(0, d.start[id] - 1)
  const to = Math.min(d.n, d.end[id]) - 1
  let count = 0
  let freed: string | null = null
  for (let step = 0; step < steps.first.length; step++) {
    if (steps.last[step] < from || steps.first[step] > to || steps.last[step] < steps.first[step]) continue
    count++
    if (d.end[id] < d.P && steps.first[step] <= to && to <= steps.last[step]) freed = steps.names[step]
  }
  return { born: steps.of[id] < 0 ? null : steps.names[steps.of[id]], freed, count }
}

/** Annotated spans around its alloc event, the outermost first. */
export function spansAround(d: DeviceData, id: number): string[] {
  const event = d.start[id] - 1
  if (event < 0) return []
  const names: string[] = []
  for (const track of tracksOf(d.info, null)) {
    if (track.kind !== 'annotation') continue
    for (let i = 0; i < track.first.length && track.first[i] <= event; i++)
      if (event <= track.last[i]) names.push(nameOf(track, i))
  }
  return names
}
