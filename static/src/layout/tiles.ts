// Which tiles a window needs: the level at which a column is about a device pixel wide, and a row about one high.

import type { TileKey, ViewWindow } from '../data/model'
import { COLUMNS, columnWidth, type Grid, maxYLevel, rowHeight, ROWS, tileCount } from './grid'

/** The level whose columns are nearest to one device pixel (on a log scale). */
export function levelFor(grid: Grid, view: ViewWindow, widthDevicePx: number): number {
  const unitsPerPx = (view.x1 - view.x0) / Math.max(1, widthDevicePx)
  return Math.min(grid.depth, Math.max(0, Math.round(grid.depth - Math.log2(unitsPerPx))))
}

/** The y level whose rows are nearest to one device pixel. */
export function yLevelFor(grid: Grid, view: ViewWindow, heightDevicePx: number): number {
  const bytesPerPx = (view.y1 - view.y0) / Math.max(1, heightDevicePx)
  return Math.min(maxYLevel(grid), Math.max(0, Math.round(Math.log2(grid.tolerance / bytesPerPx))))
}

/** The tiles of one level and y level that a window touches, left to right and upwards. */
export function tilesOf(grid: Grid, device: number, view: ViewWindow, level: number, yLevel: number): TileKey[] {
  const xSpan = COLUMNS * columnWidth(grid, level)
  const ySpan = ROWS * rowHeight(grid, yLevel)
  const [t0, t1] = touched(view.x0 - grid.origin, view.x1 - grid.origin, xSpan, tileCount(grid, level))
  const [u0, u1] = touched(view.y0, view.y1, ySpan, 2 ** yLevel)
  const keys: TileKey[] = []
  for (let yTile = u0; yTile <= u1; yTile++) {
    for (let tile = t0; tile <= t1; tile++) keys.push({ device, axis: grid.axis, level, tile, yLevel, yTile })
  }
  return keys
}

/** The tiles to draw for a window on a plot of this many device pixels. */
export function chooseTiles(grid: Grid, device: number, view: ViewWindow, widthDevicePx: number, heightDevicePx: number): TileKey[] {
  return tilesOf(grid, device, view, levelFor(grid, view, widthDevicePx), yLevelFor(grid, view, heightDevicePx))
}

/**
 * Tiles that cover this one, nearest first, down to level 0: what to show until it arrives. Per step the axis that is
 * further from its coarsest is halved.
 */
export function coveringTiles(key: TileKey): TileKey[] {
  const keys: TileKey[] = []
  let { level, tile, yLevel, yTile } = key
  while (level > 0 || yLevel > 0) {
    if (level >= yLevel) {
      level--
      tile >>= 1
    } else {
      yLevel--
      yTile = Math.floor(yTile / 2)
    }
    keys.push({ ...key, level, tile, yLevel, yTile })
  }
  return keys
}

/** First and last index of the cells of this size that [from, to) touches, among `count`. */
function touched(from: number, to: number, size: number, count: number): [number, number] {
  const first = Math.min(count - 1, Math.max(0, Math.floor(from / size)))
  const last = Math.min(count - 1, Math.max(first, Math.ceil(to / size) - 1))
  return [first, last]
}
