// Rectangles → pixels by the processor alone, with the rules of the shader in tile-painter.ts: the same pixels are covered,
// in the same colours. Work is pixels: 25,000 quads over 1024 × 1024 take some 10 ms, less than WebGL needs to begin.

import type { QuadSource } from './tile-stage'

/** Pixels. `words` is RGBA in memory order, as ImageData has it. */
export interface Raster {
  words: Uint32Array
  width: number
  height: number
  /** The lowest row is first, as in textures; else the upper one. */
  bottomUp?: boolean
}

/** Entries of the palette with less than full alpha are hatched: a pixel every so many along each row is lighter, or darker. */
export const HATCH = 6
/** The share of white or black in it. */
export const HATCH_SHARE = 0.4
export const HATCHED = 254

/** How much darker the lowest row of a band is at most. */
const EDGE = 0.34

/** Fills quads [from, from + count) so that xScale × source.ySpan units are the whole raster. rgba: 4 bytes per key. */
export function fillQuads(
  out: Raster,
  rgba: Uint8Array,
  source: QuadSource,
  from: number,
  count: number,
  xScale: number,
): void {
  const { words, width, height, bottomUp } = out
  const { rects } = source
  const perX = width / xScale
  const perY = height / source.ySpan
  for (let quad = from; quad < from + count; quad++) {
    // A pixel belongs to a quad that holds its middle.
    const x0 = Math.max(0, Math.ceil(rects[4 * quad] * perX - 0.5))
    const x1 = Math.min(width, Math.ceil(rects[4 * quad + 1] * perX - 0.5))
    const bottom = rects[4 * quad + 2] * perY
    const top = rects[4 * quad + 3] * perY
    const low = Math.max(0, Math.ceil(bottom - 0.5))
    const high = Math.min(height, Math.ceil(top - 0.5))
    if (x1 <= x0 || high <= low) continue
    const key = source.keyOf(quad)
    const at = 4 * (key >>> 8)
    const bright = 1 + 0.09 * ((key & 255) / 128 - 1)
    const inside = pack(rgba, at, bright)
    const stripe = rgba[at + 3] < 255 ? pack(rgba, at, bright, 1, inkOf(rgba, at, bright)) : 0
    const rows = top - bottom
    const fade = rows >= 12 ? 1 : rows <= 3 ? 0 : (rows - 3) / 9
    const edge = fade > 0 ? pack(rgba, at, bright, 1 - EDGE * fade) : inside
    for (let row = low; row < high; row++) {
      const color = row + 0.5 - bottom < 1 ? edge : inside
      const line = (bottomUp ? row : height - 1 - row) * width
      if (x1 - x0 > 32) words.fill(color, line + x0, line + x1)
      else for (let i = line + x0; i < line + x1; i++) words[i] = color
      if (stripe === 0) continue
      for (let x = x0 + ((((row - x0) % HATCH) + HATCH) % HATCH); x < x1; x += HATCH) words[line + x] = stripe
    }
  }
}

/** One opaque word of a palette entry. */
function pack(rgba: Uint8Array, at: number, bright: number, dark = 1, ink: number | null = null): number {
  const r = channel(rgba[at], bright, dark, ink)
  const g = channel(rgba[at + 1], bright, dark, ink)
  const b = channel(rgba[at + 2], bright, dark, ink)
  return LITTLE_ENDIAN ? ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0 : ((r << 24) | (g << 16) | (b << 8) | 255) >>> 0
}

function channel(value: number, bright: number, dark: number, ink: number | null): number {
  const plain = Math.min(255, value * bright) * dark
  return Math.round(ink === null ? plain : plain * (1 - HATCH_SHARE) + ink * HATCH_SHARE)
}

/** White on dark colours, black on light ones. */
function inkOf(rgba: Uint8Array, at: number, bright: number): number {
  return bright * (0.299 * rgba[at] + 0.587 * rgba[at + 1] + 0.114 * rgba[at + 2]) < 0.6 * 255 ? 255 : 0
}

/** The word of an opaque colour (0…1 each). */
export function packColour([r, g, b]: readonly [number, number, number]): number {
  return pack(Uint8Array.of(Math.round(255 * r), Math.round(255 * g), Math.round(255 * b)), 0, 1)
}

const LITTLE_ENDIAN = new Uint8Array(Uint32Array.of(1).buffer)[0] === 1
