// The table of groups: what each holds at the moment and at the peak, and what went through it.

import type { DeviceData, DeviceInfo, Stacks } from '../../data/model'
import { type Column, bytes, changes, counts, type Field, field, plain, shares, spans, type Table } from './columns'
import type { Grouping, Groups } from './grouping'
import { keysOf, ranksOf } from './order'
import type { RangeSums } from '../shared/range-sums'
import { type StepNumbers, stepColumns, stepFields, stepNumbers } from './step-columns'
import { type LiveSums, type Sums, total } from './sums'

/** Groupings that are named after frames, or parts of them. */
const FRAMES: readonly Grouping[] = ['stack', 'func', 'file', 'line']

export interface GroupParts {
  info: DeviceInfo
  data: DeviceData
  stacks: Stacks
  grouping: Grouping
  /** "stack", "function", …: heads the first column. */
  word: string
  groups: Groups
  rows: Int32Array
  sums: Sums
  live: LiveSums
  /** Index into info.categories by group, -1 for none. */
  mainCategory: Int32Array
  /** What the events of the window do; null: the table is of a moment. */
  range: RangeSums | null
}

/** Groups without a counted allocation have no rows. */
export function groupRows({ count }: Sums): Int32Array {
  return Int32Array.from(count.keys()).filter((group) => count[group] > 0)
}

export function groupTable(parts: GroupParts): Table {
  const { info, data, grouping, groups, rows, sums } = parts
  const steps = grouping === 'step' ? stepNumbers(info, data) : null
  return {
    columns: columnsOf(parts, steps),
    fields: fieldsOf(parts, steps),
    rows,
    isDim: (group) => sums.matching[group] === 0,
    queryOf: groups.queryOf,
  }
}

function columnsOf(parts: GroupParts, steps: StepNumbers | null): Column[] {
  const { info, grouping, word, groups, sums, live, range } = parts
  const isOpen = (group: number): boolean => sums.open[group] > 0
  const all = total(sums.count)
  const anyOpen = total(sums.open) > 0
  const us = sums.us
  const columns = [
    nameColumn(word, groups, FRAMES.includes(grouping)),
    ...(steps ? stepColumns(steps) : []),
    ...(grouping === 'category' ? [] : [categoryColumn(parts)]),
    ...(range ? rangeColumns(range) : []),
  ]
  if (range) return columns
  columns.push(
    summed(bytes, 'live', 'Live', 1, 'Bytes live at the moment', live.bytes),
    summed(counts, 'livecount', 'Live count', 2, 'Allocations live at the moment', live.count, 88),
    summed(bytes, 'peak', 'At peak', 2, 'Bytes live at the peak', sums.peak),
    shares(
      { name: 'share', title: 'Of peak', hint: 'Share of the bytes that were allocated at the peak', level: 2 },
      (g) => sums.peak[g],
      info.peak_bytes,
      total(sums.peak),
    ),
    summed(counts, 'count', 'Count', 2, 'Allocations in all, live or not', sums.count, 84),
    summed(bytes, 'total', 'Total', 3, 'Bytes of all its allocations together, live or not', sums.bytes),
    spans(
      {
        name: 'lifetime',
        title: 'Mean events',
        hint: 'Mean lifetime in events; at least that where an end lies outside the trace',
        level: 3,
      },
      (g) => sums.events[g] / sums.count[g],
      isOpen,
      'events',
      [total(sums.events) / all, anyOpen],
    ),
    ...(us
      ? [
          spans(
            {
              name: 'time',
              title: 'Mean time',
              hint: 'Mean lifetime; at least that where an end lies outside the trace',
              level: 3,
            },
            (g) => us[g] / sums.count[g],
            isOpen,
            'us',
            [total(us) / all, anyOpen],
          ),
        ]
      : []),
  )
  return columns
}

function categoryColumn({ info, mainCategory }: GroupParts): Column {
  const name = (group: number): string => info.categories[mainCategory[group]] ?? ''
  return {
    name: 'category',
    title: 'Category',
    hint: 'What most of its bytes at the peak are for',
    width: 136,
    grow: 0,
    level: 2,
    isNumber: false,
    text: (group) => name(group) || '–',
    tip: null,
    keys: (rows) => keysOf(ranksOf(Array.from(rows, name))),
    total: null,
  }
}

function rangeColumns(range: RangeSums): Column[] {
  const { allocated, freed, births, frees, peak, peakOfAll } = range
  return [
    summed(bytes, 'allocated', 'Allocated', 1, 'Bytes that the events of the range allocate', allocated),
    summed(bytes, 'freed', 'Freed', 1, 'Bytes that the events of the range free', freed),
    changes(
      { name: 'net', title: 'Net', hint: 'Allocated less freed', level: 1 },
      (g) => allocated[g] - freed[g],
      total(allocated) - total(freed),
    ),
    bytes(
      { name: 'rangepeak', title: 'Peak', hint: 'The most that it holds at once within the range', level: 1 },
      (g) => peak[g],
      peakOfAll,
    ),
    shares(
      { name: 'rangeshare', title: 'Of peak', hint: 'Its peak as a share of that of the range', level: 2 },
      (g) => peak[g],
      peakOfAll,
      peakOfAll,
    ),
    summed(counts, 'births', 'Allocs', 3, 'Allocations in the range', births, 84),
    summed(counts, 'frees', 'Frees', 3, 'Frees in the range', frees, 84),
  ]
}

/** A column of what each group has, with the sum of all below. */
function summed(
  make: typeof bytes,
  name: string,
  title: string,
  level: Column['level'],
  hint: string,
  values: Float64Array,
  width = 96,
): Column {
  return make({ name, title, hint, level, width }, (group) => values[group], total(values))
}

function nameColumn(word: string, groups: Groups, isFrame: boolean): Column {
  const { numberOf, fullNameOf, common } = groups
  return {
    name: 'name',
    title: word[0].toUpperCase() + word.slice(1),
    ...(common && { note: `… is ${common}` }),
    hint: `The ${word}`,
    width: 200,
    grow: 1,
    level: 1,
    isNumber: false,
    isFrame,
    text: groups.nameOf,
    whole: groups.wholeOf,
    tip: groups.wholeOf,
    keys: (rows) => keysOf(numberOf ? Float64Array.from(rows, numberOf) : ranksOf(Array.from(rows, fullNameOf))),
    total: null,
  }
}

function fieldsOf(parts: GroupParts, steps: StepNumbers | null): Field[] {
  const { info, stacks, grouping, word, groups, sums, live, mainCategory, range } = parts
  const all = total(sums.count)
  const us = sums.us
  const share = (peak: number): number | null => (info.peak_bytes > 0 ? peak / info.peak_bytes : null)
  const size = grouping === 'size'
  return [
    ...(grouping === 'stack'
      ? [field('stack', (g) => g), ...frameFields(stacks, (g) => g)]
      : [field(word, (g) => (size ? groups.numberOf!(g) : groups.fullNameOf(g)))]),
    ...(steps ? stepFields(steps) : []),
    ...(grouping === 'category' ? [] : [field('category', (g) => info.categories[mainCategory[g]] || null)]),
    ...(range
      ? [
          field('allocated_bytes', (g) => range.allocated[g], total(range.allocated)),
          field('freed_bytes', (g) => range.freed[g], total(range.freed)),
          field('range_peak_bytes', (g) => range.peak[g], range.peakOfAll),
          field('range_allocations', (g) => range.births[g], total(range.births)),
          field('range_frees', (g) => range.frees[g], total(range.frees)),
        ]
      : []),
    field('live_bytes', (g) => live.bytes[g], total(live.bytes)),
    field('live_count', (g) => live.count[g], total(live.count)),
    field('peak_bytes', (g) => sums.peak[g], total(sums.peak)),
    field('peak_share', (g) => share(sums.peak[g]), share(total(sums.peak))),
    field('count', (g) => sums.count[g], all),
    field('total_bytes', (g) => sums.bytes[g], total(sums.bytes)),
    field('mean_lifetime_events', (g) => sums.events[g] / sums.count[g], plain(total(sums.events) / all)),
    field('mean_lifetime_us', (g) => (us ? us[g] / sums.count[g] : null), us && plain(total(us) / all)),
    field('open_ended', (g) => sums.open[g], total(sums.open)),
  ]
}

/** function, file and line of the most informative frame. */
export function frameFields(stacks: Stacks, stackOf: (row: number) => number): Field[] {
  return [
    field('function', (row) => stacks.top(stackOf(row))?.name ?? null),
    field('file', (row) => stacks.top(stackOf(row))?.filename ?? null),
    field('line', (row) => stacks.top(stackOf(row))?.line ?? null),
  ]
}
