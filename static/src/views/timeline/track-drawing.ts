// One row of spans on a canvas: rectangles with their names, as far as these fit.

import { css, type Inks } from '../shared/inks'
import { firstWhere } from '../../layout/binary-search'
import { formatCount } from '../../layout/format'
import { RAGGED_END, RAGGED_START, type Track } from '../../steps/spans'
import { fitted } from '../shared/canvas-view'
import { fnv, oklch } from '../shared/colours'
import type { AxisScale } from '../shared/x-window'
import type { Box } from '../shared/plot-frame'
import { countOf, nameOf, type Piece, WHAT } from './span-text'
import { remembered } from '../../data/remembered'

interface Row {
  track: Track
  pieces: readonly Piece[]
  plot: Box
  y: number
  height: number
  /** In the margin; "" for none. */
  label: string
  inks: Inks
  dark: boolean
  /** Whether a piece contains the selected span. */
  mark(piece: Piece): boolean
  hover: Piece | null
}

const FONT = '11px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif'
/** Narrower pieces have no name on them. */
const NAME_FROM = 22
/** Of a name that is cut off. */
const FEWEST_LETTERS = 4
const TOOTH = 4

export function drawRow(ctx: CanvasRenderingContext2D, row: Row): void {
  const { track, pieces, plot, y, height, label, inks, dark } = row
  ctx.font = FONT
  ctx.textBaseline = 'middle'
  const middle = y + height / 2 + 0.5
  if (label) {
    ctx.textAlign = 'right'
    ctx.fillStyle = css(inks.soft)
    ctx.fillText(label, plot.left - 9, middle)
  }
  ctx.textAlign = 'left'
  for (const piece of pieces) {
    const x = plot.left + piece.x0
    const width = piece.x1 - piece.x0
    ctx.fillStyle = colourOf(track, piece, dark)
    fillPiece(ctx, row, piece)
    if (row.mark(piece) || row.hover === piece) {
      ctx.strokeStyle = row.mark(piece) ? css(inks.accent) : css(inks.ink)
      ctx.lineWidth = row.mark(piece) ? 2 : 1
      ctx.strokeRect(x + 0.5, y + 0.5, Math.max(1, width - 1), height - 1)
    }
    if (width < NAME_FROM) continue
    // The bands are light on both themes: dark text reads on either.
    ctx.fillStyle = dark ? css(inks.panel) : css(inks.ink)
    const name = textOf(track, piece)
    const short = track.kind === 'step' && !isMerged(track, piece) && ctx.measureText(name).width > width - 8
    const text = (short && /\d+/.exec(name)?.[0]) || name
    const shown = fitted(ctx, text, width - 8)
    // A number that is cut off reads as another one, and a letter is no name.
    if (shown === text || (!isMerged(track, piece) && shown.length > FEWEST_LETTERS)) ctx.fillText(shown, x + 4, middle)
  }
}

function isMerged(track: Track, { from, to }: Piece): boolean {
  return from !== to || countOf(track, from, to) > 1
}

function textOf(track: Track, piece: Piece): string {
  const { from, to } = piece
  return isMerged(track, piece) ? `${formatCount(countOf(track, from, to))} ${WHAT[track.kind]}` : nameOf(track, from)
}

/** A rectangle; with teeth where an end of the span is not recorded. */
function fillPiece(ctx: CanvasRenderingContext2D, { track, plot, y, height }: Row, piece: Piece): void {
  const left = plot.left + piece.x0
  const right = plot.left + piece.x1
  const ragged = piece.from === piece.to ? (track.ragged?.[piece.from] ?? 0) : 0
  // A gap of a pixel between neighbours, unless the piece is too narrow.
  const gap = right - left > 3 ? 1 : 0
  if (!ragged || right - left < 4 * TOOTH) {
    ctx.fillRect(left, y, right - left - gap, height)
    return
  }
  const teeth = (x: number, down: boolean, inwards: number): void => {
    for (let step = 0; step <= 4; step++)
      ctx.lineTo(x + (step % 2 ? inwards : 0), down ? y + (height * step) / 4 : y + height - (height * step) / 4)
  }
  ctx.beginPath()
  ctx.moveTo(left, y)
  if (ragged & RAGGED_END) teeth(right, true, -TOOTH)
  else {
    ctx.lineTo(right - gap, y)
    ctx.lineTo(right - gap, y + height)
  }
  if (ragged & RAGGED_START) teeth(left, false, TOOTH)
  else ctx.lineTo(left, y + height)
  ctx.closePath()
  ctx.fill()
}

/** Equal names have equal colours; steps take turns between two. Merged pieces are grey. */
function colourOf(track: Track, { from, to }: Piece, dark: boolean): string {
  if (countOf(track, from, to) > 1) return css(oklch(dark ? 0.6 : 0.75, 0.01, 250))
  if (track.kind === 'step') return css(oklch((dark ? 0.68 : 0.8) - (from % 2) * 0.06, 0.075, 250))
  return css(oklch(dark ? 0.7 : 0.82, 0.07, hueOf(nameOf(track, from))))
}

const hues = new Map<string, number>()

function hueOf(name: string): number {
  return remembered(hues, name, () => (fnv(name) >>> 0) % 360)
}

/** Thinner spans may be merged with their neighbours. */
const THIN = 3
/** No piece is thinner. */
const MIN_WIDTH = 1.5

/** Left and right edge of a span in axis units. Times of its own count on the time axis, as far as the axis reaches. */
export function edgesOf(track: Track, i: number, scale: AxisScale): [number, number] {
  const { places } = track
  if (places) return [scale.toAxis(places.from[i]), scale.toAxis(places.to[i])]
  const start = scale.toAxis(track.first[i])
  const end = scale.toAxis(track.last[i] + 1)
  const { ofTime } = scale
  if (!ofTime || !track.startUs || !track.endUs) return [start, end]
  const within = (us: number, otherwise: number): number => (Number.isNaN(us) ? otherwise : ofTime(us))
  const left = within(track.startUs[i], start)
  return [left, Math.max(left, within(track.endUs[i], end))]
}

/** The pieces of a window in pixels from its left edge, in order. */
export function piecesOf(track: Track, scale: AxisScale, window: { x0: number; x1: number }, width: number): Piece[] {
  const pieces: Piece[] = []
  const toPixel = (x: number): number => ((x - window.x0) / (window.x1 - window.x0)) * width
  const toAxis = (pixel: number): number => window.x0 + (pixel / width) * (window.x1 - window.x0)
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
      // All that end within the next pixel are merged, too: the last of them is next, not each of a million kernels.
      i = Math.max(i, firstReaching(track, scale, toAxis(before.x1 + 1), i + 1) - 2)
      continue
    }
    // A span that was widened to be visible gives way to one that really begins there.
    if (before && before.x1 > x0) before.x1 = Math.max(x0, before.x0 + MIN_WIDTH)
    pieces.push({ x0, x1, from: i, to: i })
    merging = false
  }
  return pieces
}

/** The first span, of those from `from` on, that ends at or after a place: ends ascend within a row. */
function firstReaching(track: Track, scale: AxisScale, x: number, from = 0): number {
  return firstWhere(from, track.first.length, (span) => edgesOf(track, span, scale)[1] >= x)
}
