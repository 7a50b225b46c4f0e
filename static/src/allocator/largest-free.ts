// The largest contiguous free range at every position: a second walk through the trace, when the block of every allocation is
// known. O((N + E) log N), and mostly less: a range that is not among the largest changes little of the tree.
//
// A free range lies behind a live block, or at the beginning of a segment, and is known by that: by the rank of the block's
// address, or by the row of the segment. In files whose blocks overlap it may be off, as all of their state.

import type { SegmentHistory } from './segment-history'
import { StandingSegments } from './standing'
import { SuccessorSet } from './successor'

export interface Walked {
  N: number
  P: number
  start: Int32Array
  bornAt: Int32Array
  endedAt: Int32Array
  block: Float64Array
  segments: SegmentHistory
  /** Rows by the position at which they begin, and by that at which they end. */
  begins: Int32Array
  ends: Int32Array
  /** Distinct addresses, ascending, and which of them each allocation has. */
  addresses: Float64Array
  rank: Int32Array
  /** Ranks at which each segment's addresses begin and end. */
  firstRank: Int32Array
  endRank: Int32Array
}

/** Bytes by position (length P). */
export function largestFree(walked: Walked): Float64Array {
  return new FreeRanges(walked).run()
}

class FreeRanges {
  private readonly walked: Walked
  private readonly standing: StandingSegments
  private readonly live: SuccessorSet
  private readonly count: Uint32Array
  /** Where the latest block at each address ends. */
  private readonly behind: Float64Array
  /** Free ranges: behind the block of each rank, then at the beginning of each row. */
  private readonly ranges: MaxTree
  private position = 0

  constructor(walked: Walked) {
    const { segments, addresses } = walked
    this.walked = walked
    this.standing = new StandingSegments(segments, addresses)
    this.live = new SuccessorSet(addresses.length)
    this.count = new Uint32Array(addresses.length)
    this.behind = new Float64Array(addresses.length)
    this.ranges = new MaxTree(addresses.length + segments.count)
  }

  run(): Float64Array {
    const { N, P, start, bornAt, endedAt } = this.walked
    const out = new Float64Array(P)
    let nextBegin = 0
    let nextEnd = 0
    for (let s = 0; s < P; s++) {
      this.position = s
      if (endedAt[s] >= 0) this.end(endedAt[s])
      const fromEnd = nextEnd
      const fromBegin = nextBegin
      while (this.walked.segments.to[this.walked.ends[nextEnd]] === s) nextEnd++
      while (this.walked.segments.from[this.walked.begins[nextBegin]] === s) nextBegin++
      if (nextEnd > fromEnd || nextBegin > fromBegin) this.change(this.walked.ends.subarray(fromEnd, nextEnd), this.walked.begins.subarray(fromBegin, nextBegin))
      if (s === 0) for (let id = 0; id < N && start[id] === 0; id++) this.enter(id)
      else if (bornAt[s] >= 0) this.enter(bornAt[s])
      out[s] = this.ranges.max
    }
    return out
  }

  /** Segments go and come, of which some are the same at another size: what was free at their ends is looked at again. */
  private change(gone: Int32Array, come: Int32Array): void {
    const { standing, walked: { addresses, firstRank, endRank } } = this
    const lastOf = (row: number): number => {
      const last = this.live.previous(endRank[row] - 1)
      return last >= firstRank[row] ? last : -1
    }
    for (const row of gone) {
      standing.drop(row)
      this.ranges.set(addresses.length + row, 0)
    }
    for (const row of come) standing.put(row)
    for (const row of come) {
      this.fixBegin(row)
      if (lastOf(row) >= 0) this.fix(lastOf(row))
    }
    for (const row of gone) {
      const last = lastOf(row)
      if (last >= 0 && this.fix(last) < 0) {
        // Its blocks outlive it, which only a file that contradicts itself says: nobody knows what is free between them.
        for (let rank = last; rank >= firstRank[row]; rank = this.live.previous(rank - 1)) this.ranges.set(rank, 0)
      }
    }
  }

  private enter(id: number): void {
    const { addresses, block, rank } = this.walked
    const at = rank[id]
    if (this.count[at]++ === 0) this.live.add(at)
    this.behind[at] = addresses[at] + block[id]
    const row = this.fix(at)
    if (row >= 0) this.fixBefore(at, row)
  }

  private end(id: number): void {
    const at = this.walked.rank[id]
    if (--this.count[at] > 0) return
    this.live.remove(at)
    this.ranges.set(at, 0)
    const row = this.standing.of(at, this.position)
    if (row >= 0) this.fixBefore(at, row)
  }

  private fixBefore(rank: number, row: number): void {
    const before = this.live.previous(rank - 1)
    if (before >= this.walked.firstRank[row]) this.fix(before)
    else this.fixBegin(row)
  }

  /** What is free behind the block at a rank; the row of its segment, or -1. */
  private fix(rank: number): number {
    const row = this.standing.of(rank, this.position)
    this.ranges.set(rank, row < 0 ? 0 : Math.max(0, this.limit(rank + 1, row) - this.behind[rank]))
    return row
  }

  private fixBegin(row: number): void {
    const { addresses, firstRank, segments } = this.walked
    this.ranges.set(addresses.length + row, this.limit(firstRank[row], row) - segments.start[row])
  }

  /** Where the first live block from a rank on begins, or the segment ends. */
  private limit(rank: number, row: number): number {
    const { addresses, endRank, segments } = this.walked
    const next = this.live.next(rank)
    return next >= 0 && next < endRank[row] ? addresses[next] : segments.end[row]
  }
}

/** Numbers from 0 up, by place, of which the greatest is always known. */
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
