// Stacks as pixels, column by column.

import { word } from '../segments/inks'
import type { Rgb } from '../segments/row-raster'
import type { Columns, Stack } from './columns'
import type { SegmentStack } from './segment-stack'

/** Areas on top of each other. `byteTop`: bytes of the whole height. */
export function paintStack(out: Uint32Array, width: number, height: number, stack: Stack, byteTop: number, colours: readonly Rgb[]): void {
  const words = colours.map(word)
  const perByte = height / byteTop
  for (let x = 0; x < width; x++) {
    let bottom = height
    for (let part = 0; part < stack.tops.length; part++) {
      const top = stack.tops[part][x] * perByte
      // A part of any size is one pixel at least: it is there.
      const below = part === 0 ? 0 : stack.tops[part - 1][x] * perByte
      const to = top > below ? Math.min(Math.round(height - top), bottom - 1) : bottom
      for (let y = Math.max(0, to); y < bottom; y++) out[y * width + x] = words[part]
      bottom = Math.max(0, Math.min(bottom, to))
    }
  }
}

/** Segments on top of each other, each with a line at its top where it is tall enough to be told apart. */
export function paintSegments(out: Uint32Array, width: number, height: number, piles: SegmentStack, columns: Columns, byteTop: number, groupOf: Uint16Array, colours: readonly Rgb[]): void {
  const perByte = height / byteTop
  const fills = colours.map(word)
  const alternates = colours.map(([r, g, b]) => word([r * 0.9, g * 0.9, b * 0.9].map(Math.round) as unknown as Rgb))
  const edges = colours.map(([r, g, b]) => word([r * 0.66, g * 0.66, b * 0.66].map(Math.round) as unknown as Rgb))
  piles.rewind()
  for (let x = 0; x < width; x++) {
    const { rows, tops } = piles.at(columns.position[x])
    let bottom = height
    for (let i = 0; i < rows.length && bottom > 0; i++) {
      const group = groupOf[rows[i]]
      const top = Math.max(0, Math.round(height - tops[i] * perByte))
      if (top >= bottom) continue // thinner than what is left of a pixel: the next one above takes it
      const ink = i & 1 ? alternates[group] : fills[group]
      for (let y = top; y < bottom; y++) out[y * width + x] = ink
      if (bottom - top >= 4) out[top * width + x] = edges[group]
      bottom = top
    }
  }
}
