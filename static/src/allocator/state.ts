// Segments and their blocks at one position: the live ids in address order, and the gaps between them.

import type { Replay } from './replay'

export const ALLOCATED = 0
/** Its free was requested and not completed: still allocated. */
export const PENDING = 1
/** Free inside a segment with a live block. */
export const SPLIT = 2
/** A whole segment without a live block. */
export const WHOLE = 3

export interface AllocatorState {
  position: number
  /** Segments by address; those of no known segment come last. */
  segments: number
  /** Row of the replay's segments; -1: a run of allocations where the file has no segment. */
  row: Int32Array
  start: Float64Array
  end: Float64Array
  /** First block of each segment, and the number of blocks (length segments + 1). */
  first: Int32Array
  /** Bytes free inside each segment. */
  free: Float64Array
  /** Blocks of all segments by address. */
  blocks: number
  blockStart: Float64Array
  blockEnd: Float64Array
  /** Allocation id; -1 for what is free. */
  blockId: Int32Array
  blockKind: Uint8Array
  totals: Totals
  /** The allocation born by the event before this position, the one ended by it and the one whose free it requested; -1: none. */
  born: number
  ended: number
  requested: number
}

/** Bytes; `reserved` minus `allocated` is what the three parts of fragmentation add up to. */
export interface Totals {
  reserved: number
  allocated: number
  pending: number
  rounding: number
  /** Inactive split blocks: free inside segments with a live block. Below 0 where the file contradicts itself. */
  split: number
  whollyFree: number
  largestFree: number
  /** Index of the segment with the largest contiguous free range; -1: nothing is free. */
  largestIn: number
  /** Live allocations and bytes that lie in no known segment. */
  outside: number
  outsideBytes: number
  /** Live blocks that begin inside the one before: only in files that contradict themselves. */
  overlapping: number
}

export function stateAt(replay: Replay, position: number): AllocatorState {
  const { data, segments } = replay
  const live = liveByAddress(replay, position)
  const rows: number[] = []
  for (let row = 0; row < segments.count; row++)
    if (segments.from[row] <= position && segments.to[row] > position) rows.push(row)
  const out = new Builder(replay, position, rows.length, live.length)
  const strangers: number[] = []
  let at = 0
  for (const row of rows) {
    for (; at < live.length && replay.address[live[at]] < segments.start[row]; at++) strangers.push(live[at])
    out.begin(row, segments.start[row])
    for (; at < live.length && replay.address[live[at]] < segments.end[row]; at++) out.block(live[at])
    out.finish(segments.end[row])
  }
  for (; at < live.length; at++) strangers.push(live[at])
  out.strangers(strangers)
  return out.state({
    allocated: data.allocated[position],
    reserved: data.reserved[position],
    rounding: replay.rounding[position],
    whollyFree: replay.whollyFree[position],
  })
}

function liveByAddress({ order, orderStart, orderEnd }: Replay, position: number): Int32Array {
  let live = new Int32Array(4096)
  let count = 0
  for (let i = 0; i < order.length; i++) {
    if (orderStart[i] > position || orderEnd[i] <= position) continue
    if (count === live.length) {
      const more = new Int32Array(2 * count)
      more.set(live)
      live = more
    }
    live[count++] = order[i]
  }
  return live.subarray(0, count)
}

/** Beyond a gap of this many bytes, allocations in no known segment are a run of their own. */
const RUN_GAP = 2 ** 20

class Builder {
  private readonly row: number[] = []
  private readonly start: number[] = []
  private readonly end: number[] = []
  private readonly first: number[] = []
  private readonly free: number[] = []
  private readonly blockStart: Float64Array
  private readonly blockEnd: Float64Array
  private readonly blockId: Int32Array
  private readonly blockKind: Uint8Array
  private count = 0
  private cursor = 0
  private largestFree = 0
  private largestIn = -1
  private pending = 0
  private outside = 0
  private overlapping = 0
  private outsideBytes = 0
  private requested = -1

  constructor(
    private readonly replay: Replay,
    private readonly position: number,
    segments: number,
    live: number,
  ) {
    const most = 2 * live + segments
    this.blockStart = new Float64Array(most)
    this.blockEnd = new Float64Array(most)
    this.blockId = new Int32Array(most)
    this.blockKind = new Uint8Array(most)
  }

  begin(row: number, start: number): void {
    this.row.push(row)
    this.start.push(start)
    this.first.push(this.count)
    this.free.push(0)
    this.cursor = start
  }

  block(id: number): void {
    const { replay, position } = this
    const { freeRequestedEvent, size } = replay.data
    const start = replay.address[id]
    if (start > this.cursor) this.gap(start, SPLIT)
    else if (start < this.cursor) this.overlapping++
    const requestEvent = freeRequestedEvent[id]
    const isPending = requestEvent >= 0 && requestEvent < position
    if (isPending) this.pending += size[id]
    if (requestEvent === position - 1 && requestEvent >= 0) this.requested = id
    this.push(start, start + replay.block[id], id, isPending ? PENDING : ALLOCATED)
    this.cursor = Math.max(this.cursor, start + replay.block[id])
  }

  finish(end: number): void {
    const isEmpty = this.first[this.first.length - 1] === this.count
    if (end > this.cursor) this.gap(end, isEmpty ? WHOLE : SPLIT)
    this.end.push(end)
  }

  strangers(ids: number[]): void {
    const { address, data } = this.replay
    for (let i = 0; i < ids.length; i++) {
      if (i === 0 || address[ids[i]] > this.cursor + RUN_GAP) {
        if (i > 0) this.end.push(this.cursor)
        this.begin(-1, address[ids[i]])
      }
      // What lies between two of them is unknown.
      this.cursor = Math.max(this.cursor, address[ids[i]])
      this.block(ids[i])
      this.outsideBytes += data.size[ids[i]]
    }
    if (ids.length) this.end.push(this.cursor)
    this.outside = ids.length
  }

  state({
    allocated,
    reserved,
    rounding,
    whollyFree,
  }: Pick<Totals, 'allocated' | 'reserved' | 'rounding' | 'whollyFree'>): AllocatorState {
    const { replay, position, count } = this
    return {
      position,
      segments: this.row.length,
      row: Int32Array.from(this.row),
      start: Float64Array.from(this.start),
      end: Float64Array.from(this.end),
      first: Int32Array.from([...this.first, count]),
      free: Float64Array.from(this.free),
      blocks: count,
      blockStart: this.blockStart.subarray(0, count),
      blockEnd: this.blockEnd.subarray(0, count),
      blockId: this.blockId.subarray(0, count),
      blockKind: this.blockKind.subarray(0, count),
      totals: {
        reserved,
        allocated,
        rounding,
        whollyFree,
        pending: this.pending,
        split: reserved - allocated - rounding - whollyFree,
        largestFree: this.largestFree,
        largestIn: this.largestIn,
        outside: this.outside,
        outsideBytes: this.outsideBytes,
        overlapping: this.overlapping,
      },
      born: replay.bornAt[position] ?? -1,
      ended: replay.endedAt[position] ?? -1,
      requested: this.requested,
    }
  }

  private gap(end: number, kind: number): void {
    const bytes = end - this.cursor
    const segment = this.row.length - 1
    if (this.row[segment] >= 0) {
      this.free[segment] += bytes
      if (bytes > this.largestFree) {
        this.largestFree = bytes
        this.largestIn = segment
      }
    }
    this.push(this.cursor, end, -1, kind)
    this.cursor = end
  }

  private push(start: number, end: number, id: number, kind: number): void {
    this.blockStart[this.count] = start
    this.blockEnd[this.count] = end
    this.blockId[this.count] = id
    this.blockKind[this.count++] = kind
  }
}
