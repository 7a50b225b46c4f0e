// One moment for each column of pixels: the one in it at which the shown value is greatest, so that no spike
// vanishes when zoomed out, and a column is always the true state at one moment.

import type { Replay } from '../../allocator/replay'
import type { DeviceData } from '../../data/model'
import { positionsIn, type XWindow } from '../shared/x-window'

export interface Columns {
  count: number
  /** Position that each column shows; never descending. */
  position: Int32Array
  /** Greatest allocated and reserved bytes within each column. */
  allocatedMax: Float64Array
  reservedMax: Float64Array
  /** Most reserved minus allocated bytes within each column. */
  fragmentationMax: Float64Array
}

/**
 * `by`: 'reserved' shows the moment with the most reserved bytes, of several the one with the least of them allocated;
 * 'fragmentation' the one with the most bytes reserved and not allocated. O(positions in the window).
 */
export function columnsOf(data: DeviceData, window: XWindow, count: number, by: 'reserved' | 'fragmentation'): Columns {
  const { allocated, reserved } = data
  const out: Columns = {
    count,
    position: new Int32Array(count),
    allocatedMax: new Float64Array(count),
    reservedMax: new Float64Array(count),
    fragmentationMax: new Float64Array(count),
  }
  const width = (window.x1 - window.x0) / count
  for (let column = 0; column < count; column++) {
    const x = window.x0 + column * width
    const [from, to] = positionsIn(data, window.scale, x, x + width)
    let best = from
    let allocatedMax = allocated[from]
    let reservedMax = reserved[from]
    let lostMax = reserved[from] - allocated[from]
    for (let s = from + 1; s < to; s++) {
      const bytes = allocated[s]
      const all = reserved[s]
      const lost = all - bytes
      if (
        by === 'fragmentation'
          ? lost > lostMax
          : all > reservedMax || (all === reservedMax && lost > reserved[best] - allocated[best])
      )
        best = s
      if (bytes > allocatedMax) allocatedMax = bytes
      if (all > reservedMax) reservedMax = all
      if (lost > lostMax) lostMax = lost
    }
    out.position[column] = best
    out.allocatedMax[column] = allocatedMax
    out.reservedMax[column] = reservedMax
    out.fragmentationMax[column] = lostMax
  }
  return out
}

/** The greatest of `values`, which are by position, within each column. */
export function maxByColumn(data: DeviceData, window: XWindow, count: number, values: Float64Array): Float64Array {
  const out = new Float64Array(count)
  const width = (window.x1 - window.x0) / count
  for (let column = 0; column < count; column++) {
    const x = window.x0 + column * width
    const [from, to] = positionsIn(data, window.scale, x, x + width)
    let most = values[from]
    for (let s = from + 1; s < to; s++) if (values[s] > most) most = values[s]
    out[column] = most
  }
  return out
}

/** The extremes of a whole device, for the scales of the pictures. */
export interface Extremes {
  /** Most bytes reserved or allocated, and most reserved less allocated. */
  most: number
  mostLost: number
}

export function extremesOf(data: DeviceData): Extremes {
  let most = 0
  let mostLost = 0
  const { reserved, allocated, P } = data
  for (let s = 0; s < P; s++) {
    const all = reserved[s]
    const held = allocated[s]
    if (all > most) most = all
    if (held > most) most = held
    if (all - held > mostLost) mostLost = all - held
  }
  return { most, mostLost }
}

/** The parts of reserved memory by column, each on top of the one before: allocated, rounding, inactive split, wholly free. */
export interface Stack {
  names: readonly string[]
  /** Upper edge of each part by column. */
  tops: Float64Array[]
}

/** `replay` null: only allocated and the rest are known. `base`: begin with what is allocated, else with rounding. */
export function stackOf(data: DeviceData, replay: Replay | null, { position, count }: Columns, base: boolean): Stack {
  const edges = (of: (s: number) => number): Float64Array => {
    const out = new Float64Array(count)
    for (let column = 0; column < count; column++) out[column] = Math.max(0, of(position[column]))
    return out
  }
  const { allocated, reserved } = data
  const floor = (s: number): number => (base ? 0 : allocated[s])
  const allocatedTop = edges((s) => allocated[s] - floor(s))
  const top = edges((s) => reserved[s] - floor(s))
  if (!replay) return { names: ['Allocated', 'Reserved, not allocated'], tops: [allocatedTop, top] }
  const { rounding, whollyFree } = replay
  return {
    names: ['Allocated', 'Rounding', 'Inactive split', 'Unused segments'],
    tops: [
      allocatedTop,
      edges((s) => allocated[s] + rounding[s] - floor(s)),
      edges((s) => reserved[s] - whollyFree[s] - floor(s)),
      top,
    ],
  }
}
