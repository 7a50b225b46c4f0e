// From bytes to levels of a colour scale: what the map shows of a metric, absolutely or against the median of a rank's group.

import type { HeatCells } from '../gl/heat-raster'
import type { HeatMatrix, Metric } from './job-data'
import type { ColumnRange } from './selection'
import { clippedEnd, fitOf } from './statistics'

/** Bytes at both ends of the colours. `low` is above `high` where less is worse. */
export interface HeatScale {
  low: number
  high: number
  /** The greatest value on the map, where it lies beyond the colours; else null. */
  beyond: number | null
  /** With zero in the middle: colours to both sides. */
  isDiverging: boolean
}

/** Levels 1 … 255; 0 is a cell of which nothing is known. */
const LEVELS = 254
export const MIDDLE_LEVEL = 128

/** The scale begins at zero unless all values lie in the upper part of it: then their differences would not be seen. */
const FROM_ZERO_BELOW = 0.5

/** Against their groups most ranks are near zero: noise gets no more than a quarter of the colours. */
const MIN_CLIP_AGAINST = 0.25

export function scaleOf(matrix: HeatMatrix, metric: Metric, isAgainst: boolean): HeatScale {
  const { bytes } = matrix
  let [min, max] = [Infinity, -Infinity]
  for (const value of bytes) {
    if (value < min) min = value
    if (value > max) max = value
  }
  if (min > max) return { low: 0, high: 1, beyond: null, isDiverging: isAgainst }
  if (isAgainst) {
    const all = Math.max(1, -min, max)
    const most = Math.max(clippedMost(matrix, all), MIN_CLIP_AGAINST * all)
    const beyond = most < all ? all : null
    // More is worse, but of free memory less is.
    return metric === 'free'
      ? { low: most, high: -most, beyond, isDiverging: true }
      : { low: -most, high: most, beyond, isDiverging: true }
  }
  const most = metric === 'free' ? max : clippedMost(matrix, max)
  const beyond = most < max ? max : null
  const bottom = min < FROM_ZERO_BELOW * most || min === most ? 0 : min
  const top = most === bottom ? bottom + 1 : most
  return metric === 'free'
    ? { low: top, high: bottom, beyond, isDiverging: false }
    : { low: bottom, high: top, beyond, isDiverging: false }
}

/** Where the colours end. */
function clippedMost({ rows, columns, bytes }: HeatMatrix, most: number): number {
  const highest = Array.from({ length: rows }, (_, row) => {
    let top = 0
    for (let at = row * columns; at < (row + 1) * columns; at++) top = Math.max(top, Math.abs(bytes[at]) || 0)
    return top
  })
  return Math.min(most, clippedEnd(highest))
}

/** 1 … 255; 0 of NaN. */
export function levelOf(value: number, { low, high }: Pick<HeatScale, 'low' | 'high'>): number {
  if (Number.isNaN(value)) return 0
  const share = (value - low) / (high - low)
  return 1 + Math.round(LEVELS * Math.min(1, Math.max(0, share)))
}

/** Levels in the shown order of rows; cells that are not brushed are dimmed. */
export function heatCells(
  { columns, bytes }: HeatMatrix,
  order: Int32Array,
  scale: HeatScale,
  brushed: ReadonlySet<number> | null,
  range: ColumnRange | null,
): HeatCells {
  const out = new Uint8Array(2 * order.length * columns)
  for (let place = 0; place < order.length; place++) {
    const row = order[place]
    const isRowOut = brushed !== null && !brushed.has(row)
    for (let column = 0; column < columns; column++) {
      const at = 2 * (place * columns + column)
      out[at] = levelOf(bytes[row * columns + column], scale)
      out[at + 1] = Number(isRowOut || (range !== null && (column < range[0] || column > range[1])))
    }
  }
  return { columns, rows: order.length, bytes: out }
}

/** Bytes above what is expected of the row in its group and column; NaN for rows without a group. */
export function againstGroups({ rows, columns, bytes }: HeatMatrix, expected: Float64Array): HeatMatrix {
  return { rows, columns, bytes: bytes.map((value, at) => value - expected[at]) }
}

/**
 * The expected value of every cell from the other rows of its group in the same column; NaN for rows without a group. Where
 * fewer than half of the group recorded the column, as when one rank goes on after the others have ended, it is what the
 * group had last: a rank is not compared with itself alone.
 */
export function expectedCells(
  { rows, columns, bytes }: HeatMatrix,
  groups: readonly { rows: readonly number[]; isSlope: boolean }[],
  rank: Int32Array,
): Float64Array {
  const out = new Float64Array(rows * columns).fill(NaN)
  for (const group of groups) {
    const ranks = group.rows.map((row) => rank[row])
    let last: ((rank: number) => number) | null = null
    for (let column = 0; column < columns; column++) {
      const values = group.rows.map((row) => bytes[row * columns + column])
      const isCommon = 2 * values.filter((value) => !Number.isNaN(value)).length >= values.length
      const fit: (rank: number) => number = isCommon || !last ? fitOf(ranks, values, group.isSlope) : last
      if (isCommon) last = fit
      group.rows.forEach((row, i) => {
        out[row * columns + column] = fit(ranks[i])
      })
    }
  }
  return out
}
