// The largest contiguous free range at every position: a second pass over the trace, once the block of every allocation is
// known. O((N + E) log N), usually less: a range that is not among the largest changes little of the tree.
//
// A free range follows a live block or begins a segment, and is identified by it: by the rank of the block's
// address, or by the row of the segment. In files whose blocks overlap it may be wrong, like all of their state.

import { lowerBound } from '../layout/binary-search'
import { byPosition, type Lives, type Replayed } from './replay'
import type { SegmentHistory } from './segment-history'
import { StandingSegments } from './live-segments'
import { SuccessorSet } from './successor'

/** Bytes by position (length P). */
export function largestFree(replay: Replayed, lives: Pick<Lives, 'N' | 'P' | 'start'>): Float64Array {
  return new FreeRanges(replay, lives).run()
}

class FreeRanges {
  private readonly segments: SegmentHistory
  private readonly standing: StandingSegments
  /** Distinct addresses, ascending, and which of them each allocation has. */
  private readonly addresses: Float64Array
  private readonly rank: Int32Array
  /** Ranks at which each segment's addresses begin and end. */
  private readonly firstRank: Int32Array
  private readonly endRank: Int32Array
  /** Addresses that hold a live block, how many live there (more than one only in broken files), and where the latest ends. */
  private readonly live: SuccessorSet
  private readonly count: Uint32Array
  private readonly behind: Float64Array
  /** Free ranges: behind the block of each rank, then at the beginning of each row. */
  private readonly ranges: MaxTree
  private position = 0

  constructor(
    private readonly replay: Replayed,
    private readonly lives: Pick<Lives, 'N' | 'P' | 'start'>,
  ) {
    const { segments, address, order } = replay
    const rank = new Int32Array(order.length)
    const addresses = new Float64Array(order.length)
    let distinct = 0
    for (const id of order) {
      if (distinct === 0 || address[id] !== addresses[distinct - 1]) addresses[distinct++] = address[id]
      rank[id] = distinct - 1
    }
    this.segments = segments
    this.rank = rank
    this.addresses = addresses.subarray(0, distinct)
    this.firstRank = Int32Array.from(segments.start, (start) => lowerBound(this.addresses, start))
    this.endRank = Int32Array.from(segments.end, (end) => lowerBound(this.addresses, end))
    this.standing = new StandingSegments(segments, this.addresses)
    this.live = new SuccessorSet(distinct)
    this.count = new Uint32Array(distinct)
    this.behind = new Float64Array(distinct)
    this.ranges = new MaxTree(distinct + segments.count)
  }

  run(): Float64Array {
    const { from, to } = this.segments
    const { bornAt, endedAt } = this.replay
    const { N, P, start } = this.lives
    const begins = byPosition(from, P)
    const ends = byPosition(to, P)
    const out = new Float64Array(P)
    let begun = 0
    let ended = 0
    for (let s = 0; s < P; s++) {
      this.position = s
      if (endedAt[s] >= 0) this.end(endedAt[s])
      const [come, gone] = [begun, ended]
      while (from[begins[begun]] === s) begun++
      while (to[ends[ended]] === s) ended++
      if (begun > come || ended > gone) this.change(ends.subarray(gone, ended), begins.subarray(come, begun))
      if (s === 0) for (let id = 0; id < N && start[id] === 0; id++) this.enter(id)
      else if (bornAt[s] >= 0) this.enter(bornAt[s])
      out[s] = this.ranges.max
    }
    return out
  }

  /** Segments disappear and appear, some of them only at another size: the free ranges at their ends are computed again. */
  private change(removed: Int32Array, added: Int32Array): void {
    const { standing, addresses, firstRank, endRank } = this
    const lastOf = (row: number): number => {
      const last = this.live.previous(endRank[row] - 1)
      return last >= firstRank[row] ? last : -1
    }
    for (const row of removed) {
      standing.drop(row)
      this.ranges.set(addresses.length + row, 0)
    }
    for (const row of added) standing.put(row)
    for (const row of added) {
      this.fixBegin(row)
      if (lastOf(row) >= 0) this.fix(lastOf(row))
    }
    for (const row of removed) {
      const last = lastOf(row)
      if (last >= 0 && this.fix(last) < 0) {
        // Its blocks outlive it, which happens only in a file that contradicts itself: what is free between them is unknown.
        for (let rank = last; rank >= firstRank[row]; rank = this.live.previous(rank - 1)) this.ranges.set(rank, 0)
      }
    }
  }

  private enter(id: number): void {
    const at = this.rank[id]
    if (this.count[at]++ === 0) this.live.add(at)
    this.behind[at] = this.addresses[at] + this.replay.block[id]
    const row = this.fix(at)
    if (row >= 0) this.fixBefore(at, row)
  }

  private end(id: number): void {
    const at = this.rank[id]
    if (--this.count[at] > 0) return
    this.live.remove(at)
    this.ranges.set(at, 0)
    const row = this.standing.of(at, this.position)
    if (row >= 0) this.fixBefore(at, row)
  }

  private fixBefore(rank: number, row: number): void {
    const before = this.live.previous(rank - 1)
    if (before >= this.firstRank[row]) this.fix(before)
    else this.fixBegin(row)
  }

  /** What is free behind the block at a rank; the row of its segment, or -1. */
  private fix(rank: number): number {
    const row = this.standing.of(rank, this.position)
    this.ranges.set(rank, row < 0 ? 0 : Math.max(0, this.limit(rank + 1, row) - this.behind[rank]))
    return row
  }

  private fixBegin(row: number): void {
    const { addresses, firstRank, segments } = this
    this.ranges.set(addresses.length + row, this.limit(firstRank[row], row) - segments.start[row])
  }

  /** Where the first live block from a rank on begins, or the segment ends. */
  private limit(rank: number, row: number): number {
    const { addresses, endRank, segments } = this
    const next = this.live.next(rank)
    return next >= 0 && next < endRank[row] ? addresses[next] : segments.end[row]
  }
}

/** Non-negative numbers by index, whose maximum is always at hand. */
class MaxTree {
  private readonly leaves: number
  private readonly nodes: Float64Array

  constructor(count: number) {
    this.leaves = 2 ** Math.ceil(Math.log2(Math.max(2, count)))
    this.nodes = new Float64Array(2 * this.leaves)
  }

  get max(): number {
    return this.nodes[1]
  }

  set(place: number, value: number): void {
    const { nodes } = this
    let node = this.leaves + place
    nodes[node] = value
    while (node > 1) {
      const most = Math.max(nodes[node], nodes[node ^ 1])
      node >>>= 1
      if (nodes[node] === most) return
      nodes[node] = most
    }
  }
}
