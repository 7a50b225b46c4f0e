// Exact answers from the allocation columns: what is live at a position, at which offset, what is under a point. Never from
// a mesh. Birth order is id order and `start` never descends, so what may be live at s is a prefix of the ids; one pass over
// a million of them takes a millisecond or two.

import type { BandKeys, DeviceData } from '../data/model'
import { lowerBound } from './binary-search'

type Lives = Pick<DeviceData, 'start' | 'end' | 'size'>

/** Byte at which an allocation begins at s; NaN where it is not live. */
export function offsetOf(d: Lives, id: number, s: number): number {
  const { end, size } = d
  if (!(d.start[id] <= s && end[id] > s)) return NaN
  let offset = 0
  for (let older = 0; older < id; older++) if (end[older] > s) offset += size[older]
  return offset
}

/** The allocation at a byte of the stack at s; -1 above the stack or below zero. */
export function pick(d: Lives, s: number, byte: number): number {
  if (!(byte >= 0)) return -1
  const { end, size } = d
  const born = lowerBound(d.start, s + 1)
  let top = 0
  for (let id = 0; id < born; id++) {
    if (end[id] > s) {
      top += size[id]
      if (top > byte) return id
    }
  }
  return -1
}

/** Byte at which an allocation begins in every column of a tile (samples: s per column); NaN where it is not live. */
export function path(d: Lives, id: number, samples: Int32Array): Float64Array {
  const offsets = new Float64Array(samples.length)
  if (samples.length === 0) return offsets
  const { start, end, size } = d
  const begin = samples[0]
  const stop = samples[samples.length - 1]
  const columnOf = columnTable(samples)
  for (let older = 0; older < id; older++) {
    if (end[older] <= begin) continue
    if (start[older] > stop) break
    offsets[start[older] <= begin ? 0 : columnOf[start[older] - begin]] += size[older]
    if (end[older] <= stop) offsets[columnOf[end[older] - begin]] -= size[older]
  }
  let offset = 0
  for (let c = 0; c < samples.length; c++) {
    offset += offsets[c]
    offsets[c] = start[id] <= samples[c] && end[id] > samples[c] ? offset : NaN
  }
  return offsets
}

/** What stacking needs of a device; rows are ids in birth order, so that `start` never descends. */
export interface Lifetimes {
  start: Int32Array
  end: Int32Array
  size: Float64Array
  stack: Uint32Array
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
function columnTable(samples: Int32Array): Uint16Array {
  const begin = samples[0]
  const table = new Uint16Array(samples[samples.length - 1] - begin + 1)
  for (let c = 1; c < samples.length; c++) table.fill(c, samples[c - 1] - begin + 1, samples[c] - begin + 1)
  return table
}
