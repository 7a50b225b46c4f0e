// The types that the rooms of the page share. Data only: no code, no DOM, no GL.
//
// Words used everywhere:
//   event     index into the recorded events, 0 … n-1
//   position  s = event + 1, 0 … P-1 with P = n + 1; s = 0 is the state before the first event
//   id        allocation, in birth order, 0 … N-1
// An allocation is live at s iff start[id] <= s < end[id].

import type { BrokenAnnotations, RawSpans, RawSteps } from './annotations'
import type { JobManifest } from './job-manifest'

/** One frame of `stats --json`. */
export interface FrameJson {
  filename: string
  line: number
  name: string
}

/** The object that `snapreport stats --json` gives per device; further keys may follow. */
export interface StatsJson {
  device: number
  kind: string
  events: number
  allocations: number
  preexisting_allocations: number
  live_at_end: number
  segments: number
  start_allocated_bytes: number
  end_allocated_bytes: number
  peak_allocated_bytes: number
  peak_event: number
  trace_overflowed: boolean | null
  reconciliation_bytes: number
  start_reserved_bytes: number
  end_reserved_bytes: number
  peak_reserved_bytes: number
  oom_events: number[]
  /** In the file each entry holds `stack` (an id); window.snapreport fills in `frames`. */
  top_stacks_at_peak: { bytes: number; count: number; stack: number; frames?: FrameJson[] }[]
  [key: string]: unknown
}

export interface SnapshotInfo {
  file: string
  bytes: number
  settings: Record<string, unknown>
  notes: Record<string, unknown>
}

/** [device number, name, stage, time in µs of the snapshot's own clock or null, snapshot] */
export type Annotation = [device: number, name: string, stage: string, timeUs: number | null, snapshot: number]

export interface Manifest {
  format: number
  title: string
  snapshots: SnapshotInfo[]
  devices: DeviceInfo[]
  /** section name → name of the blob that holds it */
  sections: Record<string, string>
  annotations: Annotation[]
  /** What the report opens on: the failure that its headline is about. Null: the first device with a timeline. */
  opening: Opening | null
  /** What is compared with what; null in a report that compares nothing. */
  diff: DiffInfo | null
  /** All ranks of a job; null in every other report. */
  job: JobManifest | null
}

/** `device`: DeviceInfo.index. */
export interface Opening {
  device: number
  event: number
}

/** The comparison of two snapshots of the report. */
export interface DiffInfo {
  devices: DiffDevice[]
  onlyBefore: number[]
  onlyAfter: number[]
  /** Growth over more than two snapshots, per device. */
  series: SeriesRow[]
}

/** One device of both. `before`, `after`: DeviceInfo.index. */
export interface DiffDevice {
  device: number
  before: number
  after: number
  /** Moments that belong together: events, -1 for before the first. */
  moments: { name: string; before: number; after: number }[]
}

/** One device of a series of snapshots; every list has an entry for each snapshot. */
export interface SeriesRow {
  device: number
  kind: string
  files: string[]
  peak_allocated_bytes: number[]
  end_allocated_bytes: number[]
  peak_reserved_bytes: number[]
  end_reserved_bytes: number[]
  growth: number
  /** Bytes a snapshot of what is allocated at the end (Theil–Sen). */
  slope: number
  /** Growing stacks first, the fastest first. */
  stacks: SeriesStack[]
}

/** A stack through a series. stack: the page's number of it in the last snapshot. */
export interface SeriesStack {
  place: string
  bytes: number[]
  counts: number[]
  bytes_per_snapshot: number
  grows: boolean
  stack: number
}

/** An out-of-memory event. */
export interface OomEvent {
  event: number
  /** Bytes of the request as the allocator rounded it. */
  requested: number
  /** Null for the failures after the first 32, whose segments were not replayed. */
  figures: OomFigures | null
}

/** The bytes around a failure; see snapreport/findings/oom.py, which works them out. */
export interface OomFigures {
  verdict: 'demand' | 'fragmentation' | 'pool-locked' | 'mixed' | 'limit' | 'unclear'
  /** What the allocator would have taken from the device; null: as much as was requested. */
  segment: number | null
  /** Free on the device; null where it was not recorded. */
  deviceFree: number | null
  reserved: number
  allocated: number
  rounding: number
  /** Of blocks whose free waits for another stream. */
  pending: number
  /** Cached in blocks that the request could use, and in those it could not. */
  usable: number
  otherStream: number
  otherPool: number
  otherSize: number
  largestUsable: number
  largestFree: number
  /** What was missing even with everything free, cached and pending put together. */
  shortfall: number
}

/** What is known of a device before any of its columns is decoded. */
export interface DeviceInfo {
  /** The page's key: index into the manifest's list. */
  index: number
  /** The number the recorder gave it; not unique when a report holds several files. */
  device: number
  /** "cuda", "host", "xpu", … */
  kind: string
  snapshot: number
  section: string
  events: number
  allocations: number
  ghosts: number
  freed: number
  startReserved: number
  peakBytes: number
  /** Event of the peak; -1 when the state before the first event is the greatest. */
  peakEvent: number
  /** µs of event 0 on the snapshot's clock; null when the snapshot has no times. */
  time0: number | null
  /** Levels of the event axis whose tiles are stored in the file. */
  levels: number[]
  actions: string[]
  streams: string[]
  pools: string[]
  categories: string[]
  /** Where a category can come from. */
  categorySources: string[]
  contexts: string[]
  metadata: string[]
  /** Whether the metadata are the names that a recorder gave to tensors, and the program set none of its own. */
  namesOnly?: boolean
  completionsDiffer?: boolean
  /** Whether this is a profiler's trace, which has allocations and frees and nothing of the allocator. */
  profiled?: boolean
  stats: StatsJson
  /** Out-of-memory events, in order. */
  ooms: readonly OomEvent[]
  /** Columns that a size limit (--max-size) kept out of the report: their values read as 0. */
  leftOut: string[]
  /** Training steps and annotated spans, where there are any; read by the room `steps`. */
  steps?: RawSteps | null
  spans?: RawSpans | null
  broken?: BrokenAnnotations | null
}

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
  /** bytes allocated, by position (length P) */
  allocated: Float64Array
  /** bytes reserved, by position (length P) */
  reserved: Float64Array
  /**
   * µs since info.time0 per event (length n) as recorded; null when the snapshot has no times. Of a large device also
   * null until they have been read: the first look asks for them, and DataClient.onTimes says when they are there.
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
  fx?: Record<string, unknown>
  /** Of the line on the web, where the recorder noted the commit. */
  address?: string
}

/** Posting lists: the nodes of a frame are nodes[begins[frame]] … nodes[begins[frame + 1] - 1], in ascending order. */
export interface Postings {
  begins: Int32Array
  nodes: Int32Array
}

/** All stacks as columns: a node is one frame under its caller, a stack is the node it ends at. A caller comes before those it calls. */
export interface StackTrie {
  /** per node: its frame */
  frameOf: Int32Array
  /** the same by frame, as the report holds it */
  postings: Postings
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
}

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
