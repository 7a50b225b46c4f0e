// Meshes of a device as tiles of the GL layer: the one place where the key of a band becomes a colour key.

import type { DataClient } from '../../worker/data-client'
import type { Axis, TileKey } from '../../data/model'
import type { Address, Grid as CoverGrid } from '../../gl/cover'
import type { TileProvider, TileSource } from '../../gl/tile-layer'
import { COLUMNS, columnWidth, type Grid, maxYLevel, ROWS, rowHeight, tileName } from '../../layout/grid'
import { shadeOf } from '../shared/colours'

/** Tiles of one device on one axis. `peakBytes`: the greatest height of the stack. */
export function tileProvider(
  client: DataClient,
  device: number,
  axis: Axis,
  grid: Grid,
  peakBytes: number,
): TileProvider {
  const keyOf = (address: Address): TileKey => ({ device, axis, ...address })
  return {
    grid: coverGrid(grid, peakBytes),
    id: (address) => tileName(keyOf(address)),
    cancel: (address) => client.cancel(keyOf(address)),
    async load(address): Promise<TileSource> {
      const mesh = await client.tile(keyOf(address))
      const { rep, stack } = mesh
      const width = columnWidth(grid, address.level)
      const columns = Math.ceil((grid.extent - address.tile * COLUMNS * width) / width)
      return {
        quads: mesh.quads,
        rects: mesh.rects,
        xSpan: mesh.xSpan,
        ySpan: mesh.ySpan,
        version: mesh.version,
        columns: Math.min(COLUMNS, Math.max(1, columns)),
        exact: mesh.exact,
        keyOf: (quad) => ((stack[quad] << 8) | shadeOf(rep[quad])) >>> 0,
      }
    },
  }
}

function coverGrid(grid: Grid, peakBytes: number): CoverGrid {
  return {
    x0: grid.origin,
    y0: 0,
    width: COLUMNS * columnWidth(grid, 0),
    height: ROWS * rowHeight(grid, 0),
    xEnd: grid.origin + grid.extent,
    yEnd: Math.max(1, peakBytes),
    maxLevel: grid.depth,
    maxYLevel: maxYLevel(grid),
    columns: COLUMNS,
    rows: ROWS,
  }
}
