// The layout of the map over time and hit testing on it, in CSS pixels of its plot. No DOM.

import type { Replay } from '../../allocator/replay'
import { lowerBound } from '../../layout/binary-search'
import { clamp, type Rect } from '../../layout/viewport'
import type { Range, State } from '../../ui/state'
import type { EventScene, Point } from '../shared/event-plot'
import type { Groups } from '../shared/groups'
import { type Box, pixelToX, xToPixel } from '../shared/plot-frame'
import { positionsIn, xOfPosition } from '../shared/x-window'

/** Place of each allocation and each segment on the address axis. */
export interface Places {
  allocation: Float64Array
  segment: Float64Array
}

/** The option that holds the window of the address axis: "from..to" in bytes of the axis. */
export const Y_OPTION = 'segments.y'
/** From this width on there is room for addresses beside the picture. */
const ROOMY = 760
export const GUTTER = 114
/** The narrowest window of the address axis, in bytes. */
const MIN_BYTES = 4096

/** The address axis of a replay, and the place of everything on it. */
export interface Addresses {
  replay: Replay
  axis: AddressAxis
  places: Places
}

export interface TimeScene extends EventScene, Addresses {
  groups: Groups
  /** Window of the address axis. */
  y: Range
  box: Box
}

export function addressesOf(replay: Replay): Addresses {
  const axis = addressAxisOf(replay)
  const places = {
    allocation: replay.address.map((address) => placeOf(axis, address)),
    segment: replay.segments.start.map((start) => placeOf(axis, start)),
  }
  return { replay, axis, places }
}

export function boxIn(width: number, height: number): Box {
  const right = width < 560 ? 12 : 20
  const left = width < ROOMY ? right : GUTTER
  return { left, top: 22, width: Math.max(1, width - left - right), height: Math.max(1, height - 22 - 28) }
}

export function yWindowOf({ options }: State, axis: AddressAxis): Range {
  const match = /^(\d+)\.\.(\d+)$/.exec(options[Y_OPTION] ?? '')
  const from = match ? Number(match[1]) : 0
  const to = match ? Math.min(axis.length, Number(match[2])) : axis.length
  return to > from ? [from, to] : [0, axis.length]
}

/** The option's value for a window of the address axis; null: the whole axis. */
export function yOptionOf([from, to]: Range, axis: AddressAxis): string | null {
  if (to - from > axis.length * 0.9999) return null
  const bounds = { x0: 0, x1: 1, y0: 0, y1: axis.length }
  const { y0, y1 } = clamp({ x0: 0, x1: 1, y0: from, y1: to }, { bounds, minXSpan: 1, minYSpan: MIN_BYTES })
  return `${Math.round(y0)}..${Math.round(y1)}`
}

export function yToPixel({ y: [y0, y1], box }: TimeScene, place: number): number {
  return box.top + box.height - ((place - y0) / (y1 - y0)) * box.height
}

export function pixelToY({ y: [y0, y1], box }: TimeScene, pixel: number): number {
  return y0 + ((box.top + box.height - pixel) / box.height) * (y1 - y0)
}

export function rectOf(scene: TimeScene, id: number): Rect {
  const { replay, places, window, box } = scene
  const { data } = scene.context
  return {
    x0: xToPixel(window, box, xOfPosition(data, window.scale, data.start[id])),
    x1: xToPixel(window, box, xOfPosition(data, window.scale, data.end[id])),
    y0: yToPixel(scene, places.allocation[id] + replay.block[id]),
    y1: yToPixel(scene, places.allocation[id]),
  }
}

export function isInside({ left, top, width, height }: Box, { x, y }: Point): boolean {
  return x >= left && x < left + width && y >= top && y < top + height
}

/** Positions [from, to) that the column of pixels at x stands for. */
export function positionsAt({ context: { data }, window, box }: TimeScene, x: number): [number, number] {
  return positionsIn(data, window.scale, pixelToX(window, box, x), pixelToX(window, box, x + 1))
}

/** The allocation at a pixel: exactly there, else the largest of those thinner than a pixel that share it; -1: none. */
export function idAt(scene: TimeScene, at: Point): number {
  const { replay, places, y, box } = scene
  const { data } = scene.context
  if (!isInside(box, at)) return -1
  const [from, to] = positionsAt(scene, at.x)
  const perPixel = (y[1] - y[0]) / box.height
  const low = y[0] + (box.top + box.height - at.y - 1) * perPixel
  const high = low + perPixel
  let best = -1
  let most = 0
  for (let id = 0; id < data.N; id++) {
    if (data.start[id] >= to || data.end[id] <= from) continue
    const bottom = places.allocation[id]
    if (bottom >= high || bottom + replay.block[id] <= low) continue
    const shared =
      (Math.min(high, bottom + replay.block[id]) - Math.max(low, bottom)) *
      (Math.min(to, data.end[id]) - Math.max(from, data.start[id]))
    if (shared > most) {
      most = shared
      best = id
    }
  }
  return best
}

/** Row of the segment that holds an address at a position; -1 where none does. */
export function segmentRowAt({ segments }: Replay, address: number, position: number): number {
  for (let row = 0; row < segments.count; row++) {
    const isThere = segments.start[row] <= address && address < segments.end[row]
    if (isThere && segments.from[row] <= position && position < segments.to[row]) return row
  }
  return -1
}

/** The address at a height; -1 where the axis has a break. */
export function addressAtPixel(scene: TimeScene, y: number): number {
  return addressAt(scene.axis, pixelToY(scene, y))
}

interface AddressAxis {
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
function placeOf({ start, end, place, length }: AddressAxis, address: number): number {
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

interface Tick {
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
