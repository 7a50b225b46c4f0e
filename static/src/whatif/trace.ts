// The part of a device's trace that a replay needs, as plain arrays that can be sent to the worker. The twin of
// snapreport/allocator/trace.py.

import { addressSpaceOf } from '../allocator/address'
import { facts, sentence } from '../allocator/facts'
import type { Replay } from '../allocator/replay'
import { stateAt } from '../allocator/state'
import type { DeviceData } from '../data/model'
import { segmentSize } from './blocks'
import { type AllocatorSettings, recordedSettings } from './settings'

export const FREE = 0
export const ALLOC = 1
export const EMPTY_CACHE = 2
export const RETRY = 3
export const OOM = 4

/** A segment at the trace's start with its blocks by address; `id` -1: free. */
export interface StartSegment {
  address: number
  size: number
  stream: number
  pool: number
  small: boolean
  expandable: boolean
  blocks: { address: number; size: number; id: number }[]
}

export interface Trace {
  settings: AllocatorSettings
  /** Recorded by a PyTorch that may choose free blocks by the age of their segments. */
  isNew: boolean
  /** A row per operation. `item`: an allocation, of a release the last event of its burst, of an OOM the event. */
  kind: Uint8Array
  item: Int32Array
  event: Int32Array
  /** Per allocation. `pool` 0 is the default one. */
  size: Float64Array
  stream: Float64Array
  pool: Uint16Array
  pools: number
  address: Float64Array
  /** Ids of those that were live at the start, by address. */
  older: Int32Array
  start: StartSegment[]
  contradictions: number
  /** Segment events: their event, the event of the request behind them, action, address, bytes. */
  segmentEvent: Int32Array
  segmentOwner: Int32Array
  segmentAction: Uint8Array
  segmentAddress: Float64Array
  segmentBytes: Float64Array
  /** Bytes by position. */
  reserved: Float64Array
  /** Failed requests by event. */
  failed: { event: number; size: number; stream: number; pool: number }[]
  /** Bytes for the allocator, as far as the trace says; Infinity: unlimited. */
  capacity: number
  /** The lower end where the trace shows a range, whose upper end is `capacity`; null where it shows one value. */
  lowestCapacity: number | null
  /** Other reasons why a replay is inexact: some frees wait for another stream, only some segments are expandable, events
   * were lost, the trace and the final state contradict each other. */
  delayed: boolean
  mixed: boolean
  overflowed: boolean
  contradictory: boolean
  /** Why it cannot be replayed; empty where it can. */
  refused: string
}

const ACTIONS = ['segment_alloc', 'segment_free', 'segment_map', 'segment_unmap']

export function traceOf(data: DeviceData, replay: Replay, recorded: Record<string, unknown> | undefined): Trace {
  const { info, P, n, other } = data
  const { bornAt, endedAt } = replay
  const space = addressSpaceOf(data)
  const expandableSeen = replay.segments.expandable.some((flag) => flag === 1)
  const settings = recordedSettings(recorded, expandableSeen, info.settings_since_2_10 ?? null)
  // What each event of `other` is: 0…3 a segment event, 4 an OOM, 5 a completed free; -1 anything else.
  const code = new Int8Array(n).fill(-1)
  const rowOf = new Int32Array(n).fill(-1)
  for (let row = 0; row < other.event.length; row++) {
    const action = info.actions[other.action[row]]
    const at = ACTIONS.indexOf(action)
    code[other.event[row]] = at >= 0 ? at : action === 'oom' ? 4 : action === 'free_completed' ? 5 : -1
    rowOf[other.event[row]] = row
  }
  const grows = (event: number): boolean => code[event] === 0 || code[event] === 2
  const releases = (event: number): boolean => code[event] === 1 || code[event] === 3
  const completes = (event: number): boolean =>
    code[event] === 5 || (endedAt[event + 1] >= 0 && bornAt[event + 1] < 0 && rowOf[event] < 0)

  const kind: number[] = []
  const item: number[] = []
  const event: number[] = []
  const add = (k: number, i: number, e: number): void => {
    kind.push(k)
    item.push(i)
    event.push(e)
  }
  const failed: Trace['failed'] = []
  const bounds: number[] = []
  let exact = Number.NaN
  let burstEnd = -1
  for (let e = 0; e < n; e++) {
    if (endedAt[e + 1] >= 0) add(FREE, endedAt[e + 1], e)
    if (bornAt[e + 1] >= 0) add(ALLOC, bornAt[e + 1], e)
    if (releases(e) && e > burstEnd) {
      let last = e
      for (let next = e + 1; next < n && (releases(next) || completes(next)); next++) if (releases(next)) last = next
      burstEnd = last
      const isRetry = retries(data, replay, code, rowOf, e, last, grows)
      add(isRetry ? RETRY : EMPTY_CACHE, last, e)
      if (isRetry && code[last + 1] === 0) bounds.push(data.reserved[e] + other.size[rowOf[last + 1]])
    }
    if (code[e] === 4) {
      const row = rowOf[e]
      add(OOM, e, e)
      const pool = isDefaultPool(info.pools[other.pool[row]]) ? 0 : other.pool[row]
      failed.push({ event: e, size: other.size[row], stream: streamOf(info.streams, other.stream[row]), pool })
      const left = other.free[row]
      const needed =
        segmentSize(other.size[row], settings.largeSegment) + (settings.expandable ? 2 * settings.largeSegment : 0)
      if (left >= needed) bounds.push(data.reserved[e + 1] + needed)
      else if (!Number.isNaN(left)) exact = data.reserved[e + 1] + left
    }
  }
  const least = data.reserved.reduce((most, bytes) => Math.max(most, bytes), 0)
  const most = bounds.length ? Math.min(...bounds) : Infinity
  const isRange = Number.isNaN(exact) && most < Infinity && least < most - 1
  const { pool, pools } = poolsOf(data, replay)
  const rows = other.event.length
  const segmentRows = Array.from({ length: rows }, (_, row) => row).filter((row) => {
    const at = code[other.event[row]]
    return at >= 0 && at < 4
  })
  const owner = ownersOf(n, bornAt, code)
  const stream = Float64Array.from(data.stream, (index) => streamOf(info.streams, index))
  return {
    settings,
    isNew: facts.settings_of_new_versions.some((key) => key in (recorded ?? {})),
    kind: Uint8Array.from(kind),
    item: Int32Array.from(item),
    event: Int32Array.from(event),
    size: data.size.slice(),
    stream,
    pool,
    pools,
    address: replay.address.slice(),
    older: Int32Array.from(replay.order.filter((id) => data.start[id] === 0)),
    ...startOf(data, replay, pool),
    segmentEvent: Int32Array.from(segmentRows, (row) => other.event[row]),
    segmentOwner: Int32Array.from(segmentRows, (row) => owner[other.event[row]]),
    segmentAction: Uint8Array.from(segmentRows, (row) => code[other.event[row]]),
    segmentAddress: Float64Array.from(segmentRows, (row) => space.of(other.addrHi[row], other.addrLo[row])),
    segmentBytes: Float64Array.from(segmentRows, (row) => other.size[row]),
    reserved: data.reserved.slice(),
    failed,
    capacity: !Number.isNaN(exact) ? Math.max(exact, least) : most < Infinity ? Math.max(most - 1, least) : Infinity,
    lowestCapacity: isRange ? least : null,
    delayed: data.freeRequestedEvent.some((event, id) => event >= 0 && data.end[id] < P && data.end[id] > event + 2),
    mixed: expandableSeen && replay.segments.expandable.some((flag) => flag === 0),
    overflowed: info.stats.trace_overflowed === true,
    contradictory: info.stats.reconciliation_bytes !== 0,
    refused: refusalOf(data, P, code),
  }
}

function streamOf(streams: readonly string[], index: number): number {
  return Number(streams[index] || 0)
}

function isDefaultPool(name: string): boolean {
  return name === '' || name === '(0, 0)' || name === '0, 0'
}

/** A burst is a retry where a request follows that took new memory, with its stack trace; see trace.py. */
function retries(
  data: DeviceData,
  replay: Replay,
  code: Int8Array,
  rowOf: Int32Array,
  first: number,
  last: number,
  grows: (event: number) => boolean,
): boolean {
  let following = last + 1
  while (following < data.n && grows(following)) following++
  if (following >= data.n) return false
  const stack = data.other.stack[rowOf[first]]
  const born = replay.bornAt[following + 1]
  const isOom = code[following] === 4
  const requested = isOom || (born >= 0 && (following > last + 1 || stack !== 0))
  const own = isOom ? data.other.stack[rowOf[following]] : born >= 0 ? data.stack[born] : -1
  return requested && (stack === 0 || stack === own)
}

/** By event: the next allocation or failure from there on. */
function ownersOf(n: number, bornAt: Int32Array, code: Int8Array): Int32Array {
  const owner = new Int32Array(n)
  let next = n
  for (let e = n - 1; e >= 0; e--) {
    if (bornAt[e + 1] >= 0 || code[e] === 4) next = e
    owner[e] = next
  }
  return owner
}

/** The pool of each allocation; older PyTorch records that of segments only. */
function poolsOf(data: DeviceData, { segment, segments }: Replay): { pool: Uint16Array; pools: number } {
  const { info, N } = data
  const isDefault = info.pools.map(isDefaultPool)
  const seen = new Set(segments.pool.filter((index) => index !== 0))
  const pool = new Uint16Array(N)
  for (let id = 0; id < N; id++) {
    const own = data.pool[id] || (seen.size > 1 && segment[id] >= 0 ? segments.pool[segment[id]] : 0)
    pool[id] = isDefault[own] ? 0 : own
  }
  return { pool, pools: info.pools.length }
}

function startOf(data: DeviceData, replay: Replay, pool: Uint16Array): Pick<Trace, 'start' | 'contradictions'> {
  const { info } = data
  const { segments } = replay
  const known = new Set(pool)
  const state = stateAt(replay, 0)
  const start: StartSegment[] = []
  let contradictions = 0
  for (let at = 0; at < state.segments; at++) {
    const row = state.row[at]
    const blocks: StartSegment['blocks'] = []
    for (let block = state.first[at]; block < state.first[at + 1]; block++) {
      const address = state.blockStart[block]
      blocks.push({ address, size: state.blockEnd[block] - address, id: state.blockId[block] })
    }
    if (row < 0) {
      contradictions += blocks.length
      continue
    }
    start.push({
      address: segments.start[row],
      size: segments.end[row] - segments.start[row],
      stream: streamOf(info.streams, segments.stream[row]),
      pool: known.has(segments.pool[row]) ? segments.pool[row] : 0,
      small: segments.large[row] === 0,
      expandable: segments.expandable[row] === 1,
      blocks,
    })
  }
  return { start, contradictions }
}

/** `code`: what each event is, as in traceOf. */
function refusalOf(data: DeviceData, P: number, code: Int8Array): string {
  const { info, N, start, end, freeRequestedEvent } = data
  if (info.kind !== 'cuda') return sentence('refusals', 'kind', { kind: info.kind })
  if (info.profiled) return sentence('refusals', 'profiler')
  if (info.left_out.includes('pool')) return sentence('page_refusals', 'left_out')
  let born = false
  let freed = 0
  let requested = 0
  for (let id = 0; id < N; id++) {
    if (start[id] > 0) born = true
    if (end[id] >= P) continue
    freed++
    if (freeRequestedEvent[id] === end[id] - 1) requested++
  }
  if (!born) return sentence('refusals', 'no_allocations')
  if (freed > 0 && requested === freed) return sentence('refusals', 'no_completed_frees')
  const isWhole = info.stats.trace_overflowed === null && data.reserved[0] === 0
  const hasGrowth = code.includes(0) || code.includes(2)
  return isWhole && !hasGrowth ? sentence('refusals', 'no_segment_events') : ''
}
