// Replays a trace: the same requests and frees, in the same order, under other settings or without some allocations. The
// twin of snapreport/allocator/replay.py.

import { roundedSize } from '../allocator/rounding'
import { CachingAllocator, type Pools } from './allocator'
import { SEGMENT_ALLOC, SEGMENT_MAP, type Block, BlockPool } from './blocks'
import { type DeviceMemory, RecordedMemory } from './placement'
import { restore } from './restore'
import type { AllocatorSettings } from './settings'
import { ALLOC, EMPTY_CACHE, FREE, OOM, RETRY, type Trace } from './trace'

/** Operations between two checks for messages: 5 to 15 ms. */
const BATCH = 5_000

export interface ReplayOptions {
  /** Continue from the recorded state; else what was live is allocated first, in order of address. */
  fromRecorded: boolean
  /** 1 per allocation that never happens. */
  without?: Uint8Array
  recordedRetries?: boolean
}

export interface Outcome {
  peakReserved: number
  retries: number
  /** The event whose request fails although it succeeded in the recording; null: none. -1: at the start. */
  oomEvent: number | null
  avoided: number[]
  failed: number[]
  /** The curve: a row per change, the first is the start (event -1). */
  events: Int32Array
  reserved: Float64Array
  contradictions: number
  /** Per allocation, NaN where it was not made. */
  addresses: Float64Array
  segmentEvents: { event: number; action: number; size: number }[]
}

/** Yields its progress, 0 to 1, and returns the result. */
export function* replayTrace(
  trace: Trace,
  settings: AllocatorSettings,
  memory: DeviceMemory,
  options: ReplayOptions,
): Generator<number, Outcome> {
  const { without, recordedRetries = false, fromRecorded } = options
  const { size, stream, pool } = trace
  const N = size.length
  const pools: Pools[] = Array.from({ length: Math.max(trace.pools, 1) }, () => [
    new BlockPool(true),
    new BlockPool(false),
  ])
  const segmentEvents: Outcome['segmentEvents'] = []
  let event = -1
  const limit = settings.fraction === null ? null : Math.floor(settings.fraction * memory.capacity)
  const allocator = new CachingAllocator(memory, settings, pools[0], limit, (action, bytes) =>
    segmentEvents.push({ event, action, size: bytes }),
  )
  const rules = { host: false, expandable: false, maxSplit: Infinity, divisions: settings.divisions }
  const live = new Array<Block | null>(N).fill(null)
  const addresses = new Float64Array(N).fill(Number.NaN)
  let oomEvent: number | null = null
  let contradictions = 0
  if (fromRecorded) {
    contradictions = restore(allocator, trace, pools, live)
    if (without) {
      for (let id = 0; id < N; id++) {
        const block = live[id]
        if (!block || !without[id]) continue
        live[id] = null
        allocator.freeBlock(block)
      }
    }
  } else {
    for (const id of trace.older) {
      if (without?.[id]) continue
      live[id] = allocator.allocate(roundedSize(rules, size[id]), stream[id], pools[pool[id]])
      if (live[id]) continue
      oomEvent = -1
      break
    }
  }
  const base = allocator.reserved
  segmentEvents.length = 0
  const avoided: number[] = []
  const failed: number[] = []
  const recorded = memory instanceof RecordedMemory ? memory : null
  const { kind, item } = trace
  for (let at = 0; at < kind.length && oomEvent === null; at++) {
    if (at % BATCH === BATCH - 1) yield at / kind.length
    const id = item[at]
    if (kind[at] === FREE) {
      const block = live[id]
      if (!block) continue
      live[id] = null
      allocator.freeBlock(block)
      continue
    }
    event = trace.event[at]
    if (recorded) recorded.event = event
    if (kind[at] === ALLOC) {
      if (without?.[id]) continue
      const block = allocator.allocate(roundedSize(rules, size[id]), stream[id], pools[pool[id]])
      if (!block) {
        oomEvent = event
        break
      }
      live[id] = block
      addresses[id] = block.address
    } else if (kind[at] === EMPTY_CACHE || (kind[at] === RETRY && recordedRetries)) allocator.releaseCached()
    else if (kind[at] === OOM && !recordedRetries) {
      const request = trace.failed.find((one) => one.event === event)!
      const block = allocator.allocate(roundedSize(rules, request.size || 1), request.stream, pools[request.pool])
      if (block) {
        avoided.push(event)
        allocator.freeBlock(block)
      } else failed.push(event)
    }
  }
  const events = new Int32Array(segmentEvents.length + 1)
  const reserved = new Float64Array(segmentEvents.length + 1)
  events[0] = -1
  reserved[0] = base
  segmentEvents.forEach((one, at) => {
    const isGrowth = one.action === SEGMENT_ALLOC || one.action === SEGMENT_MAP
    events[at + 1] = one.event
    reserved[at + 1] = reserved[at] + (isGrowth ? one.size : -one.size)
  })
  const { peakReserved, retries } = allocator
  return {
    peakReserved,
    retries,
    oomEvent,
    avoided,
    failed,
    events,
    reserved,
    contradictions,
    addresses,
    segmentEvents,
  }
}
