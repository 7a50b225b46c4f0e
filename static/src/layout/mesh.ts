// Spans → rectangles. Every span has one height; where the stack below it moves, it is cut, and each piece lies at the
// offset of its first column. Origins are per tile and in doubles: float32 alone is exact only to 16 MiB.

import type { TileKey, TileMesh } from '../data/model'
import { columnWidth, type Grid, tileRect } from './grid'
import type { Samples } from './sampling'
import type { Spans } from './spans'

export interface MeshOptions {
  /** A piece may lie this many bytes from where its column has it, before it is cut. */
  cut: number
  coarsened: number
  /** Give up beyond this many quads. */
  maxQuads: number
}

/** A mesh that would need more quads than allowed: about how many times too many. */
export class TooManyQuads {
  constructor(readonly ratio: number) {}
}

/**
 * The mesh of a tile, unless it needs more quads than allowed. `columns`: columns that hold data; `samples` may be null
 * when the device is not decoded yet.
 */
export function meshOf(
  grid: Grid,
  key: TileKey,
  spans: Spans,
  columns: number,
  samples: Samples | null,
  { cut, coarsened, maxQuads }: MeshOptions,
): TileMesh | TooManyQuads {
  const width = columnWidth(grid, key.level)
  const { x0, y0, xSpan, ySpan } = tileRect(grid, key)
  const top = y0 + ySpan
  const base = new Float64Array(columns)
  const quads = new Quads(Math.min(maxQuads, spans.count + 1024))
  let merged = 0
  for (let i = 0; i < spans.count; i++) {
    const height = spans.bytes[i]
    if (height === 0) continue
    const end = spans.first[i] + spans.length[i]
    let from = spans.first[i]
    let level = base[from]
    for (let c = from; c < end; c++) {
      const here = base[c]
      const moved = here - level
      if (moved > cut || -moved > cut) {
        if (level < top && level + height > y0) {
          if (quads.count === maxQuads) return new TooManyQuads(spans.count / (i + 1))
          quads.add(i, from * width, c * width, level - y0, height, ySpan)
        }
        from = c
        level = here
      }
      base[c] = here + height
    }
    if (level < top && level + height > y0) {
      if (quads.count === maxQuads) return new TooManyQuads(spans.count / (i + 1))
      quads.add(i, from * width, end * width, level - y0, height, ySpan)
    }
  }
  const n = quads.count
  const mesh: TileMesh = {
    key,
    exact: samples ? samples.exact : width === 1,
    merged: 0,
    coarsened,
    x0,
    y0,
    xSpan,
    ySpan,
    quads: n,
    rects: quads.rects.slice(0, 4 * n),
    rep: new Int32Array(n),
    stack: new Int32Array(n),
    category: new Uint8Array(n),
    count: new Int32Array(n),
    bytes: new Float64Array(n),
    samples: samples ? samples.s : new Int32Array(0),
  }
  for (let q = 0; q < n; q++) {
    const i = quads.span[q]
    mesh.rep[q] = spans.rep[i]
    mesh.stack[q] = spans.stack[i]
    mesh.category[q] = spans.category[i]
    mesh.count[q] = spans.members[i]
    mesh.bytes[q] = spans.bytes[i]
    if (spans.members[i] > 1) merged++
  }
  mesh.merged = merged
  return mesh
}

/** Rectangles in growing arrays, with the span each was cut from. */
class Quads {
  count = 0
  rects: Float32Array
  span: Uint32Array

  constructor(capacity: number) {
    this.rects = new Float32Array(4 * capacity)
    this.span = new Uint32Array(capacity)
  }

  /** y is kept within one tile height of the tile, so that float32 stays sharp where it is seen. */
  add(span: number, xa: number, xb: number, ya: number, height: number, ySpan: number): void {
    if (this.count === this.span.length) this.grow()
    const yb = ya + height
    const at = 4 * this.count
    this.rects[at] = xa
    this.rects[at + 1] = xb
    this.rects[at + 2] = ya < -ySpan ? -ySpan : ya
    this.rects[at + 3] = yb > 2 * ySpan ? 2 * ySpan : yb
    this.span[this.count++] = span
  }

  private grow(): void {
    const rects = new Float32Array(this.rects.length * 2)
    rects.set(this.rects)
    this.rects = rects
    const span = new Uint32Array(this.span.length * 2)
    span.set(this.span)
    this.span = span
  }
}
