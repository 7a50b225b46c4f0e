// The pyramid of tiles over a device: how wide a column is, where a tile lies.
//
// Level 0 is one tile over everything; level k cuts the x axis in 2**k tiles of COLUMNS columns. Column widths are powers
// of two axis units, so that columns of all levels nest. y level j cuts the height in
// 2**j tiles of ROWS rows in the same way.

import type { Axis, DeviceData, TileKey } from '../data/model'
import { axisClock } from './gaps'

export const COLUMNS = 1024
export const ROWS = 1024

export interface Grid {
  axis: Axis
  /** The finest level, whose columns are one unit wide: one position, or one µs. */
  depth: number
  /** Units that hold data: P positions, or µs up to and with the last event. */
  extent: number
  /** Where unit 0 lies in view space: position s occupies [s-1, s) on the event axis. */
  origin: number
  /** Bytes of one row at y level 0. */
  tolerance: number
}

/** What a grid needs of a device; both DeviceInfo and DeviceData have it. */
export interface GridSource {
  events: number
  peak_bytes: number
}

function depthFor(extent: number): number {
  let depth = 0
  while (COLUMNS * 2 ** depth < extent) depth++
  return depth
}

export function eventGrid(source: GridSource): Grid {
  const extent = source.events + 1
  return { axis: 'event', depth: depthFor(extent), extent, origin: -1, tolerance: rowTolerance(source.peak_bytes) }
}

/** `lastUs`: where the last event lies on the axis of time (gaps.ts). */
export function timeGrid(source: GridSource, lastUs: number): Grid {
  const extent = Math.floor(lastUs) + 1
  return { axis: 'time', depth: depthFor(extent), extent, origin: 0, tolerance: rowTolerance(source.peak_bytes) }
}

/** The grid of a decoded device. Throws on the time axis of a snapshot without times. */
export function gridOf(d: DeviceData, axis: Axis): Grid {
  if (axis === 'event') return eventGrid(d.info)
  if (!d.clockUs) throw new Error(`device ${d.info.device} was recorded without times`)
  return timeGrid(d.info, d.n > 0 ? axisClock(d.clockUs).us[d.n - 1] : 0)
}

function rowTolerance(peakBytes: number): number {
  return Math.max(1, Math.ceil(peakBytes / ROWS))
}

/** Units per column of a level. */
export function columnWidth(grid: Grid, level: number): number {
  return 2 ** (grid.depth - level)
}

/** Tiles of a level that hold data. */
export function tileCount(grid: Grid, level: number): number {
  return Math.max(1, Math.ceil(grid.extent / (COLUMNS * columnWidth(grid, level))))
}

/** Bytes of one row of a y level. */
export function rowHeight(grid: Grid, yLevel: number): number {
  return grid.tolerance / 2 ** yLevel
}

/** The finest y level: a row below half a byte would show nothing new. */
export function maxYLevel(grid: Grid): number {
  return Math.max(0, Math.ceil(Math.log2(grid.tolerance)) + 1)
}

/** How large a tile is in view space, and at which byte it begins. */
export function tileRect(grid: Grid, key: TileKey): { y0: number; xSpan: number; ySpan: number } {
  const xSpan = COLUMNS * columnWidth(grid, key.level)
  const ySpan = ROWS * rowHeight(grid, key.yLevel)
  return { y0: key.yTile * ySpan, xSpan, ySpan }
}

/** One string per tile, for maps. */
export function tileName(key: TileKey): string {
  return `${key.device}/${key.axis}/${key.level}.${key.tile}/${key.yLevel}.${key.yTile}`
}
