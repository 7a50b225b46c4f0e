// What the reader sees of a job: read from the options "job.…" of the page's state, so that the address holds it all.

import type { JobAxis } from '../data/contracts'
import { type Options, patched, type Store } from '../ui/state'
import { type JobData, type Metric, METRICS } from './job-data'

export const SORTS = ['rank', 'host', 'peak', 'reserved', 'group', 'oom', 'above', 'shown'] as const
export type SortKey = (typeof SORTS)[number]
export const TABS = ['findings', 'groups', 'stacks', 'categories', 'ranks', 'rank'] as const
export type Tab = (typeof TABS)[number]

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
  /** Whether stacks of no weight are listed, too. */
  isWhole: boolean
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
    tab: (tab === 'rank' && row === null ? undefined : tab) ?? tabOf(data, options, row),
    row,
    column: wholeBelow(options['job.column'], axis.columns),
    stack: wholeBelow(options['job.stack'], data.stackMax.length),
    category: wholeBelow(options['job.category'], data.manifest.categories.length),
    rows: readRows(data, options['job.ranks']) ?? (group === null ? null : new Set(data.manifest.groups[group].rows)),
    group,
    columns: readColumns(options['job.columns'], axis.columns),
    isWhole: options['job.rows'] === 'all',
  }
}

function tabOf({ manifest }: JobData, options: Options, row: number | null): Tab {
  if (row !== null) return 'rank'
  if (options['job.stack'] !== undefined) return 'stacks'
  return manifest.outliers.length + manifest.findings.length > 0 ? 'findings' : 'groups'
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
    const patch = Object.fromEntries(Object.entries(changes).map(([name, value]) => [`job.${name}`, value]))
    this.store.set({ options: patched(this.store.state.options, patch) })
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

/** First and last column, both included. */
export type ColumnRange = readonly [first: number, last: number]

/** "0..7,12": rank numbers, runs joined. Rows that share a rank number or have none are written by their keys. */
export function writeRows(data: JobData, rows: Iterable<number>): string {
  const keys = [...rows].map((row) => data.keyOf(row))
  const numbers = keys
    .filter((key) => /^\d+$/.test(key))
    .map(Number)
    .sort((a, b) => a - b)
  const parts: string[] = []
  for (let i = 0; i < numbers.length; ) {
    let end = i
    while (end + 1 < numbers.length && numbers[end + 1] === numbers[end] + 1) end++
    parts.push(end - i >= 2 ? `${numbers[i]}..${numbers[end]}` : numbers.slice(i, end + 1).join(','))
    i = end + 1
  }
  return [...parts, ...keys.filter((key) => !/^\d+$/.test(key))].join(',')
}

/** The rows that a text names; malformed parts are ignored. Null: none. */
export function readRows(data: JobData, text: string | undefined): ReadonlySet<number> | null {
  const rows = new Set<number>()
  for (const part of (text ?? '').split(',')) {
    const range = /^(\d{1,9})\.\.(\d{1,9})$/.exec(part)
    if (range) {
      const [first, last] = [Number(range[1]), Number(range[2])]
      for (let row = 0; row < data.rows; row++) {
        if (data.rank[row] >= first && data.rank[row] <= last && !data.keyOf(row).includes('.')) rows.add(row)
      }
    } else {
      const row = data.rowOf(part)
      if (row !== null) rows.add(row)
    }
  }
  return rows.size ? rows : null
}

function writeColumns(range: ColumnRange | null): string | null {
  return range && `${range[0]}..${range[1]}`
}

/** A range inside an axis of so many columns; null: all of it. */
export function readColumns(text: string | undefined, columns: number): ColumnRange | null {
  const match = /^(\d{1,6})\.\.(\d{1,6})$/.exec(text ?? '')
  if (!match) return null
  const [first, last] = [Number(match[1]), Math.min(columns - 1, Number(match[2]))]
  return first <= last ? [first, last] : null
}

/** The rows that a drag from one place of the order to another covers. */
export function brushedRows(order: ArrayLike<number>, from: number, to: number): number[] {
  const first = Math.max(0, Math.min(from, to))
  const last = Math.min(order.length - 1, Math.max(from, to))
  const rows: number[] = []
  for (let place = first; place <= last; place++) rows.push(order[place])
  return rows
}

/** "ranks 0 to 7, 12 and 14"; so many runs at most. */
export function rowsInWords(data: JobData, rows: readonly number[], most = 6): string {
  const text = writeRows(data, rows)
  const runs = text.split(',').map((run) => run.replace('..', '–'))
  const shown = runs.slice(0, most)
  const hidden = runs.length - shown.length
  const joined = hidden > 0 ? `${shown.join(', ')} and ${hidden} more` : lastWithAnd(shown)
  return `${rows.length === 1 ? 'rank' : 'ranks'} ${joined}`
}

function lastWithAnd(words: readonly string[]): string {
  return words.length < 2 ? words.join('') : `${words.slice(0, -1).join(', ')} and ${words[words.length - 1]}`
}
