// The trace replayed once, forwards: the block of every allocation, its segment, and what is lost to rounding
// and cached in unused segments at every position. O((N + E) log N).
//
// A trace records the requested bytes. Where the remainder of a free range is too small to be split off,
// the block is the whole range; free neighbours are joined, so a range ends at the next live block or at the segment's end.

import type { DeviceData, DeviceInfo } from '../data/model'
import { lowerBound } from '../layout/binary-search'
import { type AddressSpace, addressSpaceOf } from './address'
import { SMALL_SIZE } from './facts'
import { roundedSize, type Rules, rulesOf } from './rounding'
import { type SegmentHistory, segmentHistory, UNKNOWN } from './segment-history'
import { StandingSegments } from './live-segments'
import { SuccessorSet } from './successor'

export interface Replay {
  data: DeviceData
  space: AddressSpace
  segments: SegmentHistory
  /** Address of each allocation. */
  address: Float64Array
  /** Bytes of each allocation's block. */
  block: Float64Array
  /** Row of `segments` in which each was born; -1: in none that the file has. */
  segment: Int32Array
  /** 1 where a block from before the trace may include a remainder of at most 1 MiB that the file does not record. */
  assumed: Uint8Array
  /** Ids by address, and their lifetimes in that order: one pass over all three finds what is live at a position. */
  order: Int32Array
  orderStart: Int32Array
  orderEnd: Int32Array
  /** Id born at each position (the event before it), and id that ended there; -1 where none. */
  bornAt: Int32Array
  endedAt: Int32Array
  /** Bytes by position (length P): blocks minus requests, and segments without any live block. */
  rounding: Float64Array
  whollyFree: Float64Array
  /** Allocations that were born in no known segment. */
  outside: number
}

/** What it is made from. */
export type Recorded = Lives & Places
export type Lives = Pick<DeviceData, 'N' | 'P' | 'start' | 'end' | 'size'>
export type Places = Pick<DeviceData, 'pool' | 'addrHi' | 'addrLo' | 'segments' | 'other'>

/** What is computed, possibly in another thread than the one that uses it. */
export type Replayed = Omit<Replay, 'data' | 'space'>

export function placesOf({ pool, addrHi, addrLo, segments, other }: DeviceData): Places {
  return { pool, addrHi, addrLo, segments, other }
}

/** `settings`: those of the device's snapshot. */
export function replay(recorded: Recorded, info: DeviceInfo, settings: Record<string, unknown> | undefined): Replayed {
  return new Walk(recorded, info, rulesOf(settings, info.kind)).run()
}

export function completeReplay(data: DeviceData, replayed: Replayed): Replay {
  return { ...replayed, data, space: addressSpaceOf(data) }
}

/** Addresses were left out of the file, or there are none: nothing can be laid out. */
export function hasAddresses(data: DeviceData): boolean {
  return !data.info.left_out.includes('addr_lo')
}

class Walk {
  private readonly replay: Replayed
  /** Distinct addresses, ascending, and which of them each allocation has. */
  private readonly addresses: Float64Array
  private readonly rank: Int32Array
  /** Addresses that hold a live block, how many live there (more than one only in broken files), and the latest. */
  private readonly live: SuccessorSet
  private readonly count: Uint32Array
  private readonly latest: Int32Array
  private readonly standing: StandingSegments
  /** Ranks at which each segment's addresses begin and end. */
  private readonly firstRank: Int32Array
  private readonly endRank: Int32Array
  private position = 0
  /** Large blocks from before the trace whose remainder is not known yet. */
  private readonly open: Uint8Array

  constructor(
    private readonly data: Recorded,
    info: DeviceInfo,
    private readonly rules: Rules,
  ) {
    const { N, P } = data
    const space = addressSpaceOf(data)
    const address = new Float64Array(N)
    for (let id = 0; id < N; id++) address[id] = space.of(data.addrHi[id], data.addrLo[id])
    const { addresses, rank, order } = rankByAddress(address)
    this.addresses = addresses
    this.rank = rank
    this.live = new SuccessorSet(addresses.length)
    this.count = new Uint32Array(addresses.length)
    this.latest = new Int32Array(addresses.length)
    this.open = new Uint8Array(N)
    const bornAt = new Int32Array(P).fill(-1)
    const endedAt = new Int32Array(P).fill(-1)
    for (let id = 0; id < N; id++) {
      if (data.start[id] > 0) bornAt[data.start[id]] = id
      if (data.end[id] < P) endedAt[data.end[id]] = id
    }
    const segments = segmentHistory(data, info, space)
    this.standing = new StandingSegments(segments, addresses)
    this.firstRank = Int32Array.from(segments.start, (start) => lowerBound(addresses, start))
    this.endRank = Int32Array.from(segments.end, (end) => lowerBound(addresses, end))
    this.replay = {
      address,
      order,
      bornAt,
      endedAt,
      segments,
      orderStart: order.map((id) => data.start[id]),
      orderEnd: order.map((id) => data.end[id]),
      block: new Float64Array(N),
      segment: new Int32Array(N).fill(-1),
      assumed: new Uint8Array(N),
      rounding: new Float64Array(P),
      whollyFree: new Float64Array(P),
      outside: 0,
    }
  }

  run(): Replayed {
    const { replay, data } = this
    const { P, start } = data
    const { segments, bornAt, endedAt, whollyFree } = replay
    const begins = byPosition(segments.from, P)
    const ends = byPosition(segments.to, P)
    let nextBegin = 0
    let nextEnd = 0
    let free = 0
    for (let s = 0; s < P; s++) {
      this.position = s
      const ended = endedAt[s]
      if (ended >= 0) free += this.end(ended)
      for (; nextEnd < ends.length && segments.to[ends[nextEnd]] === s; nextEnd++) free -= this.drop(ends[nextEnd])
      for (; nextBegin < begins.length && segments.from[begins[nextBegin]] === s; nextBegin++)
        free += this.put(begins[nextBegin])
      if (s === 0) {
        for (let id = 0; id < data.N && start[id] === 0; id++) free -= this.enter(id)
        for (let id = 0; id < data.N && start[id] === 0; id++) this.measure(id, true)
      } else if (bornAt[s] >= 0) {
        free -= this.enter(bornAt[s])
        this.measure(bornAt[s], false)
      }
      whollyFree[s] = free
    }
    this.sumRounding()
    settleKinds(replay, data)
    return replay
  }

  /** A segment appears; returns the bytes of it that are unused. */
  private put(row: number): number {
    this.standing.put(row)
    return this.freeBytes(row)
  }

  /** A segment disappears; returns the bytes of it that were unused. */
  private drop(row: number): number {
    return this.standing.drop(row) ? this.freeBytes(row) : 0
  }

  /** A block is allocated; returns the bytes of its segment that were unused until now. */
  private enter(id: number): number {
    const { replay, rank, live, count } = this
    const row = this.standing.of(rank[id], this.position)
    replay.segment[id] = row
    const before = row < 0 ? 0 : this.freeBytes(row)
    if (count[rank[id]]++ === 0) live.add(rank[id])
    this.latest[rank[id]] = id
    return before
  }

  /** A block is freed; returns the bytes of its segment that are unused from now on. */
  private end(id: number): number {
    const { rank, live, count } = this
    if (--count[rank[id]] === 0) live.remove(rank[id])
    else return 0
    const row = this.standing.of(rank[id], this.position)
    return row < 0 ? 0 : this.freeBytes(row)
  }

  /** The block size of an allocation that was just born; `older`: from before the trace. */
  private measure(id: number, older: boolean): void {
    const { replay, rules, addresses, rank, live } = this
    const { segments } = replay
    const row = replay.segment[id]
    const address = replay.address[id]
    const rounded = roundedSize(rules, this.data.size[id])
    replay.block[id] = rounded
    if (row < 0) {
      replay.outside++
      replay.assumed[id] = 1
      return
    }
    if (rules.host) {
      replay.block[id] = segments.end[row] - address
      return
    }
    if (rounded > SMALL_SIZE && segments.large[row] === UNKNOWN) segments.large[row] = 1
    if (rounded <= SMALL_SIZE || rules.expandable || segments.expandable[row]) return
    const behind = address + rounded
    const neighbour = live.next(rank[id] + 1)
    const limit = neighbour < 0 ? segments.end[row] : Math.min(segments.end[row], addresses[neighbour])
    const uncut = rounded >= rules.maxSplit
    const remainder = limit - behind
    if (remainder > 0 && (uncut || remainder <= SMALL_SIZE)) replay.block[id] = limit - address
    else if (older && remainder > 0) this.open[id] = 1
    if (!older) this.closeBefore(id)
  }

  /** A free range begins where a block ends: a birth shows where an older block before it ended. */
  private closeBefore(id: number): void {
    const { replay, live, rank, latest, open } = this
    const before = live.previous(rank[id] - 1)
    if (before < 0) return
    const older = latest[before]
    if (!open[older]) return
    const length = replay.address[id] - replay.address[older]
    const remaining = length - replay.block[older]
    if (remaining < 0 || remaining > SMALL_SIZE) return
    replay.block[older] = length
    open[older] = 0
  }

  private sumRounding(): void {
    const { replay, data, open } = this
    const { rounding, block, assumed } = replay
    for (let id = 0; id < data.N; id++) {
      const lost = block[id] - data.size[id]
      rounding[data.start[id]] += lost
      if (data.end[id] < data.P) rounding[data.end[id]] -= lost
      if (open[id]) assumed[id] = 1
    }
    for (let s = 1; s < data.P; s++) rounding[s] += rounding[s - 1]
  }

  /** Bytes of a segment if no block in it lives, else 0. */
  private freeBytes(row: number): number {
    const { segments } = this.replay
    const next = this.live.next(this.firstRank[row])
    return next < 0 || next >= this.endRank[row] ? segments.end[row] - segments.start[row] : 0
  }
}

/** Kinds and pools of segments that only the trace has, from the allocations in them. */
function settleKinds({ segments, segment }: Replayed, data: Recorded): void {
  for (let id = 0; id < data.N; id++) {
    const row = segment[id]
    if (row >= 0 && segments.pool[row] === 0) segments.pool[row] = data.pool[id]
  }
  for (let row = 0; row < segments.count; row++) if (segments.large[row] === UNKNOWN) segments.large[row] = 1
}

/** Rows in the order of their positions; those at P or beyond are left out. */
export function byPosition(positions: Int32Array, P: number): Int32Array {
  const rows = Int32Array.from(positions.keys()).filter((row) => positions[row] < P)
  return rows.sort((a, b) => positions[a] - positions[b] || a - b)
}

/** Distinct addresses, ascending; which of them each allocation has; and the ids by address. */
function rankByAddress(address: Float64Array): { addresses: Float64Array; rank: Int32Array; order: Int32Array } {
  const N = address.length
  const rank = new Int32Array(N)
  // Allocators reuse the same addresses again and again: distinct ones are found first, and only those are sorted.
  const found = new Float64Array(N)
  const known = new Map<number, number>()
  for (let id = 0; id < N; id++) {
    let number = known.get(address[id])
    if (number === undefined) {
      number = known.size
      found[number] = address[id]
      known.set(address[id], number)
    }
    rank[id] = number
  }
  const distinct = known.size
  const addresses = found.slice(0, distinct).sort()
  const rankOf = new Int32Array(distinct)
  for (let at = 0; at < distinct; at++) rankOf[at] = lowerBound(addresses, found[at])
  const first = new Int32Array(distinct + 1)
  for (let id = 0; id < N; id++) {
    rank[id] = rankOf[rank[id]]
    first[rank[id] + 1]++
  }
  for (let r = 0; r < distinct; r++) first[r + 1] += first[r]
  const order = new Int32Array(N)
  for (let id = 0; id < N; id++) order[first[rank[id]]++] = id
  return { addresses, rank, order }
}
