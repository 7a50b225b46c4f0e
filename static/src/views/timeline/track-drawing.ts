// One row of spans on a canvas: rectangles with their names, as far as these fit.

import { RAGGED_END, RAGGED_START } from '../../data/annotations'
import type { Track } from '../../steps/spans'
import { firstWhere } from '../../layout/binary-search'
import { formatCount } from '../../layout/format'
import { oklch } from '../shared/colours'
import type { Inks, Plot } from './frame'
import { nameOf } from './span-text'
import type { Piece } from './track-layout'

export interface Row {
  track: Track
  pieces: readonly Piece[]
  plot: Plot
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
const TOOTH = 4

export function drawRow(ctx: CanvasRenderingContext2D, row: Row): void {
  const { track, pieces, plot, y, height, label, inks, dark } = row
  ctx.font = FONT
  ctx.textBaseline = 'middle'
  const middle = y + height / 2 + 0.5
  if (label) {
    ctx.textAlign = 'right'
    ctx.fillStyle = inks['ink-soft'].css
    ctx.fillText(label, plot.left - 9, middle)
  }
  ctx.textAlign = 'left'
  for (const piece of pieces) {
    const x = plot.left + piece.x0
    const width = piece.x1 - piece.x0
    ctx.fillStyle = colourOf(track, piece, dark)
    fillPiece(ctx, row, piece)
    if (row.mark(piece) || row.hover === piece) {
      ctx.strokeStyle = row.mark(piece) ? inks.accent.css : inks.ink.css
      ctx.lineWidth = row.mark(piece) ? 2 : 1
      ctx.strokeRect(x + 0.5, y + 0.5, Math.max(1, width - 1), height - 1)
    }
    if (width < NAME_FROM) continue
    // The bands are light on both themes: dark text reads on either.
    ctx.fillStyle = dark ? inks.panel.css : inks.ink.css
    ctx.fillText(fitted(ctx, textOf(track, piece), width - 8), x + 4, middle)
  }
}

function textOf(track: Track, { from, to }: Piece): string {
  return from === to ? nameOf(track, from) : `${formatCount(to - from + 1)} spans`
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
  if (from !== to) return css(dark ? 0.6 : 0.75, 0.01, 250)
  if (track.kind === 'step') return css((dark ? 0.68 : 0.8) - (from % 2) * 0.06, 0.075, 250)
  return css(dark ? 0.7 : 0.82, 0.07, hueOf(nameOf(track, from)))
}

const hues = new Map<string, number>()

function hueOf(name: string): number {
  let hue = hues.get(name)
  if (hue === undefined) {
    let hash = 2166136261
    for (let i = 0; i < name.length; i++) hash = Math.imul(hash ^ name.charCodeAt(i), 16777619)
    hue = (hash >>> 0) % 360
    hues.set(name, hue)
  }
  return hue
}

function css(lightness: number, chroma: number, hue: number): string {
  return `rgb(${oklch(lightness, chroma, hue).join(' ')})`
}

/** The text with its end cut off where it does not fit; "" where nothing does. */
function fitted(ctx: CanvasRenderingContext2D, text: string, width: number): string {
  if (ctx.measureText(text).width <= width) return text
  const cut = (count: number): string => `${text.slice(0, count)}…`
  const letters = Math.max(0, Math.min(text.length, Math.ceil(width / 2)))
  const most = firstWhere(1, letters + 1, (count) => ctx.measureText(cut(count)).width > width) - 1
  return most === 0 ? '' : cut(most)
}
