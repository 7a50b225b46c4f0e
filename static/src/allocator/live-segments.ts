// The segments that exist at one moment of a pass over the trace, by address.

import { firstWhere } from '../layout/binary-search'
import type { SegmentHistory } from './segment-history'

export class StandingSegments {
  /** Rows of the history, by address. */
  private readonly now: number[] = []
  /** The row that each address was last found in: most are looked up again and again. */
  private readonly lastRow: Int32Array

  /** addresses: those that are looked up, by rank. */
  constructor(
    private readonly segments: SegmentHistory,
    private readonly addresses: Float64Array,
  ) {
    this.lastRow = new Int32Array(addresses.length).fill(-1)
  }

  put(row: number): void {
    this.now.splice(this.place(this.segments.start[row]) + 1, 0, row)
  }

  /** False where it was not there. */
  drop(row: number): boolean {
    const at = this.now.indexOf(row)
    if (at >= 0) this.now.splice(at, 1)
    return at >= 0
  }

  /** The row that contains the address of a rank at the current position; -1: none. */
  of(rank: number, position: number): number {
    const { segments, now } = this
    const last = this.lastRow[rank]
    // A row that still exists and was found for this address still contains it.
    if (last >= 0 && segments.from[last] <= position && segments.to[last] > position) return last
    const address = this.addresses[rank]
    const at = this.place(address)
    const row = at >= 0 && address < segments.end[now[at]] ? now[at] : -1
    this.lastRow[rank] = row
    return row
  }

  /** Index into `now` of the last segment that begins at or below an address; -1 where none does. */
  private place(address: number): number {
    const { now } = this
    const { start } = this.segments
    return firstWhere(0, now.length, (i) => start[now[i]] > address) - 1
  }
}
