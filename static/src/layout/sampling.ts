// Which position each column of a tile shows: the first of the greatest allocated within the column, so that a peak
// never vanishes when zoomed out and every column is the true live set of one true moment.

import { lowerBound } from './binary-search'
import type { Times } from '../data/model'
import { COLUMNS, columnWidth, type Grid } from './grid'

export interface Samples {
  /** s per column, never descending. Columns wholly outside the trace are left out. */
  s: Int32Array
  /** Every column stands for one position. */
  exact: boolean
}

/** Samples of an event tile. */
export function eventSamples(allocated: Float64Array, grid: Grid, level: number, tile: number): Samples {
  const width = columnWidth(grid, level)
  const begin = tile * COLUMNS * width
  const end = Math.min(begin + COLUMNS * width, allocated.length)
  const count = Math.max(0, Math.ceil((end - begin) / width))
  const s = new Int32Array(count)
  if (width === 1) {
    for (let c = 0; c < count; c++) s[c] = begin + c
    return { s, exact: true }
  }
  for (let c = 0; c < count; c++) {
    const from = begin + c * width
    s[c] = greatest(allocated, from, Math.min(from + width, end))
  }
  return { s, exact: false }
}

/**
 * Samples of a time tile: a column's positions run from the state in force at its start to the last event inside it.
 * `axisUs`: where events lie on the axis. Neighbours may show the same position.
 */
export function timeSamples(allocated: Float64Array, axisUs: Times, grid: Grid, level: number, tile: number): Samples {
  const width = columnWidth(grid, level)
  const begin = tile * COLUMNS * width
  const count = Math.max(0, Math.min(COLUMNS, Math.ceil((grid.extent - begin) / width)))
  const s = new Int32Array(count)
  let exact = true
  // Events before the column's start: as many as the position then in force.
  let inForce = lowerBound(axisUs, begin)
  for (let c = 0; c < count; c++) {
    const columnEnd = begin + (c + 1) * width
    let last = inForce
    if (last < axisUs.length && axisUs[last] < columnEnd) last = lowerBound(axisUs, columnEnd, last)
    s[c] = last === inForce ? inForce : greatest(allocated, inForce, last + 1)
    exact &&= last <= inForce + 1
    inForce = last
  }
  return { s, exact }
}

/** First index of the greatest value in [from, to). */
function greatest(values: Float64Array, from: number, to: number): number {
  let best = from
  let most = values[from]
  for (let i = from + 1; i < to; i++) {
    if (values[i] > most) {
      most = values[i]
      best = i
    }
  }
  return best
}
