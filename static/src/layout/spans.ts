// What is drawn of a tile, with exact bytes. The exact twin of snapreport/mesh/spans.py.
//
// A span is a run of columns in which one band of the stack stays the same: one allocation, or, where neighbours in the
// stack are each thinner than a row, a group of them. A group is formed by the row its members are born in, not by where
// they lie in each column: what slides down keeps its group, so spans grow with births and deaths only.

import { GroupSweep, type SpanSink } from './sweep'
import { type Lifetimes, type Visible, visibleIn } from './pick'

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

/** Spans in stacking order, bottom first; the arrays may be longer than `count` spans. */
export interface Spans {
  count: number
  first: Uint16Array
  length: Uint16Array
  rep: Uint32Array
  stack: Uint32Array
  category: Uint8Array
  /** allocations in the span */
  members: Uint32Array
  bytes: Float64Array
}

/** All spans of a tile whose columns show `samples`, as the file would store them. */
export function tileSpans(lives: Lifetimes, samples: Int32Array, tolerance: number): Spans {
  const collector = new SpanCollector(lives.category)
  layOut(lives, visibleIn(lives, samples), tolerance, collector, null)
  return collector.spans
}

class SpanCollector implements SpanSink {
  spans: Spans = emptySpans(4096)
  readonly full = false

  constructor(private readonly category: Uint8Array) {}

  add(first: number, length: number, rep: number, stack: number, members: number, bytes: number): void {
    let { spans } = this
    const i = spans.count
    if (i === spans.first.length) spans = this.spans = grown(spans)
    spans.first[i] = first
    spans.length[i] = length
    spans.rep[i] = rep
    spans.stack[i] = stack
    spans.category[i] = this.category[rep]
    spans.members[i] = members
    spans.bytes[i] = bytes
    spans.count = i + 1
  }
}

function emptySpans(capacity: number): Spans {
  return {
    count: 0,
    first: new Uint16Array(capacity),
    length: new Uint16Array(capacity),
    rep: new Uint32Array(capacity),
    stack: new Uint32Array(capacity),
    category: new Uint8Array(capacity),
    members: new Uint32Array(capacity),
    bytes: new Float64Array(capacity),
  }
}

function grown(old: Spans): Spans {
  const spans = emptySpans(old.first.length * 2)
  spans.count = old.count
  spans.first.set(old.first)
  spans.length.set(old.length)
  spans.rep.set(old.rep)
  spans.stack.set(old.stack)
  spans.category.set(old.category)
  spans.members.set(old.members)
  spans.bytes.set(old.bytes)
  return spans
}
