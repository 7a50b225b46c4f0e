// The types that the rooms of the page share: a device's columns here, the manifest's, stacks' and tiles' in files of
// their own. Data only: no code, no DOM, no GL.
//
// Words used everywhere:
//   event     index into the recorded events, 0 … n-1
//   position  s = event + 1, 0 … P-1 with P = n + 1; s = 0 is the state before the first event
//   id        allocation, in birth order, 0 … N-1
// An allocation is live at s iff start[id] <= s < end[id].

import type { DeviceInfo } from './manifest-types'

export type * from './manifest-types'
export type * from './stack-types'
export type * from './tile-types'

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
   * µs since info.time0 per event (length n) as recorded; null when the snapshot has no times. For a large device also
   * null until they have been read: the first access requests them, and DataClient.onTimes says when they have arrived.
   */
  readonly timeUs: Times | null
  /** timeUs made non-decreasing, for the time axis (equal to timeUs in nearly every file) */
  readonly clockUs: Times | null
  other: OtherEvents
  segments: Segments
}
