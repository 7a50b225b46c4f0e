// One allocation in words and numbers: what the details panel shows and window.snapreport answers.

import { formatAddress } from './layout/format'
import type { DeviceData } from './data/model'

export interface AllocationRecord {
  id: number
  /** Exact below 2**53, which covers every GPU's addresses; `addr_hex` is exact always. Null where the report leaves them out. */
  addr: number | null
  addr_hex: string | null
  size: number
  /** -1: not in the trace */
  alloc_event: number
  /** -1: none recorded */
  free_requested_event: number
  /** -1: alive at the end */
  free_event: number
  /** µs on the recorder's clock; null without times, or without the event */
  alloc_us: number | null
  free_us: number | null
  stream: number | string | null
  pool: string | null
  stack: number
  /** 0: none */
  free_stack: number
  category: string
  category_source: string
  origin: 'ghost' | 'freed' | 'traced'
  compile_context: string | null
  user_metadata: string | null
}

/** Null when there is no such id. */
export function describeAllocation(d: DeviceData, id: number): AllocationRecord | null {
  if (!Number.isInteger(id) || id < 0 || id >= d.N) return null
  const { info } = d
  const timeOf = (event: number): number | null =>
    event < 0 || !d.timeUs || info.time0 === null ? null : info.time0 + d.timeUs[event]
  const before = info.ghosts + info.freed
  const hasAddress = !info.left_out.includes('addr_lo')
  return {
    id,
    addr: hasAddress ? d.addrHi[id] * 2 ** 32 + d.addrLo[id] : null,
    addr_hex: hasAddress ? formatAddress(d.addrHi[id], d.addrLo[id]) : null,
    size: d.size[id],
    alloc_event: d.allocEvent[id],
    free_requested_event: d.freeRequestedEvent[id],
    free_event: d.freeEvent[id],
    alloc_us: timeOf(d.allocEvent[id]),
    free_us: timeOf(d.freeEvent[id]),
    stream: info.left_out.includes('stream') ? null : streamNumber(info.streams[d.stream[id]]),
    pool: info.pools[d.pool[id]] || null,
    stack: d.stack[id],
    free_stack: d.freeStack[id],
    category: info.categories[d.category[id]],
    category_source: info.category_sources[d.categorySource[id]],
    origin: id < info.ghosts ? 'ghost' : id < before ? 'freed' : 'traced',
    compile_context: info.contexts[d.context[id]] || null,
    user_metadata: info.metadata[d.metadata[id]] || null,
  }
}

/** Streams are handles of up to 64 bits: a number where a number can hold it. */
function streamNumber(text: string | undefined): number | string | null {
  if (!text) return null
  const number = Number(text)
  return Number.isSafeInteger(number) ? number : text
}
