// Two moments of two snapshots as rows: bytes of each stack, function, file or category before and after.

import type { DeviceData, Frame, Stacks } from '../../data/model'
import { isOwn } from '../../data/own-frames'
import type { Baseline } from '../baseline'
import { callersOf, withCallers } from '../shared/callers'
import { remembered } from '../../data/remembered'

export const GROUPS = ['stack', 'function', 'file', 'category'] as const
export type Group = (typeof GROUPS)[number]
export type Change = 'appeared' | 'vanished' | 'grew' | 'shrank' | 'same'

export interface Row {
  /** Its identity: a stack, or a number of its own kind. */
  key: number
  name: string
  /** Without the callers that most rows share; '' for the name. */
  short: string
  before: number
  after: number
  countBefore: number
  countAfter: number
  /** The stack with the greatest change in it, after; of one that vanished, before; -1: none is known. */
  stack: number
  /** The same code before, where its lines may differ; -1: it had no bytes before. */
  stackBefore: number
}

export function deltaOf(row: Row): number {
  return row.after - row.before
}

export function changeOf(row: Row): Change {
  if (row.countBefore === 0) return 'appeared'
  if (row.countAfter === 0) return 'vanished'
  const delta = deltaOf(row)
  return delta > 0 ? 'grew' : delta < 0 ? 'shrank' : 'same'
}

interface Sums {
  before: Float64Array
  after: Float64Array
  countBefore: Int32Array
  countAfter: Int32Array
}

/** Rows with the greatest change first, equal ones by name, and the callers that their short names lack. O(allocations + stacks). */
export function compare(
  data: DeviceData,
  stacks: Stacks,
  baseline: Baseline,
  group: Group,
): { rows: Row[]; common: string } {
  const keys = group === 'category' ? categories(data, baseline) : null
  const count = keys ? keys.names.length : stacks.count
  const sums: Sums = {
    before: new Float64Array(count),
    after: new Float64Array(count),
    countBefore: new Int32Array(count),
    countAfter: new Int32Array(count),
  }
  add(
    baseline.before,
    baseline.beforePosition,
    keys?.before ?? ((id) => baseline.home[baseline.before.stack[id]]),
    sums.before,
    sums.countBefore,
  )
  add(data, baseline.afterPosition, keys?.after ?? ((id) => baseline.home[data.stack[id]]), sums.after, sums.countAfter)
  const earlier = keys ? null : stacksBefore(baseline, count)
  const rows: Row[] = []
  for (let key = 0; key < count; key++) {
    if (sums.countBefore[key] === 0 && sums.countAfter[key] === 0) continue
    rows.push({
      key,
      name: keys?.names[key] ?? pathOfStack(stacks, key),
      short: '',
      stack: keys ? -1 : key,
      stackBefore: earlier ? earlier[key] : -1,
      before: sums.before[key],
      after: sums.after[key],
      countBefore: sums.countBefore[key],
      countAfter: sums.countAfter[key],
    })
  }
  let common: readonly Frame[] = []
  if (group === 'stack') {
    const callers = callersOf(
      stacks,
      rows.map(({ stack }) => stack),
      isOwn,
    )
    common = callers.common
    for (const row of rows) row.short = withCallers(topOfStack(stacks, row.stack), callers.of(row.stack), lineOf, ' ← ')
  }
  const grouped = group === 'function' || group === 'file' ? merged(rows, stacks, group) : rows
  grouped.sort(
    (a, b) =>
      Math.abs(deltaOf(b)) - Math.abs(deltaOf(a)) || (a.name < b.name ? -1 : a.name > b.name ? 1 : a.key - b.key),
  )
  return { rows: grouped, common: common.map(lineOf).join(' ← ') }
}

/** Share of the larger side below which a change says nothing. */
const NO_WEIGHT = 0.001

/**
 * The rows that say something, in their order: those of a line whose bytes stay the same, where only callers differ, do not,
 * nor do changes of less than a thousandth of `most` bytes. All of them where none does.
 */
export function withWeight(rows: readonly Row[], group: Group, most: number): Row[] {
  const ofLine = new Map<string, number>()
  const line = ({ name }: Row): string => (group === 'stack' ? name.split(' ← ')[0] : name)
  for (const row of rows) ofLine.set(line(row), (ofLine.get(line(row)) ?? 0) + deltaOf(row))
  const shown = rows.filter((row) => ofLine.get(line(row)) !== 0 && Math.abs(deltaOf(row)) >= NO_WEIGHT * most)
  return shown.length > 0 ? shown : [...rows]
}

/** Per stack, the one that was live before and is counted under it; -1: none was. Identities are one to one. */
function stacksBefore(
  { before: { N, start, end, stack }, beforePosition, home }: Baseline,
  stacks: number,
): Int32Array {
  const found = new Int32Array(stacks).fill(-1)
  for (let id = 0; id < N; id++)
    if (start[id] <= beforePosition && end[id] > beforePosition) found[home[stack[id]]] = stack[id]
  return found
}

function add(
  { N, start, end, size }: DeviceData,
  position: number,
  keyOf: (id: number) => number,
  bytes: Float64Array,
  count: Int32Array,
): void {
  for (let id = 0; id < N; id++) {
    if (start[id] > position || end[id] <= position) continue
    const key = keyOf(id)
    bytes[key] += size[id]
    count[key]++
  }
}

/** Categories of both sides under common numbers: each device has its own list. */
function categories(
  data: DeviceData,
  { before }: Baseline,
): { names: string[]; before(id: number): number; after(id: number): number } {
  const names = [...new Set([...data.info.categories, ...before.info.categories])]
  const ours = before.info.categories.map((name) => names.indexOf(name))
  const theirs = data.info.categories.map((name) => names.indexOf(name))
  return { names, before: (id) => ours[before.category[id]], after: (id) => theirs[data.category[id]] }
}

function merged(rows: readonly Row[], stacks: Stacks, group: 'function' | 'file'): Row[] {
  const byName = new Map<string, Row & { most: number }>()
  for (const row of rows) {
    const frame = stacks.top(row.stack)
    const name = group === 'file' ? (frame?.filename ?? '') : nameOf(frame)
    const none = { before: 0, after: 0, countBefore: 0, countAfter: 0, most: -1 }
    const sum = remembered(byName, name, () => ({ ...row, key: byName.size, name, ...none }))
    sum.before += row.before
    sum.after += row.after
    sum.countBefore += row.countBefore
    sum.countAfter += row.countAfter
    if (Math.abs(deltaOf(row)) > sum.most) {
      sum.most = Math.abs(deltaOf(row))
      sum.stack = row.stack
      sum.stackBefore = row.stackBefore
    }
  }
  return [...byName.values()]
}

/** The frame that names a stack and, of the program's own code, who called it, with their lines: stacks of one function differ there. */
function pathOfStack(stacks: Stacks, stack: number): string {
  const frames = stacks.frames(stack)
  const first = stacks.top(stack)
  const rest = first ? frames.slice(frames.indexOf(first) + 1).filter(isOwn) : []
  return [topOfStack(stacks, stack), ...rest.slice(0, 2).map(lineOf)].join(' ← ')
}

function topOfStack(stacks: Stacks, stack: number): string {
  const operator = stacks.operator(stack)
  return `${lineOf(stacks.top(stack))}${operator ? ` · ${operator}` : ''}`
}

/** "forward model.py:12" */
function lineOf(frame: Frame | null): string {
  return `${nameOf(frame)}${frame?.python && frame.line > 0 ? `:${frame.line}` : ''}`
}

/** "forward model.py"; C++ functions by their name alone. */
export function nameOf(frame: Frame | null): string {
  if (!frame) return ''
  if (frame.python) return `${frame.name} ${frame.filename.split(/[\\/]/).pop()}`
  const plain = frame.name
    .replaceAll('(anonymous namespace)::', '')
    .replace(/[(<].*$/, '')
    .split(' ')
    .pop()
  return plain || frame.name
}
