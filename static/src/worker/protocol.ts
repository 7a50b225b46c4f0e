// The messages between page and worker, and which arrays are transferred.

import type { Places, Replayed } from '../allocator/replay'
import type { DeviceColumns } from '../data/device'
import type { BandKeys, Manifest, TileKey, TileMesh, Times } from '../data/model'
import type { Check } from '../whatif/check'
import type { Replays } from '../whatif/job'
import type { Trace } from '../whatif/trace'

/** A trace, and its check where a replay has made it. */
export interface CheckedTrace {
  trace: Trace
  check: Check | null
}

/** Replays report their progress, and can be cancelled while they run. */
type ReplayRequests = {
  [K in keyof Replays]: { argument: CheckedTrace & { question: Replays[K]['question'] }; reply: Replays[K]['answer'] }
}

export interface Requests extends ReplayRequests {
  manifest: { argument: null; reply: Manifest }
  /** A small device includes its times; undefined: they have to be requested. */
  device: { argument: number; reply: { columns: DeviceColumns; timeUs: Times | null | undefined } }
  times: { argument: number; reply: Times | null }
  tile: { argument: TileKey; reply: TileMesh }
  /** The replay. The worker keeps the lifetimes, and transferred the places. */
  replay: { argument: { device: number; places: Places }; reply: Replayed }
  /** Bytes of the largest contiguous free range by position (length P), for which the device is replayed again. */
  largestFree: { argument: Requests['replay']['argument']; reply: Float64Array }
  /** Bytes of a section's blob after brotli, for the page to read columns from itself. */
  bytes: { argument: string; reply: Uint8Array }
  /** Text of a blob with code. */
  code: { argument: string; reply: string }
  /** Whether a blob is there and has the bytes that were written. */
  isIntact: { argument: string; reply: boolean }
}
export type RequestKind = keyof Requests

export type ToWorker =
  | { type: 'start'; texts: Record<string, string> }
  | { type: 'request'; id: number; kind: RequestKind; argument: unknown }
  | { type: 'cancel'; id: number }
  /** Handled at once, ahead of every waiting request. */
  | { type: 'keys'; keys: BandKeys; instead: number }

export type FromWorker =
  | { type: 'up' }
  | { type: 'progress'; id: number; share: number }
  | { type: 'reply'; id: number; value: unknown }
  | { type: 'failed'; id: number; message: string }

export class TileCancelled extends Error {
  constructor() {
    super('the tile is no longer wanted')
    this.name = 'TileCancelled'
  }
}

interface Outgoing<T> {
  value: T
  transfer: ArrayBuffer[]
}

/** The worker lays tiles out from these and keeps them; the page gets copies. All else moves. */
const KEPT = new Set(['size', 'start', 'end', 'stack', 'allocated'])

/** A device as it is sent: what the worker keeps is copied. */
export function outgoingDevice({
  columns,
  timeUs,
}: Requests['device']['reply']): Outgoing<Requests['device']['reply']> {
  const sent: Record<string, unknown> = {}
  for (const [name, part] of Object.entries(columns)) sent[name] = KEPT.has(name) ? copied(part) : part
  // undefined: not read yet; null: the recording has none.
  const times = timeUs ? timeUs.slice() : timeUs
  return {
    value: { columns: sent as unknown as DeviceColumns, timeUs: times },
    transfer: buffersOf({ ...sent, times }),
  }
}

/** Times as they are sent: the worker keeps its own. */
export function outgoingTimes(timeUs: Times | null): Outgoing<Times | null> {
  const value = timeUs?.slice() ?? null
  return { value, transfer: value ? [value.buffer as ArrayBuffer] : [] }
}

/** Objects that the worker does not keep: a mesh, a replay. */
export function outgoingWhole<T extends TileMesh | Replayed>(value: T): Outgoing<T> {
  return { value, transfer: buffersOf(value) }
}

function copied(part: unknown): unknown {
  return ArrayBuffer.isView(part) ? (part as Float64Array).slice() : part
}

/** Every buffer of the arrays in an object and the objects directly in it. */
function buffersOf(value: object): ArrayBuffer[] {
  const buffers = new Set<ArrayBuffer>()
  for (const part of Object.values(value)) {
    if (ArrayBuffer.isView(part)) buffers.add(part.buffer as ArrayBuffer)
    else if (part && typeof part === 'object' && !Array.isArray(part)) {
      for (const inner of Object.values(part)) if (ArrayBuffer.isView(inner)) buffers.add(inner.buffer as ArrayBuffer)
    }
  }
  return [...buffers]
}
