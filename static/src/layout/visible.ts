// The allocations that a tile's columns show, in birth order, with the columns each lives in.

import type { BandKeys } from '../data/model'
import { lowerBound } from './binary-search'

/** What stacking needs of a device; rows are ids in birth order, so that `start` never descends. */
export interface Lifetimes {
  start: Int32Array
  end: Int32Array
  size: Float64Array
  stack: Uint32Array
  category: Uint8Array
  /** bytes by position */
  allocated: Float64Array
  /** Absent: bands are named by their stacks. */
  bandKeys?: BandKeys
}

/** Columns of the visible allocations; the arrays may be longer than `count`. */
export interface Visible {
  count: number
  id: Int32Array
  /** first column, and the one after the last */
  c0: Uint16Array
  c1: Uint16Array
  /** byte at which it began when it was born */
  birth: Float64Array
}

/** Those that live in one column at least. `samples` never descend. One pass over the ids born by the last of them. */
export function visibleIn(lives: Lifetimes, samples: Int32Array): Visible {
  const out: Visible = {
    count: 0,
    id: new Int32Array(0),
    c0: new Uint16Array(0),
    c1: new Uint16Array(0),
    birth: new Float64Array(0),
  }
  const columns = samples.length
  if (columns === 0) return out
  const { start, end, size, allocated } = lives
  const begin = samples[0]
  const stop = samples[columns - 1]
  const born = lowerBound(start, stop + 1)
  let capacity = 0
  for (let id = 0; id < born; id++) if (end[id] > begin) capacity++
  const ids = (out.id = new Int32Array(capacity))
  const c0s = (out.c0 = new Uint16Array(capacity))
  const c1s = (out.c1 = new Uint16Array(capacity))
  const births = (out.birth = new Float64Array(capacity))
  const columnOf = columnTable(samples)
  let count = 0
  let older = 0 // bytes of those before it that are from before the trace
  for (let id = 0; id < born; id++) {
    const from = start[id]
    const to = end[id]
    if (to > begin) {
      const c0 = from <= begin ? 0 : columnOf[from - begin]
      const c1 = to > stop ? columns : columnOf[to - begin]
      if (c1 > c0) {
        ids[count] = id
        c0s[count] = c0
        c1s[count] = c1
        // When one is born, everything else that lives lies below it; those from before the trace lie in id order.
        births[count] = from === 0 ? older : Math.max(0, allocated[from] - size[id])
        count++
      }
    }
    if (from === 0) older += size[id]
  }
  out.count = count
  return out
}

/** lower_bound(samples, s) for every s from the first sample to the last, as a table: looked up twice per allocation. */
export function columnTable(samples: Int32Array): Uint16Array {
  const begin = samples[0]
  const table = new Uint16Array(samples[samples.length - 1] - begin + 1)
  for (let c = 1; c < samples.length; c++) table.fill(c, samples[c - 1] - begin + 1, samples[c] - begin + 1)
  return table
}
