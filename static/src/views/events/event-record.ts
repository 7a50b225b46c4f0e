// One event as it was recorded, with what the replay adds to it.

import type { DeviceData, DeviceInfo } from '../../data/model'
import { formatAddress } from '../../layout/format'
import { ALLOC, allocationOf, type EventIndex, FREE, OTHER, UNKNOWN } from './event-index'

export interface EventRecord {
  event: number
  action: string
  /** µs since the first event; null without times. */
  us: number | null
  /** Null: not in the report. */
  size: number | null
  /** "0x…"; null where the event has none, or the report leaves it out. */
  address: string | null
  stream: string | null
  /** Bytes allocated after it. */
  allocated: number
  /** Null: not in the report. */
  stack: number | null
  /** The stack is that of the request, which came earlier: the completion's own is not in the report. */
  isRequests: boolean
  /** -1: none, or not known. */
  id: number
  /** Bytes free on the device, as an oom event records. */
  deviceFree: number | null
}

export function recordOf(info: DeviceInfo, data: DeviceData, index: EventIndex, event: number): EventRecord {
  const kind = index.kind[event]
  const id = allocationOf(index, event)
  const has = (column: string): boolean => !info.left_out.includes(column)
  const base = {
    event,
    id,
    action: index.names[index.action[event]],
    us: data.timeUs ? data.timeUs[event] : null,
    allocated: data.allocated[event + 1],
    isRequests: false,
    deviceFree: null,
  }
  if (kind === UNKNOWN) return { ...base, size: null, address: null, stream: null, stack: null }
  if (kind === OTHER) {
    const { other } = data
    const row = index.ref[event]
    const free = other.free[row]
    return {
      ...base,
      size: other.size[row],
      address: addressOf(other.addrHi[row], other.addrLo[row]),
      stream: info.streams[other.stream[row]] || null,
      stack: other.stack[row],
      deviceFree: Number.isNaN(free) ? null : free,
    }
  }
  const isFreedOnly = data.start[id] === 0 && id >= info.ghosts
  const requested = data.freeRequestedEvent[id]
  return {
    ...base,
    size: data.size[id],
    address: has('addr_lo') ? addressOf(data.addrHi[id], data.addrLo[id]) : null,
    stream: has('stream') ? info.streams[data.stream[id]] || null : null,
    // An allocation known from its free alone has only the free's stack.
    stack:
      kind === ALLOC ? data.stack[id] : has('free_stack') ? data.freeStack[id] : isFreedOnly ? data.stack[id] : null,
    // The allocator records neighbours together, except in a few recordings.
    isRequests:
      kind === FREE &&
      (requested >= 0 ? event - requested > 1 || (info.completions_differ ?? false) : !has('requested')),
  }
}

function addressOf(hi: number, lo: number): string | null {
  return hi === 0 && lo === 0 ? null : formatAddress(hi, lo)
}

/** The events of an allocation that are rows of their own, with their actions, in order. */
export function endsOf(data: DeviceData, index: EventIndex, id: number): { event: number; action: string }[] {
  const events = [data.start[id] - 1, data.freeRequestedEvent[id], data.end[id] === data.P ? -1 : data.end[id] - 1]
  return [...new Set(events)]
    .filter((event) => event >= 0)
    .sort((a, b) => a - b)
    .map((event) => ({ event, action: index.names[index.action[event]] }))
}
