// What is drawn of a tile, with exact bytes. The exact twin of snapreport/mesh/spans.py.
//
// A span is a run of columns in which one band of the stack stays the same: one allocation, or, where neighbours in the
// stack are each thinner than a row, a group of them. A group is formed by the row its members are born in, not by where
// they lie in each column: what slides down keeps its group, so spans grow with births and deaths only.

import { lowerBound } from './sampling'
import { GroupSweep } from './sweep'

/** What stacking needs of a device; rows are ids in birth order, so that `start` never descends. */
export interface Lifetimes {
  start: Int32Array
  end: Int32Array
  size: Float64Array
  stack: Uint32Array
  category: Uint8Array
  /** bytes by position */
  allocated: Float64Array
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

/** The spans of a tile whose columns show `samples` (never descending), merging what is thinner than `tolerance` bytes. */
export function tileSpans(lives: Lifetimes, samples: Int32Array, tolerance: number): Spans {
  const out = new SpanBuilder(lives.category)
  if (samples.length === 0) return out.spans
  const { start, end, size, allocated } = lives
  const begin = samples[0]
  const stop = samples[samples.length - 1]
  const columnOf = columnTable(samples)
  const columns = samples.length
  const born = lowerBound(start, stop + 1)
  const sweep = new GroupSweep(lives, out)
  let row = NaN // of the thin group that is open; NaN: none is
  let below = 0 // bytes of older allocations from before the trace
  for (let id = 0; id < born; id++) {
    const bytes = size[id]
    const old = start[id] === 0
    const offset = below
    if (old) below += bytes
    if (end[id] <= begin) continue
    const c0 = start[id] <= begin ? 0 : columnOf[start[id] - begin]
    const c1 = end[id] > stop ? columns : columnOf[end[id] - begin]
    if (c1 <= c0) continue
    if (bytes >= tolerance) {
      sweep.close()
      row = NaN
      out.add(c0, c1 - c0, id, lives.stack[id], 1, bytes)
      continue
    }
    // When it was born everything else that lived lay below it.
    const birth = old ? offset : Math.max(0, allocated[start[id]] - bytes)
    const key = Math.floor(birth / tolerance)
    if (key !== row) {
      sweep.close()
      row = key
    }
    sweep.add(id, c0, c1)
  }
  sweep.close()
  return out.spans
}

/** lower_bound(samples, s) for every s from the first sample to the last, as a table: looked up twice per allocation. */
export function columnTable(samples: Int32Array): Uint16Array {
  const begin = samples[0]
  const table = new Uint16Array(samples[samples.length - 1] - begin + 1)
  for (let c = 1; c < samples.length; c++) table.fill(c, samples[c - 1] - begin + 1, samples[c] - begin + 1)
  return table
}

/** Collects spans in growing arrays. */
export class SpanBuilder {
  spans: Spans = emptySpans(4096)
  private groupBegin = 0

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

  beginGroup(): void {
    this.groupBegin = this.spans.count
  }

  /** Equal neighbours within the group become one span: a member that goes while its twin comes changes nothing drawn. */
  addJoining(first: number, length: number, rep: number, stack: number, members: number, bytes: number): void {
    const { spans } = this
    const last = spans.count - 1
    if (
      last >= this.groupBegin &&
      spans.rep[last] === rep &&
      spans.members[last] === members &&
      spans.bytes[last] === bytes &&
      spans.first[last] + spans.length[last] === first
    ) {
      spans.length[last] += length
    } else this.add(first, length, rep, stack, members, bytes)
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
