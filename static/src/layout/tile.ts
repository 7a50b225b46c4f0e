// One tile from the exact columns, or from spans that the file holds: samples → spans → mesh, with as few quads as asked.

import type { TileKey, TileMesh } from '../data/model'
import { COLUMNS, columnWidth, eventGrid, type Grid, type GridSource, rowHeight, timeGrid } from './grid'
import { Mesher } from './mesh'
import { eventSamples, type Samples, timeSamples } from './sampling'
import { layOut, type Spans } from './spans'
import { type Lifetimes, visibleIn } from './visible'

/**
 * More quads are slow to paint and cannot be distinguished on a screen. Fewer would change the picture: at 24,000 two
 * tiles of a real training step merge bands of four rows, whose mixed colours become the one of the heaviest.
 */
export const MAX_QUADS = 60_000
/** A tile that is still too large after this many doublings is drawn anyway: 2**8 rows are a quarter of the height. */
const MAX_COARSENED = 8

/** The columns of a device that stay in the worker. */
export interface TileSource extends GridSource, Lifetimes {
  clockUs: Float64Array | null
}

function gridFor(source: TileSource, key: TileKey): Grid {
  if (key.axis === 'event') return eventGrid(source)
  const clock = source.clockUs
  if (!clock) throw new Error(`device ${key.device} was recorded without times`)
  return timeGrid(source, clock.length > 0 ? clock[clock.length - 1] : 0)
}

function samplesFor(source: TileSource, grid: Grid, key: TileKey): Samples {
  return key.axis === 'event'
    ? eventSamples(source.allocated, grid, key.level, key.tile)
    : timeSamples(source.allocated, source.clockUs!, grid, key.level, key.tile)
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
    if (!mesher.full) return mesher.mesh((rep) => source.category[rep], samples, coarsened, source.bandKeys?.version)
    coarsened = coarser(coarsened, visible.count / Math.max(1, done))
  }
}

/** The mesh of a stored tile: it needs no column of the device, which makes it the first picture of a large report. */
export function meshStored(source: GridSource, key: TileKey, spans: Spans, maxQuads = MAX_QUADS): TileMesh {
  const grid = eventGrid(source)
  const width = columnWidth(grid, key.level)
  const columns = Math.min(COLUMNS, Math.ceil((grid.extent - key.tile * COLUMNS * width) / width))
  const categoryOf = new Map<number, number>()
  for (let i = 0; i < spans.count; i++) categoryOf.set(spans.rep[i], spans.category[i])
  // Stored spans cannot be merged further here, only cut less often: beyond one doubling that hides movement and saves
  // little. Once the columns are decoded the tile can be laid out with fewer.
  for (let coarsened = 0; ; coarsened++) {
    const cut = (rowHeight(grid, key.yLevel) * 2 ** coarsened) / 2
    const limit = coarsened === 0 && spans.count < maxQuads ? maxQuads : Infinity
    const mesher = new Mesher(grid, key, { columns, cut, maxQuads: limit })
    for (let i = 0; i < spans.count && !mesher.full; i++) {
      mesher.add(spans.first[i], spans.length[i], spans.rep[i], spans.stack[i], spans.members[i], spans.bytes[i])
    }
    if (!mesher.full) return mesher.mesh((rep) => categoryOf.get(rep)!, null, coarsened)
  }
}

/**
 * The next step for a mesh that was too large by about this ratio. A doubling takes a little more than half of the quads
 * away; several at once where many are needed, since a pass costs.
 */
function coarser(coarsened: number, ratio: number): number {
  return Math.min(MAX_COARSENED, coarsened + Math.max(1, Math.floor(0.8 * Math.log2(ratio))))
}
