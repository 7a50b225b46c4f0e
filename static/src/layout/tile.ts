// One tile from the exact columns, or from spans that the file holds: samples → spans → mesh, with as few quads as asked.

import type { TileKey, TileMesh } from '../data/model'
import { COLUMNS, columnWidth, eventGrid, type Grid, type GridSource, rowHeight, timeGrid } from './grid'
import { meshOf, TooManyQuads } from './mesh'
import { eventSamples, type Samples, timeSamples } from './sampling'
import { type Lifetimes, type Spans, tileSpans } from './spans'

/** More than this is neither quick to upload nor told apart on a screen. */
export const MAX_QUADS = 60_000
/** A tile that is still too large after this many doublings is drawn as it is: 2**8 rows are a quarter of the height. */
const MAX_COARSENED = 8

/** What the worker keeps of a device. */
export interface TileSource extends GridSource, Lifetimes {
  clockUs: Float64Array | null
}

export function gridFor(source: TileSource, key: TileKey): Grid {
  if (key.axis === 'event') return eventGrid(source)
  const clock = source.clockUs
  if (!clock) throw new Error(`device ${key.device} was recorded without times`)
  return timeGrid(source, clock.length > 0 ? clock[clock.length - 1] : 0)
}

export function samplesFor(source: TileSource, grid: Grid, key: TileKey): Samples {
  return key.axis === 'event'
    ? eventSamples(source.allocated, grid, key.level, key.tile)
    : timeSamples(source.allocated, source.clockUs!, grid, key.level, key.tile)
}

/** Lay a tile out. Where it would need too many quads, the row that merges and cuts is doubled until they fit. */
export function layOutTile(source: TileSource, key: TileKey, maxQuads = MAX_QUADS): TileMesh {
  const grid = gridFor(source, key)
  const samples = samplesFor(source, grid, key)
  for (let coarsened = 0; ; ) {
    const tolerance = rowHeight(grid, key.yLevel) * 2 ** coarsened
    const spans = tileSpans(source, samples.s, tolerance)
    const limit = coarsened < MAX_COARSENED ? maxQuads : Infinity
    const mesh = meshOf(grid, key, spans, samples.s.length, samples, { cut: tolerance / 2, coarsened, maxQuads: limit })
    if (!(mesh instanceof TooManyQuads)) return mesh
    coarsened = nextStep(coarsened, mesh)
  }
}

/** The mesh of a stored tile: it needs no column of the device, which makes it the first picture of a large report. */
export function meshStored(source: GridSource, key: TileKey, spans: Spans, maxQuads = MAX_QUADS): TileMesh {
  const grid = eventGrid(source)
  const width = columnWidth(grid, key.level)
  const columns = Math.min(COLUMNS, Math.ceil((grid.extent - key.tile * COLUMNS * width) / width))
  for (let coarsened = 0; ; ) {
    const cut = (rowHeight(grid, key.yLevel) * 2 ** coarsened) / 2
    const limit = coarsened < MAX_COARSENED ? maxQuads : Infinity
    const mesh = meshOf(grid, key, spans, columns, null, { cut, coarsened, maxQuads: limit })
    if (!(mesh instanceof TooManyQuads)) return mesh
    coarsened = nextStep(coarsened, mesh)
  }
}

/** A doubling takes a little more than half of the quads away; several at once where many are needed, as a pass costs. */
function nextStep(coarsened: number, { ratio }: TooManyQuads): number {
  return Math.min(MAX_COARSENED, coarsened + Math.max(1, Math.floor(0.8 * Math.log2(ratio))))
}
