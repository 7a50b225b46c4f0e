// The addresses that were ever in use as one compact axis: stretches one after the other, small gaps between them.

import type { Replay } from '../../allocator/replay'
import { lowerBound } from '../../layout/binary-search'

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
  const i = lowerBound(start, address + 0.5) - 1
  if (i >= 0 && address <= end[i]) return place[i] + address - start[i]
  return i + 1 < start.length ? place[i + 1] : length
}

/** The address at a place; -1 in a gap. */
export function addressAt({ start, end, place }: AddressAxis, at: number): number {
  // A place computed from pixels may be slightly off: by a 2^50th, which is more than the last bit of a double.
  const i = lowerBound(place, at + Math.max(1e-6, at * 2 ** -50)) - 1
  if (i < 0) return -1
  const address = start[i] + Math.max(0, at - place[i])
  return address < end[i] ? address : -1
}

export interface Tick {
  place: number
  address: number
}

/** The labels of a window: beginnings of stretches at least `room` apart; within one stretch round addresses. */
export function ticksOf(
  { start, end, place }: AddressAxis,
  [from, to]: readonly [number, number],
  room: number,
): Tick[] {
  const ticks: Tick[] = []
  for (let i = lowerBound(place, from); i < place.length && place[i] <= to; i++) {
    if (ticks.length === 0 || place[i] - ticks[ticks.length - 1].place >= room)
      ticks.push({ place: place[i], address: start[i] })
  }
  if (ticks.length > 1 || place.length === 0) return ticks
  const i = Math.max(0, lowerBound(place, from) - 1)
  const step = 2 ** Math.ceil(Math.log2(Math.max(3 * room, (to - from) / 12)))
  const shift = start[i] - place[i]
  for (
    let address = Math.ceil((from + shift) / step) * step;
    address < end[i] && address - shift <= to;
    address += step
  ) {
    const tick = { place: address - shift, address }
    if (ticks.every((other) => Math.abs(other.place - tick.place) >= room)) ticks.push(tick)
  }
  return ticks
}
