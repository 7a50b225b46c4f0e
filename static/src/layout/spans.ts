// What is drawn of a tile, with exact bytes.
//
// A span is a run of columns in which one band of the stack stays the same: one allocation, or, where neighbours in the
// stack are each thinner than a row, a group of them. A group is formed by the row its members are born in, not by where
// they lie in each column: what slides down keeps its group, so spans grow with births and deaths only.

import { GroupSweep, type SpanSink } from './sweep'
import type { Lifetimes, Visible } from './pick'

/** The needed part of the height: spans outside it need not be made. */
export interface Band {
  /** Lowest byte of it. */
  y0: number
  /** Bytes that lie below it throughout columns [c0, c1). */
  under(c0: number, c1: number, bytes: number): void
  /** Whether what was added so far reaches its top in a column. */
  reached(column: number): boolean
}

/**
 * Passes the spans of a tile to `sink`, merging what is thinner than `tolerance` bytes. Returns how many of the visible
 * allocations were laid out before the sink was full.
 *
 * With a band, what can never show in it is left out. An allocation only ever slides down, so that its offset at birth
 * is its greatest and that in its last column its least. What lies below throughout is passed as `under` before the first
 * span; what is younger than something else in a column lies above it there, so this disturbs only what is below too.
 */
export function layOut(
  lives: Lifetimes,
  visible: Visible,
  tolerance: number,
  sink: SpanSink,
  band: Band | null,
): number {
  const { size } = lives
  const stack = lives.bandKeys?.keys ?? lives.stack
  const { count, id, c0, c1, birth } = visible
  // A thin one is born below row + 1 and is thinner than a row: its group lies below row + 2. Whole groups are left out,
  // or those that stay would be cut otherwise.
  const below = (bytes: number, v: number) =>
    (bytes >= tolerance ? birth[v] + bytes : (Math.floor(birth[v] / tolerance) + 2) * tolerance) <= band!.y0
  if (band && band.y0 > 0) {
    for (let v = 0; v < count; v++) {
      const bytes = size[id[v]]
      if (below(bytes, v)) band.under(c0[v], c1[v], bytes)
    }
  }
  const sweep = new GroupSweep(lives, sink)
  let row = NaN // row of the open thin group; NaN: none is open
  for (let v = 0; v < count; v++) {
    const bytes = size[id[v]]
    const thick = bytes >= tolerance
    const key = thick ? NaN : Math.floor(birth[v] / tolerance)
    if (key !== row) {
      sweep.close()
      row = key
      if (sink.full) return v
    }
    if (band && ((band.y0 > 0 && below(bytes, v)) || band.reached(c1[v] - 1))) continue
    if (thick) sink.add(c0[v], c1[v] - c0[v], id[v], stack[id[v]], 1, bytes)
    else sweep.add(id[v], c0[v], c1[v])
  }
  sweep.close()
  return count
}
