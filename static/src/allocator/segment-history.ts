// Which segments there were, and when: from the final segments backwards through the trace's segment events.
//
// A segment of cudaMalloc is allocated and freed whole. An expandable one is address space into which memory is mapped;
// what a snapshot calls its segments are the contiguous mapped ranges, so a range that grows or shrinks is a new row.

import type { DeviceData, DeviceInfo } from '../data/model'
import { firstWhere } from '../layout/binary-search'
import type { AddressSpace } from './address'
import { SMALL_BUFFER } from './facts'

/** One row per segment and time, by address, then time. */
export interface SegmentHistory {
  count: number
  /** In numbers of the device's AddressSpace. */
  start: Float64Array
  end: Float64Array
  /** Its first position, and the first at which it no longer exists. */
  from: Int32Array
  to: Int32Array
  /** Indices into info.streams and info.pools; the pool is 0 where it is not recorded. */
  stream: Uint16Array
  pool: Uint16Array
  /** 1 large, 0 small, UNKNOWN until an allocation shows which. */
  large: Uint8Array
  expandable: Uint8Array
}

export const UNKNOWN = 2

interface Row {
  start: number
  end: number
  from: number
  to: number
  stream: number
  pool: number
  large: number
  expandable: number
}

export function segmentHistory(
  data: Pick<DeviceData, 'segments' | 'other' | 'P'>,
  info: DeviceInfo,
  space: AddressSpace,
): SegmentHistory {
  const { segments, other, P } = data
  const fixed = new Map<number, Row>()
  const mapped = new Ranges()
  const rows: Row[] = []
  for (let i = 0; i < segments.size.length; i++) {
    if (segments.size[i] <= 0) continue // a device that had no memory
    const start = space.of(segments.addrHi[i], segments.addrLo[i])
    const row: Row = {
      start,
      end: start + segments.size[i],
      from: 0,
      to: P,
      stream: segments.stream[i],
      pool: segments.pool[i],
      large: segments.large[i],
      expandable: segments.expandable[i],
    }
    if (row.expandable) mapped.put(row)
    else if (fixed.has(start))
      rows.push(row) // two final segments at one address: a broken file; both are shown
    else fixed.set(start, row)
  }
  for (let i = other.event.length - 1; i >= 0; i--) {
    const action = info.actions[other.action[i]]
    if (!action.startsWith('segment_') || other.size[i] <= 0) continue
    const start = space.of(other.addrHi[i], other.addrLo[i])
    const end = start + other.size[i]
    const position = other.event[i] + 1
    const large = other.size[i] > SMALL_BUFFER ? UNKNOWN : 0
    const row: Row = { start, end, from: 0, to: position, stream: other.stream[i], pool: 0, large, expandable: 0 }
    if (action === 'segment_alloc') {
      // One that the final state does not have must have been freed unrecorded: kept to the last event.
      const segment = fixed.get(start) ?? { ...row, to: P - 1 }
      fixed.delete(start)
      rows.push({ ...segment, from: position })
    } else if (action === 'segment_free') {
      const above = fixed.get(start)
      if (above) rows.push({ ...above, from: position })
      fixed.set(start, row)
    } else if (action === 'segment_map') {
      mapped.undoMap(start, end, position)
    } else if (action === 'segment_unmap') {
      mapped.undoUnmap({ ...row, expandable: 1 }, position)
    }
  }
  rows.push(...fixed.values(), ...mapped.finish())
  return columnsOf(rows.filter((row) => row.from < row.to))
}

function columnsOf(rows: Row[]): SegmentHistory {
  rows.sort((a, b) => a.start - b.start || a.from - b.from)
  const f64 = (name: 'start' | 'end'): Float64Array => Float64Array.from(rows, (row) => row[name])
  return {
    count: rows.length,
    start: f64('start'),
    end: f64('end'),
    from: Int32Array.from(rows, (row) => row.from),
    to: Int32Array.from(rows, (row) => row.to),
    stream: Uint16Array.from(rows, (row) => row.stream),
    pool: Uint16Array.from(rows, (row) => row.pool),
    large: Uint8Array.from(rows, (row) => row.large),
    expandable: Uint8Array.from(rows, (row) => row.expandable),
  }
}

/** The mapped ranges while the trace is undone, by address; they never overlap. */
class Ranges {
  private readonly live: Row[] = []
  private readonly rows: Row[] = []

  put(row: Row): void {
    this.live.splice(this.firstAfter(row.start), 0, row)
  }

  /** Before the map these bytes were not there. */
  undoMap(start: number, end: number, position: number): void {
    for (const row of this.touching(start, end, false)) {
      this.close(row, position)
      if (row.start < start) this.put({ ...row, end: start, to: position })
      if (row.end > end) this.put({ ...row, start: end, to: position })
    }
  }

  /** Before the unmap these bytes were there, one range with the neighbours of the same stream. */
  undoUnmap(row: Row, position: number): void {
    const merged = row
    for (const other of this.touching(row.start, row.end, true)) {
      const overlaps = other.end > row.start && other.start < row.end
      if (
        !overlaps &&
        (other.stream !== row.stream || (other.pool !== merged.pool && merged.pool !== 0 && other.pool !== 0))
      )
        continue
      this.close(other, position)
      merged.start = Math.min(merged.start, other.start)
      merged.end = Math.max(merged.end, other.end)
      merged.pool ||= other.pool
      if (other.large !== UNKNOWN) merged.large = other.large
    }
    this.put(merged)
  }

  finish(): Row[] {
    return this.rows.concat(this.live)
  }

  private close(row: Row, position: number): void {
    this.live.splice(this.live.indexOf(row), 1)
    this.rows.push({ ...row, from: position })
  }

  /** Those that overlap [start, end), or with `edges` also those that end or begin there. A copy. */
  private touching(start: number, end: number, edges: boolean): Row[] {
    const found: Row[] = []
    for (let i = Math.max(0, this.firstAfter(start) - 1); i < this.live.length && this.live[i].start <= end; i++) {
      const row = this.live[i]
      if (edges ? row.end >= start : row.end > start && row.start < end) found.push(row)
    }
    // The range that ends exactly at `start` may lie one further down.
    const before = this.live[this.firstAfter(start) - 2]
    if (edges && before && before.end >= start && !found.includes(before)) found.unshift(before)
    return found
  }

  private firstAfter(address: number): number {
    return firstWhere(0, this.live.length, (i) => this.live[i].start > address)
  }
}
