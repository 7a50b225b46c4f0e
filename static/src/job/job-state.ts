// What the reader sees of a job: read from the options "job.…" of the page's state, so that the address holds it all.

import type { JobAxis } from '../data/contracts'
import type { Options, Store } from '../ui/state'
import { type JobData, METRICS, type Metric } from './job-data'
import { SORTS, type SortKey } from './row-order'
import { type ColumnRange, readColumns, readRows, writeColumns, writeRows } from './selection'

export type Tab = 'groups' | 'stacks' | 'categories' | 'findings' | 'ranks' | 'rank'
export const TABS: readonly Tab[] = ['groups', 'stacks', 'categories', 'findings', 'ranks', 'rank']

export interface JobState {
  axis: JobAxis
  metric: Metric
  /** Shown as bytes above the median of the rank's group. */
  isAgainst: boolean
  sort: SortKey
  tab: Tab
  /** The row that is picked. */
  row: number | null
  /** The column that was picked with it. */
  column: number | null
  /** What the strip beside the map shows: one of these, or the peak. */
  stack: number | null
  category: number | null
  /** Brushed; null: all. */
  rows: ReadonlySet<number> | null
  /** The group that was brushed as a whole. */
  group: number | null
  columns: ColumnRange | null
}

export function readState(data: JobData, options: Options): JobState {
  const axis = data.axis(options['job.axis'])
  const row = data.rowOf(options['job.rank'])
  const group = wholeBelow(options['job.group'], data.manifest.groups.length)
  const metric = METRICS.find((name) => name === options['job.metric']) ?? 'allocated'
  const tab = TABS.find((name) => name === options['job.tab'])
  return {
    axis,
    metric: metric === 'free' && !data.knowsFree ? 'allocated' : metric,
    isAgainst: options['job.against'] === 'group',
    sort: SORTS.find((name) => name === options['job.sort']) ?? 'rank',
    // A link to a rank shows it; a link to a stack the stacks.
    tab: (tab === 'rank' && row === null ? undefined : tab) ?? tabOf(options, row),
    row,
    column: wholeBelow(options['job.column'], axis.columns),
    stack: wholeBelow(options['job.stack'], data.stackMax.length),
    category: wholeBelow(options['job.category'], data.manifest.categories.length),
    rows: readRows(data, options['job.ranks']) ?? (group === null ? null : new Set(data.manifest.groups[group].rows)),
    group,
    columns: readColumns(options['job.columns'], axis.columns),
  }
}

function tabOf(options: Options, row: number | null): Tab {
  if (row !== null) return 'rank'
  if (options['job.stack'] !== undefined) return 'stacks'
  return 'groups'
}

/** Changes of the state, each absent: as it is. */
export class JobActions {
  constructor(
    private readonly store: Store,
    private readonly data: JobData,
    /** Shows the full report of a device that this report holds. */
    readonly openDevice: (device: number) => void,
    readonly announce: (text: string) => void,
  ) {}

  set(changes: Record<string, string | null>): void {
    const options: Record<string, string> = { ...this.store.state.options }
    for (const [name, value] of Object.entries(changes)) {
      if (value === null) delete options[`job.${name}`]
      else options[`job.${name}`] = value
    }
    this.store.set({ options })
  }

  pickRow(row: number | null, column: number | null = null): void {
    this.set({
      rank: row === null ? null : this.data.keyOf(row),
      column: column === null ? null : String(column),
      tab: row === null ? null : 'rank',
    })
  }

  /** The strip beside the map shows a stack; again: the peak. */
  pickStack(stack: number | null): void {
    this.set({ stack: stack === null ? null : String(stack), category: null, tab: 'stacks' })
  }

  pickCategory(category: number | null): void {
    this.set({ category: category === null ? null : String(category), stack: null })
  }

  brush(rows: readonly number[] | null, columns: ColumnRange | null): void {
    const all = rows === null || rows.length === 0 || rows.length === this.data.rows
    this.set({ ranks: all ? null : writeRows(this.data, rows), columns: writeColumns(columns), group: null })
  }

  brushGroup(group: number | null): void {
    this.set({ group: group === null ? null : String(group), ranks: null })
  }
}

function wholeBelow(text: string | undefined, past: number): number | null {
  return text !== undefined && /^\d{1,9}$/.test(text) && Number(text) < past ? Number(text) : null
}
