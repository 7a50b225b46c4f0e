// A heat map as plain pixels: what the shader of heat.ts does, for browsers without WebGL2. Where a pixel covers several cells
// it shows the one farthest from the centre of the scale, so that a single hot cell among thousands is never averaged away.

/** Cells in reading order, two bytes each: level (0: nothing known) and whether it is dimmed. */
export interface HeatCells {
  columns: number
  rows: number
  bytes: Uint8Array
}

/** The part that is shown, in cells; y downwards. */
export interface HeatWindow {
  x0: number
  x1: number
  y0: number
  y1: number
}

export interface HeatStyle {
  /** 256 colours by level, 4 bytes each. */
  palette: Uint8Array
  /** What dimmed cells fade to and what lies between large cells. */
  background: readonly [number, number, number]
  /** The level of no interest: 0 where more is worse, the middle of a diverging scale. */
  centre: number
}

/** Cells at least so many pixels wide or tall have a line between them. */
export const GAP_FROM_PIXELS = 9
/** The share of its colour that a dimmed cell keeps. */
export const DIMMED = 0.28

/** Cells [first, past) that a pixel shows, and whether it is the line behind a cell. */
export function cellsOfPixel(pixel: number, start: number, perPixel: number, count: number): [number, number, boolean] {
  const inside = (cell: number): number => Math.max(0, Math.min(count - 1, cell))
  if (perPixel > 1) {
    const first = inside(Math.floor(start + pixel * perPixel))
    return [first, Math.max(first + 1, inside(Math.ceil(start + (pixel + 1) * perPixel) - 1) + 1), false]
  }
  const cell = Math.floor(start + (pixel + 0.5) * perPixel)
  const next = Math.floor(start + (pixel + 1.5) * perPixel)
  return [inside(cell), inside(cell) + 1, perPixel * GAP_FROM_PIXELS <= 1 && next !== cell]
}

/** Fills width × height pixels (RGBA as little-endian words). */
export function paintHeat(
  words: Uint32Array,
  width: number,
  height: number,
  { columns, rows, bytes }: HeatCells,
  { x0, x1, y0, y1 }: HeatWindow,
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
  const across = Array.from({ length: width }, (_, x) => cellsOfPixel(x, x0, (x1 - x0) / width, columns))
  for (let y = 0; y < height; y++) {
    const [top, bottom, isRowGap] = cellsOfPixel(y, y0, (y1 - y0) / height, rows)
    for (let x = 0; x < width; x++) {
      const [left, right, isColumnGap] = across[x]
      if (isRowGap || isColumnGap) {
        words[y * width + x] = back
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
      words[y * width + x] = colours[shown]
    }
  }
}

function packed(r: number, g: number, b: number): number {
  return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0
}
