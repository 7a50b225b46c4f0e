// The layout of the map over time and hit testing on it, in CSS pixels of its plot. No DOM.

import type { Replay } from '../../allocator/replay'
import { clamp } from '../../layout/viewport'
import type { Range, State } from '../../ui/state'
import type { EventScene, Point } from '../shared/event-plot'
import type { Groups } from '../shared/groups'
import { type Box, pixelToX, xToPixel } from '../shared/plot-frame'
import { positionsIn, xOfPosition } from '../shared/x-window'
import { type AddressAxis, addressAt, addressAxisOf, placeOf } from './address-axis'
import type { Places } from './time-raster'

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

export function rectOf(scene: TimeScene, id: number): { x0: number; x1: number; y0: number; y1: number } {
  const {
    context: { data },
    replay,
    places,
    window,
    box,
  } = scene
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
  const {
    context: { data },
    replay,
    places,
    y,
    box,
  } = scene
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
