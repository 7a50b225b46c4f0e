// The types that the rooms of the page share: a device's columns, stacks, and tiles; the manifest's are in a file of their own. Data only: no code, no DOM, no GL.
//
// Words used everywhere:
//   event     index into the recorded events, 0 … n-1
//   position  s = event + 1, 0 … P-1 with P = n + 1; s = 0 is the state before the first event
//   id        allocation, in birth order, 0 … N-1
// An allocation is live at s iff start[id] <= s < end[id].

import type { DeviceInfo, FrameJson } from './manifest-types'

export type * from './manifest-types'

/** Events that are no allocation's alloc, free_requested or free event. */
export interface OtherEvents {
  event: Int32Array
  /** index into info.actions */
  action: Uint8Array
  size: Float64Array
  addrHi: Uint32Array
  addrLo: Uint32Array
  stack: Uint32Array
  stream: Uint16Array
  /** index into info.pools; 0 where the event has none, as in PyTorch 2.9 */
  pool: Uint16Array
  /** device_free of an oom event; NaN where not known */
  free: Float64Array
}

/** The segments of the final state. */
export interface Segments {
  addrHi: Uint32Array
  addrLo: Uint32Array
  size: Float64Array
  stream: Uint16Array
  pool: Uint16Array
  large: Uint8Array
  expandable: Uint8Array
  stack: Uint32Array
}

/** Whole numbers in the smallest type that holds the column's greatest. */
export type Small = Uint8Array | Uint16Array | Uint32Array

/** Whole µs: traces of less than 71 minutes fit into 32 bits. */
export type Times = Uint32Array | Float64Array

/** Every allocation of a device, as columns. Rows are ids. */
export interface DeviceData {
  info: DeviceInfo
  n: number
  P: number
  N: number
  size: Float64Array
  /** first position at which it is live */
  start: Int32Array
  /** first position at which it is no longer live; P when alive at the end */
  end: Int32Array
  /** -1: not in the trace. Made from `start` when first read: of single allocations `start[id] - 1` says the same. */
  readonly allocEvent: Int32Array
  /** -1: none recorded */
  freeRequestedEvent: Int32Array
  /** -1: alive at the end. Made from `end` when first read. */
  readonly freeEvent: Int32Array
  addrHi: Small
  addrLo: Uint32Array
  stream: Small
  pool: Small
  stack: Uint32Array
  freeStack: Small
  category: Uint8Array
  /** Where the category comes from: an index into `info.categorySources`. */
  categorySource: Uint8Array
  context: Small
  metadata: Small
  /** Which module made it, and the tensor in it: indices into `info.modules`, `shapes`, `dtypes`, `grad_fns`; 0: not recorded. */
  module: Small
  shape: Small
  dtype: Small
  savedBy: Small
  /** bytes allocated, by position (length P) */
  allocated: Float64Array
  /** bytes reserved, by position (length P) */
  reserved: Float64Array
  /**
   * µs since info.time0 per event (length n) as recorded; null when the snapshot has no times. For a large device also
   * null until they have been read: the first access requests them, and DataClient.onTimes says when they have arrived.
   */
  readonly timeUs: Times | null
  /** timeUs made non-decreasing, for the time axis (equal to timeUs in nearly every file) */
  readonly clockUs: Times | null
  other: OtherEvents
  segments: Segments
}

export interface Frame extends FrameJson {
  /** Interpreter loop, dispatcher, unwinder: hidden by default. */
  noise: boolean
  /** A frame of the program's own language, not of C++. */
  python: boolean
  /** In code that the reader did not write: installed packages, PyTorch, Python's own. */
  library: boolean
  /** Of C++: the operator that it stands for, "linear" of at::_ops::linear::call; '' for none, and for Python. */
  operator: string
  /** The end of the file's path that no other file of the report has: "dit.py". */
  file: string
  fx?: Record<string, unknown>
  /** Web address of the line, where the recorder noted the commit. */
  address?: string
}

/** All stacks as columns: a node is one frame under its caller, a stack is the node it ends at. A caller comes before those it calls. */
export interface StackTrie {
  /** per node: its frame */
  frameOf: Int32Array
  /** per node: the node of its caller; -1 for an outermost frame */
  caller: Int32Array
  /** per stack: the node of its innermost frame; -1 for a stack without frames */
  leaf: Int32Array
  /** per frame: indices into names and filenames, and the line */
  frames: {
    names: readonly string[]
    filenames: readonly string[]
    name: Uint32Array
    file: Uint32Array
    line: Int32Array
  }
  isNoise(frame: number): boolean
  isPython(frame: number): boolean
  frame(frame: number): Frame
}

export interface Stacks {
  count: number
  readonly trie: StackTrie
  /** Innermost first, noise included. Frames are shared objects: do not change them. */
  frames(stack: number): Frame[]
  /** The frame that names a stack: the program's own line, or the model's where that only launches; null for an empty one. */
  top(stack: number): Frame | null
  /** The program's own line that launched what `top` is; null where that is the program's own. */
  launcher(stack: number): Frame | null
  /** What tells a stack from others of its line: "linear"; '' where nothing needs to. */
  operator(stack: number): string
  /** The outermost operator that the program calls there; '' where the stack shows none. */
  called(stack: number): string
}

export type Axis = 'event' | 'time'

/** Level k has 2^k tiles of 1024 columns; y level j has 2^j tiles of 1024 rows. */
export interface TileKey {
  /** DeviceInfo.index */
  device: number
  axis: Axis
  level: number
  tile: number
  yLevel: number
  yTile: number
  /** BandKeys.version of what its bands are named by; without: their stacks. */
  version?: number
}

/** What bands are named by in place of their stacks: what colours stand for, and what a query matches. */
export interface BandKeys {
  /** Of these keys and no others; 0: stacks. */
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
  /** Every column stands for one position. */
  exact: boolean
  /** In axis units and bytes. */
  xSpan: number
  ySpan: number
  quads: number
  /**
   * 4 per quad: xa, xb, ya, yb relative to the tile's origin, in axis units and bytes: float32 alone is exact only to 16 MiB.
   * y is clamped to one ySpan outside the tile.
   */
  rects: Float32Array
  /** Allocation that stands for the quad. */
  rep: Int32Array
  /** Stack, or other key (see BandKeys), with most bytes in the quad. */
  stack: Int32Array
  /** BandKeys.version of the keys in `stack`. */
  version: number
}
