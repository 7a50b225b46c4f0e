// From bytes to levels of a colour scale: what the map shows of a metric, absolutely or against the median of a rank's group.

import type { HeatCells } from '../gl/heat-raster'
import type { HeatMatrix, Metric } from './job-data'
import type { ColumnRange } from './selection'
import { fitOf } from './statistics'

/** Bytes at both ends of the colours. `low` is above `high` where less is worse. */
export interface HeatScale {
  low: number
  high: number
  /** With zero in the middle: colours to both sides. */
  isDiverging: boolean
}

/** Levels 1 … 255; 0 is a cell of which nothing is known. */
const LEVELS = 254
export const MIDDLE_LEVEL = 128

/** The scale begins at zero unless all values lie in the upper part of it: then their differences would not be seen. */
const FROM_ZERO_BELOW = 0.5

export function scaleOf({ bytes }: HeatMatrix, metric: Metric, isAgainst: boolean): HeatScale {
  let [min, max] = [Infinity, -Infinity]
  for (const value of bytes) {
    if (value < min) min = value
    if (value > max) max = value
  }
  if (min > max) return { low: 0, high: 1, isDiverging: isAgainst }
  if (isAgainst) {
    const most = Math.max(1, -min, max)
    // More is worse, but of free memory less is.
    return metric === 'free'
      ? { low: most, high: -most, isDiverging: true }
      : { low: -most, high: most, isDiverging: true }
  }
  const bottom = min < FROM_ZERO_BELOW * max || min === max ? 0 : min
  if (max === bottom) max = bottom + 1
  return metric === 'free'
    ? { low: max, high: bottom, isDiverging: false }
    : { low: bottom, high: max, isDiverging: false }
}

/** 1 … 255; 0 of NaN. */
export function levelOf(value: number, { low, high }: HeatScale): number {
  if (Number.isNaN(value)) return 0
  const share = (value - low) / (high - low)
  return 1 + Math.round(LEVELS * Math.min(1, Math.max(0, share)))
}

/** Levels in the order of rows that is shown; what is not brushed is dimmed. */
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

/** What is expected of every cell from the other rows of its group in the same column; NaN for rows without a group. */
export function expectedCells(
  { rows, columns, bytes }: HeatMatrix,
  groups: readonly { rows: readonly number[]; isSlope: boolean }[],
  rank: Int32Array,
): Float64Array {
  const out = new Float64Array(rows * columns).fill(NaN)
  for (const group of groups) {
    const ranks = group.rows.map((row) => rank[row])
    for (let column = 0; column < columns; column++) {
      const values = group.rows.map((row) => bytes[row * columns + column])
      const fit = fitOf(ranks, values, group.isSlope)
      group.rows.forEach((row, i) => {
        out[row * columns + column] = fit(ranks[i])
      })
    }
  }
  return out
}
