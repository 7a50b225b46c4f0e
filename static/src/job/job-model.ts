// What all parts of the job view are drawn from: data, state, and what follows from both.

import type { JobAxis } from '../data/contracts'
import { formatCount, formatDuration } from '../layout/format'
import type { Inks } from '../views/shared/inks'
import type { HeatMatrix, JobData, Metric } from './job-data'
import type { ColumnRange, JobState, SortKey } from './job-state'

export interface JobModel {
  data: JobData
  state: JobState
  /** Rows by place: all of them in the order that is shown. */
  order: Int32Array
  /** Place of each row. */
  place: Int32Array
  /** Recorded rows that are brushed, or all of them, in the shown order. */
  rows: readonly number[]
  /** The greatest of each row: over its whole recording, or within the brushed columns. */
  peaks: RowPeaks
  /** The values of the strip beside the map, by row, and their name. */
  shown: Float64Array
  shownName: string
  dark: boolean
  inks: Inks
}

export interface RowPeaks {
  allocated: Float64Array
  reserved: Float64Array
}

/** Exact over the whole recording; within some columns to one level of the maps. */
export function peaksOf(data: JobData, axis: JobAxis, range: ColumnRange | null): RowPeaks {
  if (!range) return { allocated: data.peakAllocated, reserved: data.peakReserved }
  const within = (metric: Metric): Float64Array => extremeOf(data.matrix(axis.key, metric), range, Math.max)
  return { allocated: within('allocated'), reserved: within('reserved') }
}

/** The greatest or least known value of each row, within some columns or all; 0 where none is known. */
export function extremeOf(
  { rows, columns, bytes }: HeatMatrix,
  range: ColumnRange | null,
  pick: (a: number, b: number) => number,
): Float64Array {
  const [first, last] = range ?? [0, columns - 1]
  return Float64Array.from({ length: rows }, (_, row) => {
    let found = NaN
    for (let at = row * columns + first; at <= row * columns + last; at++) {
      if (!Number.isNaN(bytes[at])) found = Number.isNaN(found) ? bytes[at] : pick(found, bytes[at])
    }
    return Number.isNaN(found) ? 0 : found
  })
}

export const METRIC_NAMES: Record<Metric, string> = {
  allocated: 'Allocated',
  reserved: 'Reserved',
  unused: 'Fragmentation',
  free: 'Free on the device',
}

export const METRIC_TITLES: Record<Metric, string> = {
  allocated: 'Bytes allocated: the greatest value of each cell',
  reserved: 'Bytes reserved: the greatest value of each cell',
  unused: 'Reserved minus allocated: the greatest value of each cell',
  free: 'What the device has left: the smallest value of each cell',
}

/** "step 12", "steps 12 to 15", "+3.2 s to +3.4 s", "25% to 26% of the trace". */
export function rangeName(axis: JobAxis, first: number, last = first): string {
  const [from, to] = [axis.first[first], axis.last[last]]
  if (axis.unit === 'us') return `+${formatDuration(from)} to +${formatDuration(to)}`
  if (axis.unit === 'share') return `${from / 10}% to ${to / 10}% of the trace`
  return from === to ? `step ${formatCount(from)}` : `steps ${formatCount(from)} to ${formatCount(to)}`
}

/**
 * Rows in the order they are shown in, a permutation of all rows. Ranks that failed or are missing come last, except in the
 * order of ranks. `peaks`: by which those orders go. `shown`: bytes by row that the strip beside the map
 * shows, for the order of that name.
 */
export function orderRows(data: JobData, by: SortKey, peaks: RowPeaks, shown: ArrayLike<number>): Int32Array {
  const rows = Int32Array.from({ length: data.rows }, (_, row) => row)
  const { rank } = data
  const byRank = (a: number, b: number): number => unsigned(rank[a]) - unsigned(rank[b]) || a - b
  const most = (values: ArrayLike<number>) => (a: number, b: number) => values[b] - values[a]
  const compare: Record<SortKey, (a: number, b: number) => number> = {
    rank: () => 0,
    host: (a, b) => naturalOrder(data.hostOf(a), data.hostOf(b)),
    peak: most(peaks.allocated),
    reserved: most(peaks.reserved),
    group: (a, b) => data.group[a] - data.group[b] || data.cluster[a] - data.cluster[b],
    oom: (a, b) => oomPlace(data, a) - oomPlace(data, b),
    above: most(data.bytesAbove),
    shown: most(shown),
  }
  const first = compare[by]
  const isAbsent = (row: number): number => Number(by !== 'rank' && row >= data.recorded)
  return rows.sort((a, b) => isAbsent(a) - isAbsent(b) || first(a, b) || byRank(a, b))
}

/** Rows without a rank number come after all others. */
function unsigned(rank: number): number {
  return rank < 0 ? Number.MAX_SAFE_INTEGER : rank
}

function oomPlace(data: JobData, row: number): number {
  const place = data.manifest.ooms.findIndex((oom) => oom.row === row)
  return place < 0 ? data.rows : place
}

/** "node2" before "node10". */
export const naturalOrder = new Intl.Collator('en', { numeric: true }).compare
