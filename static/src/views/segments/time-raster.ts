// Every allocation as a rectangle of events by addresses, as pixels. Draws straight from the columns: what is out of sight
// costs a comparison, and rectangles do not overlap, so that no more pixels are painted than there are, but for what is
// thinner than a pixel. That is painted last, on what is still free: something is there, and it can be seen.

import type { Replay } from '../../allocator/replay'
import type { AxisScale } from '../shared/scale'
import { word } from '../shared/inks'
import type { Rgb } from '../shared/inks'

export interface TimePlot {
  scale: AxisScale
  /** Axis units, and bytes of the address axis. */
  x0: number
  x1: number
  y0: number
  y1: number
  /** Device pixels. */
  width: number
  height: number
}

export interface TimeColours {
  /** Word by key of `keys`; a second set, `dim`, for what a query does not match. */
  words: Uint32Array
  dim: Uint32Array
  keys: Uint32Array
  mask: Uint8Array | null
  pending: number
  free: Rgb
}

/** Place of each allocation and each segment on the address axis. */
export interface Places {
  allocation: Float64Array
  segment: Float64Array
}

/** Returns how many rectangles were in sight. Rows of `out` run from the top, which is y1. */
export function paintTime(
  out: Uint32Array,
  replay: Replay,
  places: Places,
  plot: TimePlot,
  colours: TimeColours,
): number {
  const { data, block, segments } = replay
  const { start, end, N, freeRequestedEvent, P, clockUs } = data
  const { width, height, x0, x1, y0, y1, scale } = plot
  const byTime = scale.axis === 'time' && clockUs !== null
  const perX = width / (x1 - x0)
  const perY = height / (y1 - y0)
  const xOf = (s: number): number =>
    ((s <= 0 ? scale.x0 : s >= P ? scale.x1 : byTime ? clockUs![s - 1] : s - 1) - x0) * perX
  const free = word(colours.free)
  for (let row = 0; row < segments.count; row++) {
    const top = height - (places.segment[row] + segments.end[row] - segments.start[row] - y0) * perY
    fillRect(
      out,
      width,
      height,
      xOf(segments.from[row]),
      xOf(segments.to[row]),
      top,
      height - (places.segment[row] - y0) * perY,
      free,
    )
  }
  const taken = new Uint8Array(width * height)
  const thin: number[] = []
  let seen = 0
  for (let id = 0; id < N; id++) {
    const bottom = (places.allocation[id] - y0) * perY
    const tall = block[id] * perY
    if (bottom >= height || bottom + tall <= 0) continue
    const left = xOf(start[id])
    if (left >= width) continue
    const right = xOf(end[id])
    if (right <= 0) continue
    seen++
    if (tall < 1 || right - left < 1) {
      thin.push(id)
      continue
    }
    const ink = inkOf(colours, id)
    const top = height - bottom - tall
    paintBox(out, taken, width, height, left, right, top, height - bottom, ink)
    const requestEvent = freeRequestedEvent[id]
    if (requestEvent >= 0 && requestEvent + 1 < end[id]) {
      const from = Math.max(left, xOf(requestEvent + 1))
      if (right - from >= 2) hatch(out, width, height, from, right, top, height - bottom, colours.pending)
    }
  }
  for (const id of thin) {
    const bottom = height - (places.allocation[id] - y0) * perY
    paintThin(
      out,
      taken,
      width,
      height,
      xOf(start[id]),
      xOf(end[id]),
      bottom - block[id] * perY,
      bottom,
      inkOf(colours, id),
    )
  }
  return seen
}

function inkOf({ words, dim, keys, mask }: TimeColours, id: number): number {
  return mask && !mask[id] ? dim[keys[id]] : words[keys[id]]
}

function fillRect(
  out: Uint32Array,
  width: number,
  height: number,
  x0: number,
  x1: number,
  y0: number,
  y1: number,
  ink: number,
): void {
  const left = Math.max(0, Math.round(x0))
  const right = Math.min(width, Math.max(Math.round(x1), Math.round(x0) + 1))
  const bottom = Math.min(height, Math.max(Math.round(y1), Math.round(y0) + 1))
  if (right <= left) return
  for (let y = Math.max(0, Math.round(y0)); y < bottom; y++) out.fill(ink, y * width + left, y * width + right)
}

/** A rectangle with a darker edge at its birth and its top, where it is large enough, so that neighbours of one colour stay two. */
function paintBox(
  out: Uint32Array,
  taken: Uint8Array,
  width: number,
  height: number,
  x0: number,
  x1: number,
  y0: number,
  y1: number,
  ink: number,
): void {
  const left = Math.max(0, Math.round(x0))
  const right = Math.min(width, Math.max(Math.round(x1), Math.round(x0) + 1))
  const top = Math.max(0, Math.round(y0))
  const bottom = Math.min(height, Math.max(Math.round(y1), Math.round(y0) + 1))
  if (right <= left) return
  for (let y = top; y < bottom; y++) {
    out.fill(ink, y * width + left, y * width + right)
    taken.fill(1, y * width + left, y * width + right)
  }
  const edge = darker(ink)
  if (y1 - y0 >= 4 && y0 >= 0) out.fill(edge, top * width + left, top * width + right)
  if (x1 - x0 >= 4 && x0 >= 0) for (let y = top; y < bottom; y++) out[y * width + left] = edge
}

/** At least one pixel, and only pixels that nothing wider has. */
function paintThin(
  out: Uint32Array,
  taken: Uint8Array,
  width: number,
  height: number,
  x0: number,
  x1: number,
  y0: number,
  y1: number,
  ink: number,
): void {
  const left = Math.max(0, Math.floor(x0))
  const right = Math.min(width, Math.max(Math.round(x1), Math.floor(x0) + 1))
  const top = Math.max(0, Math.floor(y0))
  const bottom = Math.min(height, Math.max(Math.round(y1), Math.floor(y0) + 1))
  for (let y = top; y < bottom; y++) {
    for (let at = y * width + left; at < y * width + right; at++) if (taken[at] === 0) out[at] = ink
  }
}

function hatch(
  out: Uint32Array,
  width: number,
  height: number,
  x0: number,
  x1: number,
  y0: number,
  y1: number,
  ink: number,
): void {
  const right = Math.min(width, Math.round(x1))
  const bottom = Math.min(height, Math.round(y1))
  for (let y = Math.max(0, Math.round(y0)); y < bottom; y++) {
    for (let x = Math.max(0, Math.round(x0)); x < right; x++) if ((x + y) % 5 < 2) out[y * width + x] = ink
  }
}

function darker(ink: number): number {
  const r = ((ink & 255) * 0.78) | 0
  const g = (((ink >>> 8) & 255) * 0.78) | 0
  const b = (((ink >>> 16) & 255) * 0.78) | 0
  return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0
}
