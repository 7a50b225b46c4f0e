// The pixels of a heat map. The processor paints them: a row of pixels that shows the same cells as the one above is copied.
// A frame of 1,024 × 256 cells at 1202 × 1170 pixels took 85 ms on two busy cores, and 540 ms by emulated WebGL.

import type { Rect } from '../layout/viewport'

/** Cells at least so many pixels wide or tall have a line between them. */
const GAP_FROM_PIXELS = 9
/** The share of its colour that a dimmed cell keeps. */
const DIMMED = 0.28

/** Cells in reading order, two bytes each: level (0: nothing known) and whether it is dimmed. */
export interface HeatCells {
  columns: number
  rows: number
  bytes: Uint8Array
}

export interface HeatStyle {
  /** 256 colours by level, 4 bytes each. */
  palette: Uint8Array
  /** What dimmed cells fade to and what lies between large cells. */
  background: readonly [number, number, number]
  /** The level of no interest: 0 where more is worse, the middle of a diverging scale. */
  centre: number
}

/** Cells [first, past) that a pixel shows, and whether it is the line behind a cell. */
type CellSpan = [first: number, past: number, isGap: boolean]

export function cellsOfPixel(pixel: number, start: number, perPixel: number, count: number): CellSpan {
  const inside = (cell: number): number => Math.max(0, Math.min(count - 1, cell))
  if (perPixel > 1) {
    const first = inside(Math.floor(start + pixel * perPixel))
    return [first, Math.max(first + 1, inside(Math.ceil(start + (pixel + 1) * perPixel) - 1) + 1), false]
  }
  const cell = Math.floor(start + (pixel + 0.5) * perPixel)
  const next = Math.floor(start + (pixel + 1.5) * perPixel)
  return [inside(cell), inside(cell) + 1, perPixel * GAP_FROM_PIXELS <= 1 && next !== cell]
}

/** What each pixel of a side shows; one object where neighbours show the same. */
function spansOf(length: number, from: number, to: number, count: number): CellSpan[] {
  const spans: CellSpan[] = []
  for (let pixel = 0; pixel < length; pixel++) {
    const span = cellsOfPixel(pixel, from, (to - from) / length, count)
    const before = spans[pixel - 1]
    spans.push(before && span.every((part, i) => part === before[i]) ? before : span)
  }
  return spans
}

/** Fills width × height pixels (RGBA as little-endian words). */
export function paintHeat(
  words: Uint32Array,
  width: number,
  height: number,
  { columns, rows, bytes }: HeatCells,
  { x0, x1, y0, y1 }: Rect,
  { palette, background, centre }: HeatStyle,
): void {
  const back = packed(background[0], background[1], background[2])
  const colours = new Uint32Array(512)
  for (let level = 0; level < 256; level++) {
    const rgb = [0, 1, 2].map((part) => palette[4 * level + part])
    const dimmed = rgb.map((part, i) => Math.round(background[i] + (part - background[i]) * DIMMED))
    colours[2 * level] = packed(rgb[0], rgb[1], rgb[2])
    colours[2 * level + 1] = packed(dimmed[0], dimmed[1], dimmed[2])
  }
  const across = spansOf(width, x0, x1, columns)
  const down = spansOf(height, y0, y1, rows)
  for (let y = 0; y < height; y++) {
    const [top, bottom, isRowGap] = down[y]
    const line = y * width
    if (y > 0 && down[y] === down[y - 1]) {
      words.copyWithin(line, line - width, line)
      continue
    }
    for (let x = 0; x < width; x++) {
      const [left, right, isColumnGap] = across[x]
      if (x > 0 && across[x] === across[x - 1]) {
        words[line + x] = words[line + x - 1]
        continue
      }
      if (isRowGap || isColumnGap) {
        words[line + x] = back
        continue
      }
      let shown = 0
      let distance = -1
      for (let row = top; row < bottom; row++) {
        for (let at = 2 * (row * columns + left), end = 2 * (row * columns + right); at < end; at += 2) {
          const level = bytes[at]
          // A brushed cell takes precedence over a dimmed one, and any value over none.
          const rank = level === 0 ? 0 : 1 + Math.abs(level - centre) + (bytes[at + 1] ? 0 : 512)
          if (rank > distance) {
            distance = rank
            shown = 2 * level + bytes[at + 1]
          }
        }
      }
      words[line + x] = colours[shown]
    }
  }
}

function packed(r: number, g: number, b: number): number {
  return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0
}
