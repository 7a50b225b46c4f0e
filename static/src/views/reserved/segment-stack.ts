// The segments of one column after the other, stacked: by group, then by address.

import { lowerBound } from '../../layout/binary-search'
import type { SegmentHistory } from '../../allocator/segment-history'
import type { Groups } from '../shared/groups'

/** Rows in stacking order and the upper edge of each, at one position. */
export interface Pile {
  rows: Int32Array
  tops: Float64Array
}

/** Steps through positions that never descend; a pile is made again only where segments came or went. */
export class SegmentStack {
  /** Row by stacking rank and back. */
  private readonly byRank: Int32Array
  private readonly rankOf: Int32Array
  private readonly begins: Int32Array
  private readonly ends: Int32Array
  private live: number[] = []
  private nextBegin = 0
  private nextEnd = 0
  private pile: Pile = { rows: new Int32Array(0), tops: new Float64Array(0) }

  constructor(
    private readonly segments: SegmentHistory,
    groups: Groups,
  ) {
    const { count, from, to, start } = segments
    const rows = (): Int32Array => Int32Array.from({ length: count }, (_, row) => row)
    this.byRank = rows().sort((a, b) => groups.of[a] - groups.of[b] || start[a] - start[b] || from[a] - from[b])
    this.rankOf = new Int32Array(count)
    for (let rank = 0; rank < count; rank++) this.rankOf[this.byRank[rank]] = rank
    this.begins = rows().sort((a, b) => from[a] - from[b])
    this.ends = rows().sort((a, b) => to[a] - to[b])
  }

  /** Rewinds to before the first position. */
  rewind(): void {
    this.live = []
    this.nextBegin = 0
    this.nextEnd = 0
    this.pile = { rows: new Int32Array(0), tops: new Float64Array(0) }
  }

  /** The pile at a position at or after the last requested one; the same object where it did not change. */
  at(position: number): Pile {
    const { segments, begins, ends, live, rankOf } = this
    let changed = false
    for (; this.nextBegin < begins.length && segments.from[begins[this.nextBegin]] <= position; this.nextBegin++) {
      const row = begins[this.nextBegin]
      if (segments.to[row] <= position) continue
      live.splice(this.place(rankOf[row]), 0, rankOf[row])
      changed = true
    }
    for (; this.nextEnd < ends.length && segments.to[ends[this.nextEnd]] <= position; this.nextEnd++) {
      const rank = rankOf[ends[this.nextEnd]]
      const at = this.place(rank)
      if (live[at] !== rank) continue
      live.splice(at, 1)
      changed = true
    }
    if (changed) this.pile = this.pileUp()
    return this.pile
  }

  private pileUp(): Pile {
    const { live, byRank, segments } = this
    const rows = new Int32Array(live.length)
    const tops = new Float64Array(live.length)
    let top = 0
    for (let i = 0; i < live.length; i++) {
      const row = byRank[live[i]]
      top += segments.end[row] - segments.start[row]
      rows[i] = row
      tops[i] = top
    }
    return { rows, tops }
  }

  private place(rank: number): number {
    return lowerBound(this.live, rank)
  }
}
