// Columns of one device section → the device: everything that the file leaves out because it follows from the rest.

import type { DecodedBlob } from './columns'
import type { DeviceData, DeviceInfo, OtherEvents, Segments, Small, Times } from './model'

/** A device without what is computed when first read (see on-demand.ts). */
export type DeviceColumns = Omit<DeviceData, 'allocEvent' | 'freeEvent' | 'timeUs' | 'clockUs'>

/** `columns` holds the device's own section. */
export function readDevice(info: DeviceInfo, columns: DecodedBlob): DeviceColumns {
  const p = `d${info.index}.`
  const n = info.events
  const P = n + 1
  const N = info.allocations
  const size = columns.f64(p + 'size')
  const events = lifetimes(
    info,
    columns.i32(p + 'alloc_event'),
    columns.u32(p + 'lifetime'),
    columns.i32(p + 'requested'),
  )
  const other = otherEvents(columns, p)
  return {
    info,
    n,
    P,
    N,
    size,
    ...events,
    addrHi: small(columns.u32(p + 'addr_hi')),
    addrLo: columns.u32(p + 'addr_lo'),
    stream: small(columns.u16(p + 'stream')),
    pool: small(columns.u16(p + 'pool')),
    stack: columns.u32(p + 'stack'),
    freeStack: small(columns.u32(p + 'free_stack')),
    category: columns.u8(p + 'category'),
    categorySource: columns.u8(p + 'source'),
    context: small(columns.u32(p + 'context')),
    metadata: small(columns.u32(p + 'metadata')),
    module: names(columns, p + 'module', N),
    shape: names(columns, p + 'shape', N),
    dtype: names(columns, p + 'dtype', N),
    savedBy: names(columns, p + 'saved_by', N),
    allocated: allocatedCurve(events.start, events.end, size, P),
    reserved: reservedCurve(info, other, P),
    other,
    segments: segments(columns, p),
  }
}

/** µs per event since the first, from the section with a device's times; null where they were not recorded. */
export function readTimes(info: DeviceInfo, times: DecodedBlob | null): Times | null {
  const name = `d${info.index}.time`
  if (!times?.has(name)) return null
  const values = times.f64(name)
  for (let event = 0; event < values.length; event++) if (values[event] !== values[event] >>> 0) return values
  return Uint32Array.from(values)
}

/** The values themselves or a copy in a smaller type. Most reports hold few contexts, pools or streams. */
function small(values: Small): Small {
  let most = 0
  for (let i = 0; i < values.length; i++) if (values[i] > most) most = values[i]
  if (most < 1 << 8) return Uint8Array.from(values)
  return most < 1 << 16 ? Uint16Array.from(values) : values
}

/** Indices of names that only some files have: 0, none, where they are missing. */
function names(columns: DecodedBlob, name: string, length: number): Small {
  return columns.has(name) ? small(columns.u32(name)) : new Uint8Array(length)
}

type Lifetimes = Pick<DeviceData, 'start' | 'end' | 'freeRequestedEvent'>

/** The stored differences → positions, and events. Those from before the trace come first and have no alloc event. */
export function lifetimes(
  info: DeviceInfo,
  traced: Int32Array,
  lifetime: Uint32Array,
  requested: Int32Array,
): Lifetimes {
  const N = info.allocations
  const P = info.events + 1
  const before = info.ghosts + info.freed
  if (traced.length !== N - before || lifetime.length !== N || requested.length !== N) {
    throw new Error(`device ${info.device}: ${traced.length} births for ${N} allocations, ${before} of them older`)
  }
  const start = new Int32Array(N)
  const end = new Int32Array(N)
  const freeRequestedEvent = new Int32Array(N)
  for (let id = 0; id < N; id++) {
    const alloc = id < before ? -1 : traced[id - before]
    const free = lifetime[id] === 0 ? -1 : alloc + lifetime[id]
    const back = requested[id]
    freeRequestedEvent[id] = back === 0 ? -1 : back > 0 ? free - back + 1 : -back - 1
    start[id] = alloc + 1
    end[id] = free < 0 ? P : free + 1
  }
  return { start, end, freeRequestedEvent }
}

/** Bytes allocated at every position: differences, then their running sum. Exact: all are whole numbers below 2**53. */
export function allocatedCurve(start: Int32Array, end: Int32Array, size: Float64Array, P: number): Float64Array {
  const curve = new Float64Array(P)
  for (let id = 0; id < size.length; id++) {
    curve[start[id]] += size[id]
    if (end[id] < P) curve[end[id]] -= size[id]
  }
  for (let s = 1; s < P; s++) curve[s] += curve[s - 1]
  return curve
}

const RESERVED_SIGN: Record<string, number> = { segment_alloc: 1, segment_map: 1, segment_free: -1, segment_unmap: -1 }

function reservedCurve(info: DeviceInfo, other: OtherEvents, P: number): Float64Array {
  const curve = new Float64Array(P)
  const sign = info.actions.map((action) => RESERVED_SIGN[action] ?? 0)
  curve[0] = info.start_reserved
  for (let row = 0; row < other.event.length; row++)
    curve[other.event[row] + 1] += sign[other.action[row]] * other.size[row]
  for (let s = 1; s < P; s++) curve[s] += curve[s - 1]
  return curve
}

function otherEvents(columns: DecodedBlob, p: string): OtherEvents {
  // device_free is stored plus one, so that 0 means "not known" and the column stays unsigned.
  const free = columns.f64(p + 'other_free').map((x) => (x === 0 ? NaN : x - 1))
  return {
    event: columns.i32(p + 'other_event'),
    action: columns.u8(p + 'other_action'),
    size: columns.f64(p + 'other_size'),
    addrHi: columns.u32(p + 'other_addr_hi'),
    addrLo: columns.u32(p + 'other_addr_lo'),
    stack: columns.u32(p + 'other_stack'),
    stream: columns.u16(p + 'other_stream'),
    pool: columns.u16(p + 'other_pool'),
    free,
  }
}

function segments(columns: DecodedBlob, p: string): Segments {
  return {
    addrHi: columns.u32(p + 'seg_addr_hi'),
    addrLo: columns.u32(p + 'seg_addr_lo'),
    size: columns.f64(p + 'seg_size'),
    stream: columns.u16(p + 'seg_stream'),
    pool: columns.u16(p + 'seg_pool'),
    large: columns.u8(p + 'seg_large'),
    expandable: columns.u8(p + 'seg_expandable'),
    stack: columns.u32(p + 'seg_stack'),
  }
}
