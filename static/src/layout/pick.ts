// Exact answers from the allocation columns: what is live at a position, at which offset, what is under a point. Never from
// a mesh. Birth order is id order and `start` never descends, so what may be live at s is a prefix of the ids; one pass over
// a million of them takes a millisecond or two.

import type { DeviceData } from '../data/model'
import { lowerBound } from './binary-search'
import { columnTable } from './visible'

type Lives = Pick<DeviceData, 'start' | 'end' | 'size'>

/** Ids live at s, bottom of the stack first. */
export function liveAt(d: Lives, s: number): Int32Array {
  const { end } = d
  const born = lowerBound(d.start, s + 1)
  let count = 0
  for (let id = 0; id < born; id++) if (end[id] > s) count++
  const live = new Int32Array(count)
  for (let id = 0, i = 0; i < count; id++) if (end[id] > s) live[i++] = id
  return live
}

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
