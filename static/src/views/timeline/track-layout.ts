// What a row of spans shows in a window: pieces in pixels. Spans too thin to be distinguished become one piece, so that none
// of them vanishes and no row draws more pieces than it has pixels.

import { firstWhere } from '../../layout/binary-search'
import type { Track } from '../../steps/spans'
import type { AxisScale } from '../shared/scale'

/** Spans [from, to] of a row, drawn as one rectangle. */
export interface Piece {
  x0: number
  x1: number
  from: number
  to: number
}

/** Thinner spans may be merged with their neighbours. */
const THIN = 3
/** No piece is thinner. */
const MIN_WIDTH = 1.5

/** Left and right edge of a span in axis units. Times of its own count on the time axis, as far as the axis reaches. */
export function edgesOf(track: Track, i: number, scale: AxisScale): [number, number] {
  const start = scale.toAxis(track.first[i])
  const end = scale.toAxis(track.last[i] + 1)
  if (scale.axis !== 'time' || !track.startUs || !track.endUs) return [start, end]
  const within = (us: number, otherwise: number): number =>
    Number.isNaN(us) ? otherwise : Math.min(scale.x1, Math.max(scale.x0, us))
  const left = within(track.startUs[i], start)
  return [left, Math.max(left, within(track.endUs[i], end))]
}

/** The pieces of a window in pixels from its left edge, in order. */
export function piecesOf(track: Track, scale: AxisScale, window: { x0: number; x1: number }, width: number): Piece[] {
  const pieces: Piece[] = []
  const toPixel = (x: number): number => ((x - window.x0) / (window.x1 - window.x0)) * width
  const count = track.first.length
  let merging = false
  for (let i = firstReaching(track, scale, window.x0); i < count; i++) {
    const [left, right] = edgesOf(track, i, scale)
    if (left > window.x1) break
    const x0 = Math.max(0, toPixel(left))
    const x1 = Math.min(width, Math.max(toPixel(right), x0 + MIN_WIDTH))
    if (x1 < 0) continue
    const thin = x1 - x0 < THIN
    const before = pieces[pieces.length - 1]
    if (thin && before && x0 < before.x1 + 1 && (merging || before.x1 - before.x0 < THIN)) {
      before.to = i
      before.x1 = Math.max(before.x1, x1)
      merging = true
      continue
    }
    // A span that was widened to be visible gives way to one that really begins there.
    if (before && before.x1 > x0) before.x1 = Math.max(x0, before.x0 + MIN_WIDTH)
    pieces.push({ x0, x1, from: i, to: i })
    merging = false
  }
  return pieces
}

/** The first span that ends at or after a place: ends ascend within a row. */
function firstReaching(track: Track, scale: AxisScale, x: number): number {
  return firstWhere(0, track.first.length, (span) => edgesOf(track, span, scale)[1] >= x)
}
