// The addresses that were ever in use as one axis without holes: stretches one after the other, small gaps between them.

import type { Replay } from '../../allocator/replay'
import { firstAtOrAbove } from '../../allocator/replay'

export interface AddressAxis {
  /** Stretches by address: address of the first byte, of the end, and the place of the first byte on the axis. */
  start: Float64Array
  end: Float64Array
  place: Float64Array
  /** Length of the axis in bytes, gaps included. */
  length: number
}

/** Gaps together take at most this share of the axis, one of them at most that. */
const ALL_GAPS = 0.12
const ONE_GAP = 0.006

export function addressAxisOf(replay: Replay): AddressAxis {
  const { segments, address, block, segment, data } = replay
  const starts: number[] = []
  const ends: number[] = []
  const add = (from: number, to: number): void => {
    const last = starts.length - 1
    if (last >= 0 && from <= ends[last]) ends[last] = Math.max(ends[last], to)
    else {
      starts.push(from)
      ends.push(to)
    }
  }
  const pieces: [number, number][] = []
  for (let row = 0; row < segments.count; row++) pieces.push([segments.start[row], segments.end[row]])
  for (let id = 0; id < data.N; id++) if (segment[id] < 0) pieces.push([address[id], address[id] + block[id]])
  pieces.sort((a, b) => a[0] - b[0])
  for (const [from, to] of pieces) add(from, to)
  let bytes = 0
  for (let i = 0; i < starts.length; i++) bytes += ends[i] - starts[i]
  const gaps = Math.max(1, starts.length - 1)
  const gap = Math.min(bytes * ONE_GAP, (bytes * ALL_GAPS) / gaps)
  const place = new Float64Array(starts.length)
  let at = 0
  for (let i = 0; i < starts.length; i++) {
    place[i] = at
    at += ends[i] - starts[i] + gap
  }
  return { start: Float64Array.from(starts), end: Float64Array.from(ends), place, length: Math.max(1, at - gap) }
}

/** The place of an address; where it is in no stretch, that of the next stretch. */
export function placeOf({ start, end, place, length }: AddressAxis, address: number): number {
  const i = firstAtOrAbove(start, address + 0.5) - 1
  if (i >= 0 && address <= end[i]) return place[i] + address - start[i]
  return i + 1 < start.length ? place[i + 1] : length
}

/** The address at a place; -1 in a gap. */
export function addressAt({ start, end, place }: AddressAxis, at: number): number {
  const i = firstAtOrAbove(place, at + 1e-6) - 1
  if (i < 0) return -1
  const address = start[i] + at - place[i]
  return address < end[i] ? address : -1
}
