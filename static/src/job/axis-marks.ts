// Marks of the map's axis: round steps, times and shares, wherever the borders of the columns lie.

import type { JobAxis } from '../data/contracts'
import { lowerBound } from '../layout/binary-search'
import { formatCount } from '../layout/format'
import { eventTicks, timeTicks } from '../layout/ticks'

export interface AxisMark {
  /** In columns, fractions allowed. */
  at: number
  label: string
}

/** Marks between two places in columns, about so many. */
export function axisMarks(axis: JobAxis, x0: number, x1: number, target: number): AxisMark[] {
  const [from, to] = [valueAt(axis, x0), valueAt(axis, x1)]
  if (axis.unit === 'us') {
    return timeTicks(from, to, target).map(({ value, label }) => ({ at: placeOf(axis, value), label }))
  }
  const ticks = eventTicks(from, to, target)
  if (axis.unit === 'share')
    return ticks.map(({ value }) => ({ at: placeOf(axis, value), label: `${formatCount(value / 10)}%` }))
  return ticks
    .filter(({ value }) => value >= axis.first[0] && value <= axis.last[axis.columns - 1])
    .map(({ value, label }) => ({ at: columnOf(axis, value) + 0.5, label }))
}

/** The column that a value falls into; the nearest of those where it falls between two. */
export function columnOf(axis: JobAxis, value: number): number {
  return lowerBound(axis.last, value, 0, axis.columns - 1)
}

function valueAt(axis: JobAxis, place: number): number {
  const column = Math.max(0, Math.min(axis.columns - 1, Math.floor(place)))
  // Steps are whole: a column of one step begins and ends with it.
  const width = axis.unit === 'step' ? 0 : axis.last[column] - axis.first[column]
  return place >= axis.columns ? axis.last[column] : axis.first[column] + (place - column) * width
}

function placeOf(axis: JobAxis, value: number): number {
  const column = columnOf(axis, value)
  const width = axis.last[column] - axis.first[column]
  return column + (width > 0 ? Math.min(1, Math.max(0, (value - axis.first[column]) / width)) : 0)
}
