// One moment for each column of pixels: the one in it at which the shown value is greatest, so that no spike
// vanishes when zoomed out, and a column is always the true state at one moment.

import type { Replay } from '../../allocator/replay'
import type { DeviceData } from '../../data/model'
import { greatestOf } from '../shared/scene'
import { positionsIn, type XWindow } from '../shared/x-window'

/**
 * The position that each of `count` columns shows; never descending. `by`: 'reserved' shows the moment with the most reserved
 * bytes, of several the one with the least of them allocated; 'fragmentation' the one with the most bytes reserved and not
 * allocated. O(positions in the window).
 */
export function columnsOf(
  data: DeviceData,
  window: XWindow,
  count: number,
  by: 'reserved' | 'fragmentation',
): Int32Array {
  const { allocated, reserved } = data
  const shown = new Int32Array(count)
  const width = (window.x1 - window.x0) / count
  for (let column = 0; column < count; column++) {
    const x = window.x0 + column * width
    const [from, to] = positionsIn(data, window.scale, x, x + width)
    let best = from
    for (let s = from + 1; s < to; s++) {
      const more = reserved[s] - reserved[best]
      const lost = more - (allocated[s] - allocated[best])
      if (by === 'fragmentation' ? lost > 0 : more > 0 || (more === 0 && lost > 0)) best = s
    }
    shown[column] = best
  }
  return shown
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

export function extremesOf({ reserved, allocated }: DeviceData): Extremes {
  return {
    most: Math.max(greatestOf(reserved), greatestOf(allocated)),
    mostLost: greatestOf(reserved.map((bytes, s) => bytes - allocated[s])),
  }
}

/**
 * The upper edges of the parts of reserved memory by column: allocated, rounding, inactive split, wholly free. `replay` null:
 * only allocated and the rest are known. `base`: begin with what is allocated, else with rounding.
 */
export function stackOf(
  { allocated, reserved }: DeviceData,
  replay: Replay | null,
  columns: Int32Array,
  base: boolean,
): Float64Array[] {
  const edges = (of: (s: number) => number): Float64Array =>
    Float64Array.from(columns, (s) => Math.max(0, of(s) - (base ? 0 : allocated[s])))
  const held = edges((s) => allocated[s])
  const top = edges((s) => reserved[s])
  if (!replay) return [held, top]
  const { rounding, whollyFree } = replay
  return [held, edges((s) => allocated[s] + rounding[s]), edges((s) => reserved[s] - whollyFree[s]), top]
}
