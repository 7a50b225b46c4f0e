// Windows and tiles of the timeline: their axis, their names, what their bands are named by, and their rectangles.

export type Axis = 'event' | 'time'

/**
 * A window in view space: x in axis units (event axis: position s occupies [s-1, s);
 * time axis: µs since time0), y in bytes from the bottom of the stack.
 */
export interface ViewWindow {
  x0: number
  x1: number
  y0: number
  y1: number
}

/** Level k has 2^k tiles of 1024 columns; y level j has 2^j tiles of 1024 rows. */
export interface TileKey {
  /** DeviceInfo.index */
  device: number
  axis: Axis
  level: number
  tile: number
  yLevel: number
  yTile: number
}

/** What bands are named by in place of their stacks: what colours stand for, and what a query matches. */
export interface BandKeys {
  /** Grows with every change; 0: stacks, as the file's own tiles have them. */
  version: number
  /** Key of each allocation (length N); null: its stack. */
  keys: Uint32Array | null
  /** Keys are 2 * key + 1 for what a query matches, 2 * key for the rest: a band with any match is named by its matches. */
  matched: boolean
  /** Bytes in place of the recorded ones, by allocation, and allocated with them by position; null: as recorded. */
  shown?: { size: Float64Array; allocated: Float64Array } | null
}

/** One tile as rectangles, ready for a vertex buffer. Quads are in stacking order within a column, bottom first. */
export interface TileMesh {
  key: TileKey
  /** Every column stands for one position. */
  exact: boolean
  /** Quads that stand for more than one allocation. */
  merged: number
  /** Doublings of the row tolerance that were needed to stay under the limit of quads; 0 as a rule. */
  coarsened: number
  /** Origin in axis units and bytes; float32 alone is exact only to 16 MiB. */
  x0: number
  y0: number
  xSpan: number
  ySpan: number
  quads: number
  /** 4 per quad: xa, xb, ya, yb relative to the origin, in axis units and bytes. y is clamped to one ySpan outside the tile. */
  rects: Float32Array
  /** Allocation that stands for the quad. */
  rep: Int32Array
  /** Stack, or other key (see BandKeys), with most bytes in the quad. */
  stack: Int32Array
  /** BandKeys.version of the keys in `stack`. */
  version: number
  category: Uint8Array
  /** Allocations in the quad. */
  count: Int32Array
  /** Exact bytes of the quad: its height. */
  bytes: Float64Array
  /** Position that each column shows; empty when the tile came from the file before its columns were decoded. */
  samples: Int32Array
}
