// From the state to the rows of the table: grouping, filter, sums, order, opened groups. Unchanged parts are cached.

import type { DeviceData, Stacks } from '../../data/model'
import { RANGE } from '../../ui/state'
import { Memo } from '../memo'
import { nameOfStack } from '../shared/describe'
import type { ViewContext } from '../view'
import { allocationRows, allocationTable } from './allocation-table'
import type { Table } from './columns'
import { groupRows, groupTable } from './group-table'
import { GROUPINGS, type Grouping, type Groups, groupsOf, whyNot } from './grouping'
import { countEmpty, inOrder, type SortKeys } from './order'
import { type EventRange, rangeOf, type RangeSums, readEventRange, sumsInRange } from '../shared/range-sums'
import { type Opened, RowPlan } from './row-plan'
import { largestOf, liveSumsOf, mainCategories, type Sums, sumsOf } from './sums'

/** Allocations listed under an opened group. */
const LISTED = 10
const MOST_OPEN = 20

export interface Sorting {
  column: string
  descending: boolean
}

export interface Model {
  grouping: Grouping
  /** Word for one row: "stack", "allocation", … */
  word: string
  table: Table
  sorting: Sorting
  plan: RowPlan
  /** Null where rows are allocations. */
  groups: Groups | null
  sums: Sums | null
  /** Index into info.categories by group; null where rows are allocations. */
  mainCategory: Int32Array | null
  matchesOnly: boolean
  /** What is typed into the filter. */
  filter: string
  /** The events that are summed; null: the table is of a moment. */
  range: EventRange | null
}

export class TableModel {
  private readonly groups = new Memo<Groups>()
  private readonly masks = new Memo<Uint8Array | null>()
  private readonly sums = new Memo<Sums>()
  private readonly categories = new Memo<Int32Array>()
  private readonly ranges = new Memo<RangeSums>()
  private readonly rows = new Memo<Int32Array>()
  private readonly table = new Memo<Table>()
  private readonly keys = new Memo<{ keys: SortKeys; isNumber: boolean }>()
  private readonly order = new Memo<{ order: Int32Array; zeros: number }>()
  private readonly opened = new Memo<Opened[]>()
  private readonly plan = new Memo<RowPlan>()

  of(context: ViewContext): Model {
    const { state, info, data, stacks, position, matches } = context
    const grouping = groupingOf(context)
    const word = GROUPINGS.find(([name]) => name === grouping)![2]
    const matchesOnly = matches !== null && state.options['table.matches'] !== 'all'
    const filter = (state.options['table.filter'] ?? '').trim().toLowerCase()
    const range =
      state.options['table.range'] === 'window' && info.events > 0
        ? (readEventRange(state.options[RANGE], info) ?? rangeOf(info, state.x))
        : null
    const matched = matches?.mask ?? null
    const timeUs = data.timeUs
    let groups: Groups | null = null
    let sums: Sums | null = null
    let table: Table
    if (grouping !== 'allocation')
      groups = this.groups.get([data, stacks, grouping], () => groupsOf(grouping, info, data, stacks))
    const queried = matchesOnly ? matches.mask : null
    const mask = this.masks.get([data, stacks, groups, queried, filter, range?.first, range?.last], () =>
      maskOf(data, queried, range, filter, groups ?? { of: data.stack, count: stacks.count, nameOf: nameOf(stacks) }),
    )
    let mainCategory: Int32Array | null = null
    if (!groups) {
      const rows = this.rows.get([data, mask], () => allocationRows(data, mask))
      table = this.table.get([rows, stacks, matched, timeUs, position], () =>
        allocationTable({ info, data, stacks, rows, matched, position }),
      )
    } else {
      const of = groups
      const made = (sums = this.sums.get([of, mask, matched, timeUs], () => sumsOf(data, of, mask, matched)))
      const inRange =
        range && this.ranges.get([of, mask, range.first, range.last], () => sumsInRange(data, of, mask, range))
      const category = (mainCategory = this.categories.get([of, mask], () => mainCategories(data, of, mask)))
      const rows = this.rows.get([made], () => groupRows(made))
      table = this.table.get([made, position, inRange], () =>
        groupTable({
          info,
          data,
          stacks,
          grouping,
          word,
          groups: of,
          rows,
          sums: made,
          live: liveSumsOf(data, of, mask, position),
          mainCategory: category,
          range: inRange,
        }),
      )
    }
    const sorting = sortingOf(state.options['table.sort'], table, grouping)
    // Most columns are the same at every moment: a slider moves without sorting a million rows again.
    const moment = sorting.column.startsWith('live') ? position : null
    const seen = [table.rows, timeUs, stacks, sorting.column, moment]
    const keyed = this.keys.get(seen, () => {
      const column = table.columns.find(({ name }) => name === sorting.column)!
      return { keys: column.keys(table.rows), isNumber: column.isNumber }
    })
    const { order, zeros } = this.order.get([keyed, sorting.descending], () => {
      const { keys, isNumber } = keyed
      // Groups with zeros in the sorted column come last, and are only counted.
      const zeros = groups && isNumber && sorting.descending ? countEmpty(keys) : 0
      const order = inOrder(table.rows, keys, sorting.descending)
      return { order, zeros: zeros < table.rows.length ? zeros : 0 }
    })
    const open = groups ? openOf(state.options['table.open'], groups.count) : []
    const opened = this.opened.get([groups, mask, open.join()], () =>
      open.map((row) => {
        const ids = largestOf(data, groups!, row, mask, LISTED)
        return { row, ids, more: sums!.count[row] - ids.length }
      }),
    )
    const folded = zeros > 1 && state.options['table.zeros'] !== 'all' ? zeros : 0
    const plan = this.plan.get([order, opened, folded], () => new RowPlan(order, opened, folded))
    return { grouping, word, table, sorting, plan, groups, sums, mainCategory, matchesOnly, filter, range }
  }
}

/** What counts: matches of the query, allocations live within the range, groups whose name contains all words of the filter. Null: all. */
function maskOf(
  { N, start, end }: DeviceData,
  queried: Uint8Array | null,
  range: EventRange | null,
  filter: string,
  { of, count, nameOf }: Pick<Groups, 'of' | 'count' | 'nameOf'>,
): Uint8Array | null {
  if (!range && filter === '') return queried
  const words = filter.split(/\s+/).filter(Boolean)
  const known = new Int8Array(count)
  const isNamed = (group: number): boolean => {
    if (known[group] === 0) {
      const name = nameOf(group).toLowerCase()
      known[group] = words.every((word) => name.includes(word)) ? 1 : -1
    }
    return known[group] > 0
  }
  const mask = new Uint8Array(N)
  for (let id = 0; id < N; id++) {
    if (queried?.[id] === 0) continue
    if (range && !(start[id] <= range.last + 1 && end[id] > range.first)) continue
    if (words.length === 0 || isNamed(of[id])) mask[id] = 1
  }
  return mask
}

const nameOf =
  (stacks: Stacks) =>
  (stack: number): string =>
    nameOfStack(stacks, stack)

function groupingOf({ state, info, data }: ViewContext): Grouping {
  const grouping = GROUPINGS.find(([name]) => name === state.options['table.group'])?.[0] ?? 'stack'
  return whyNot(grouping, info, data) === null ? grouping : 'stack'
}

/** "-size": by size, largest first. Names that are no column of this table: by live bytes, or by size. */
function sortingOf(text: string | undefined, { columns }: Table, grouping: Grouping): Sorting {
  const descending = text?.startsWith('-') ?? false
  const column = descending ? text!.slice(1) : text
  return columns.some(({ name }) => name === column)
    ? { column: column!, descending }
    : {
        column: grouping === 'allocation' ? 'size' : columns.some(({ name }) => name === 'live') ? 'live' : 'rangepeak',
        descending: true,
      }
}

/** Groups that are open, from "3,17". */
export function openOf(text: string | undefined, count = Infinity): number[] {
  const rows = (text ?? '')
    .split(',')
    .filter((part) => /^\d{1,9}$/.test(part))
    .map(Number)
  return [...new Set(rows)].filter((row) => row < count).slice(-MOST_OPEN)
}
