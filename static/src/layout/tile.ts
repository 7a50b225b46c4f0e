// One tile from the exact columns: samples → spans → mesh, with as few quads as asked.

import type { TileKey, TileMesh, Times } from '../data/model'
import { columnWidth, eventGrid, type Grid, type GridSource, rowHeight, tileRect, timeGrid } from './grid'
import { eventSamples, type Samples, timeSamples } from './sampling'
import { type Band, layOut } from './spans'
import type { SpanSink } from './sweep'
import { type Lifetimes, visibleIn } from './pick'

/**
 * More quads are slow to paint and cannot be distinguished on a screen. Fewer would change the picture: at 24,000 two
 * tiles of a real training step merge bands of four rows, whose mixed colours become the one of the heaviest.
 */
const MAX_QUADS = 60_000
/** A tile that is still too large after this many doublings is drawn anyway: 2**8 rows are a quarter of the height. */
const MAX_COARSENED = 8

/** The columns of a device that stay in the worker. */
export interface TileSource extends GridSource, Lifetimes {
  /** Where events lie on the axis of time (gaps.ts). */
  axisUs: Times | null
}

function gridFor(source: TileSource, key: TileKey): Grid {
  if (key.axis === 'event') return eventGrid(source)
  const us = source.axisUs
  if (!us) throw new Error(`device ${key.device} was recorded without times`)
  return timeGrid(source, us.length > 0 ? us[us.length - 1] : 0)
}

function samplesFor(source: TileSource, grid: Grid, key: TileKey): Samples {
  return key.axis === 'event'
    ? eventSamples(source.allocated, grid, key.level, key.tile)
    : timeSamples(source.allocated, source.axisUs!, grid, key.level, key.tile)
}

/** Lays out a tile. Where it would need too many quads, the row height that merges and cuts is doubled until they fit. */
export function layOutTile(source: TileSource, key: TileKey, maxQuads = MAX_QUADS): TileMesh {
  const grid = gridFor(source, key)
  const samples = samplesFor(source, grid, key)
  const visible = visibleIn(source, samples.s)
  for (let coarsened = 0; ; ) {
    const tolerance = rowHeight(grid, key.yLevel) * 2 ** coarsened
    const limit = coarsened < MAX_COARSENED ? maxQuads : Infinity
    const mesher = new Mesher(grid, key, { columns: samples.s.length, cut: tolerance / 2, maxQuads: limit })
    const done = layOut(source, visible, tolerance, mesher, mesher)
    if (!mesher.full) return mesher.mesh(samples.exact, source.bandKeys?.version)
    coarsened = coarser(coarsened, visible.count / Math.max(1, done))
  }
}

/**
 * The next step for a mesh that was too large by about this ratio. A doubling takes a little more than half of the quads
 * away; several at once where many are needed, since a pass costs.
 */
function coarser(coarsened: number, ratio: number): number {
  return Math.min(MAX_COARSENED, coarsened + Math.max(1, Math.floor(0.8 * Math.log2(ratio))))
}

interface MeshOptions {
  /** Columns that hold data. */
  columns: number
  /** A piece may lie this many bytes from where its column has it, before it is cut. */
  cut: number
  /** The most quads to take. */
  maxQuads: number
}

/** Takes spans in stacking order and makes the quads that show in a tile. */
class Mesher implements SpanSink, Band {
  readonly y0: number
  /** A quad did not fit: the mesh must not be used. */
  full = false
  private readonly xSpan: number
  private readonly ySpan: number
  private readonly top: number
  private readonly width: number
  private readonly cut: number
  private readonly maxQuads: number
  /** Where the next span of a column lies. */
  private readonly base: Float64Array
  /** Differences of what lies under the tile, until the first span. */
  private steps: Float64Array | null = null
  private quads = 0
  private rects: Float32Array
  private rep: Int32Array
  private stack: Int32Array

  constructor(grid: Grid, key: TileKey, { columns, cut, maxQuads }: MeshOptions) {
    const { y0, xSpan, ySpan } = tileRect(grid, key)
    this.y0 = y0
    this.xSpan = xSpan
    this.ySpan = ySpan
    this.top = y0 + ySpan
    this.width = columnWidth(grid, key.level)
    this.cut = cut
    this.maxQuads = maxQuads
    this.base = new Float64Array(columns)
    const capacity = 2048
    this.rects = new Float32Array(4 * capacity)
    this.rep = new Int32Array(capacity)
    this.stack = new Int32Array(capacity)
  }

  under(c0: number, c1: number, bytes: number): void {
    this.steps ??= new Float64Array(this.base.length + 1)
    this.steps[c0] += bytes
    this.steps[c1] -= bytes
  }

  reached(column: number): boolean {
    if (this.steps) this.settle()
    return this.base[column] >= this.top
  }

  add(first: number, length: number, rep: number, stack: number, _members: number, bytes: number): void {
    if (bytes === 0) return // counted, but there is nothing to draw
    if (this.steps) this.settle()
    const { base, cut, y0, top } = this
    const end = first + length
    let from = first
    let level = base[from]
    // A piece reaches from its lowest bottom to its highest top: what lies above is drawn later and covers the excess,
    // while a piece of constant height would leave slits of up to `cut` where the stack below it moved.
    let low = level
    let high = level
    for (let c = first; c < end; c++) {
      const here = base[c]
      if (here - level > cut || level - here > cut) {
        if (low < top && high + bytes > y0) this.quad(from, c, low, high + bytes, rep, stack)
        from = c
        level = low = high = here
      } else if (here < low) low = here
      else if (here > high) high = here
      base[c] = here + bytes
    }
    if (low < top && high + bytes > y0) this.quad(from, end, low, high + bytes, rep, stack)
  }

  /** The mesh. version: of the keys that the spans are named by. */
  mesh(exact: boolean, version = 0): TileMesh {
    const { quads, xSpan, ySpan } = this
    return {
      exact,
      version,
      xSpan,
      ySpan,
      quads,
      rects: this.rects.slice(0, 4 * quads),
      rep: this.rep.slice(0, quads),
      stack: this.stack.slice(0, quads),
    }
  }

  /** y is kept within one tile height of the tile, so that float32 stays sharp where it is seen. */
  private quad(from: number, end: number, low: number, high: number, rep: number, stack: number): void {
    const q = this.quads
    if (q === this.maxQuads) {
      this.full = true
      return
    }
    if (q === this.rep.length) this.grow()
    const { rects, y0, ySpan, width } = this
    rects[4 * q] = from * width
    rects[4 * q + 1] = end * width
    rects[4 * q + 2] = Math.max(-ySpan, low - y0)
    rects[4 * q + 3] = Math.min(2 * ySpan, high - y0)
    this.rep[q] = rep
    this.stack[q] = stack
    this.quads = q + 1
  }

  private settle(): void {
    const steps = this.steps!
    this.steps = null
    let sum = 0
    for (let c = 0; c < this.base.length; c++) this.base[c] = sum += steps[c]
  }

  private grow(): void {
    const longer = <T extends Float32Array | Int32Array>(old: T): T => {
      const array = new (old.constructor as new (length: number) => T)(old.length * 2)
      array.set(old)
      return array
    }
    this.rects = longer(this.rects)
    this.rep = longer(this.rep)
    this.stack = longer(this.stack)
  }
}
