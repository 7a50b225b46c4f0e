// Stacks as pixels, column by column: pixels of one column are contiguous, `out[x * height + y]`, so that a run is filled
// at once. Written straight into rows, every pixel was in another line of the processor's cache: 30 ms of a first picture.

import { word } from '../shared/inks'
import type { Rgb } from '../shared/inks'
import type { Pile, SegmentStack } from './segment-stack'

/** Areas on top of each other. `tops`: the upper edge of each by column; `byteTop`: bytes of the whole height. */
export function paintStack(
  out: Uint32Array,
  width: number,
  height: number,
  tops: readonly Float64Array[],
  byteTop: number,
  colours: readonly Rgb[],
): void {
  const words = colours.map(word)
  const perByte = height / byteTop
  for (let x = 0; x < width; x++) {
    let bottom = height
    for (let part = 0; part < tops.length; part++) {
      const top = tops[part][x] * perByte
      // A part of any size is one pixel at least, so that it shows.
      const below = part === 0 ? 0 : tops[part - 1][x] * perByte
      const to = top > below ? Math.min(Math.round(height - top), bottom - 1) : bottom
      if (to < bottom) out.fill(words[part], x * height + Math.max(0, to), x * height + bottom)
      bottom = Math.max(0, Math.min(bottom, to))
    }
  }
}

/** Segments on top of each other, each with a line at its top where it is tall enough. */
export function paintSegments(
  out: Uint32Array,
  width: number,
  height: number,
  piles: SegmentStack,
  columns: Int32Array,
  byteTop: number,
  groupOf: Uint16Array,
  colours: readonly Rgb[],
): void {
  const perByte = height / byteTop
  const fills = colours.map(word)
  const alternates = colours.map(([r, g, b]) => word([r * 0.9, g * 0.9, b * 0.9].map(Math.round) as unknown as Rgb))
  const edges = colours.map(([r, g, b]) => word([r * 0.66, g * 0.66, b * 0.66].map(Math.round) as unknown as Rgb))
  piles.rewind()
  let before: Pile | null = null
  for (let x = 0; x < width; x++) {
    const pile = piles.at(columns[x])
    if (pile === before) {
      // Segments rarely change: most columns equal the one before.
      out.copyWithin(x * height, (x - 1) * height, x * height)
      continue
    }
    before = pile
    const { rows, tops } = pile
    let bottom = height
    for (let i = 0; i < rows.length && bottom > 0; i++) {
      const group = groupOf[rows[i]]
      const top = Math.max(0, Math.round(height - tops[i] * perByte))
      if (top >= bottom) continue // thinner than the rest of a pixel, which the next one above fills
      const ink = i & 1 ? alternates[group] : fills[group]
      out.fill(ink, x * height + top, x * height + bottom)
      if (bottom - top >= 4) out[x * height + top] = edges[group]
      bottom = top
    }
  }
}

/** A line of two pixels at the values of the columns, joined by uprights. */
export function drawCurve(
  out: Uint32Array,
  width: number,
  height: number,
  values: Float64Array,
  byteTop: number,
  ink: number,
): void {
  let before = -1
  for (let x = 0; x < width; x++) {
    const y = Math.min(height - 1, Math.max(0, Math.round(height - (values[x] / byteTop) * height)))
    const from = before < 0 ? y : Math.min(y, before)
    const to = before < 0 ? y : Math.max(y, before)
    // Uprights in column after column would hide the areas behind them.
    const isDense = x > 1 && values[x] !== values[x - 1] && values[x - 1] !== values[x - 2]
    for (let at = from; at <= Math.min(height - 1, Math.max(to, y + 1)); at++) {
      const place = x * height + at
      out[place] = isDense && at !== y && at !== y + 1 ? halfway(out[place], ink) : ink
    }
    before = y
  }
}

/** Two pixels mixed, half of each. */
function halfway(a: number, b: number): number {
  return (((a & 0xfefefe) >>> 1) + ((b & 0xfefefe) >>> 1)) | (255 << 24)
}
