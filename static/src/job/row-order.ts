// Orders of rows: pure functions of the columns.

import type { JobData } from './job-data'
import type { RowPeaks } from './job-model'

export type SortKey = 'rank' | 'host' | 'peak' | 'reserved' | 'group' | 'oom' | 'above' | 'shown'
export const SORTS: readonly SortKey[] = ['rank', 'host', 'peak', 'reserved', 'group', 'oom', 'above', 'shown']

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
export function naturalOrder(a: string, b: string): number {
  const [left, right] = [a, b].map((text) => text.match(/\d+|\D+/g) ?? [])
  for (let i = 0; i < Math.min(left.length, right.length); i++) {
    if (left[i] === right[i]) continue
    const difference = Number(left[i]) - Number(right[i])
    if (!Number.isNaN(difference) && difference !== 0) return difference
    return left[i] < right[i] ? -1 : 1
  }
  return left.length - right.length
}
