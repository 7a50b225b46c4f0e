// The groupings of allocations: a group for each, the group's name, and the query that finds it.

import type { DeviceData, DeviceInfo, Frame, Stacks } from '../../data/model'
import { formatBytesExact, formatCount } from '../../layout/format'
import { quoted } from '../../search/grammar'
import { OUTSIDE_STEPS, stepQueries } from '../../search/steps'
import { stepsOf } from '../../steps/steps'
import { callersOf, withCallers } from '../shared/callers'
import { describeFrame, nameOfStack, wholeStack } from '../shared/describe'
import { commonStart, without } from '../../data/common-start'
import { remembered } from '../../data/remembered'

/** In the order of the menu, with their words there. */
export const GROUPINGS = [
  ['allocation', 'Allocations', 'allocation'],
  ['stack', 'By stack', 'stack'],
  ['func', 'By function', 'function'],
  ['file', 'By file', 'file'],
  ['line', 'By line', 'line'],
  ['category', 'By category', 'category'],
  ['step', 'By step', 'step'],
  ['module', 'By module', 'module'],
  ['operator', 'By operator', 'operator'],
  ['size', 'By size', 'size'],
  ['stream', 'By stream', 'stream'],
  ['pool', 'By pool', 'pool'],
] as const
export type Grouping = (typeof GROUPINGS)[number][0]

export interface Groups {
  count: number
  /** Group of each allocation (length N). */
  of: ArrayLike<number>
  /** On screen. */
  nameOf(group: number): string
  /** In full, for files and the order of names. */
  fullNameOf(group: number): string
  /** For tooltips and copies. */
  wholeOf(group: number): string
  /** What most names on screen have as "…" in place of it; '' where nothing is cut. */
  common: string
  /** The query that finds the group; null where none can say it. */
  queryOf(group: number): string | null
  /** What its rows sort by when sorted by name; null: the text. */
  numberOf: ((group: number) => number) | null
}

/** Why this device cannot be grouped this way; null when it can. */
export function whyNot(grouping: Grouping, info: DeviceInfo, data: DeviceData): string | null {
  if (grouping === 'step') return stepsOf(info, data) ? null : 'no steps recorded'
  if (grouping === 'module' && info.modules.length < 2) return 'no modules recorded'
  if (grouping === 'stream' || grouping === 'pool')
    return info.left_out.includes(grouping) ? 'left out of this report to fit its size' : null
  return null
}

/** O(N + stacks). */
export function groupsOf(
  grouping: Exclude<Grouping, 'allocation'>,
  info: DeviceInfo,
  data: DeviceData,
  stacks: Stacks,
): Groups {
  switch (grouping) {
    case 'stack':
      return byStack(data, stacks)
    case 'func':
      return byFrame(
        data,
        stacks,
        (stack) => stacks.top(stack)?.name ?? '',
        (name) => `func:${quoted(name)}`,
        (top) => top.name,
      )
    case 'file':
      return byFrame(
        data,
        stacks,
        (stack) => stacks.top(stack)?.filename ?? '',
        (file) => `file:${quoted(file)}`,
        (top) => top.file,
      )
    case 'line':
      return byFrame(
        data,
        stacks,
        (stack) => lineText(stacks.top(stack)),
        (line) => (hasLine(line) ? `file:${quoted(line)}` : `func:${quoted(line)}`),
        (top) => (hasLine(lineText(top)) ? `${top.file}:${top.line}` : top.name),
      )
    case 'category':
      return named(data.category, info.categories, (name) => `category:${quoted(name)}`, 'no category')
    case 'module':
      return named(data.module, info.modules, (name) => (name ? `module:"${name}"` : '-module:*'), 'without a module')
    case 'operator':
      return byOperator(data, stacks)
    case 'stream':
      return named(data.stream, info.streams, (name) => (/^-?\d+$/.test(name) ? `stream:${name}` : null), 'no stream')
    case 'pool':
      return named(data.pool, info.pools, (name) => `pool:${name === '' ? 'none' : quoted(name)}`, 'no pool')
    case 'step':
      return byStep(info, data)
    case 'size':
      return bySize(data)
  }
}

function byStack(data: DeviceData, stacks: Stacks): Groups {
  const topOf = (stack: number): string => nameOfStack(stacks, stack)
  const callers = callersOf(stacks, new Set(data.stack), ({ python, noise }) => python && !noise)
  return {
    count: stacks.count,
    of: data.stack,
    nameOf: (stack) => withCallers(topOf(stack), callers.of(stack), describeFrame, '  ←  '),
    fullNameOf: topOf,
    wholeOf: (stack) => wholeStack(stacks, stack).join('  ←  '),
    common: callers.common.map(describeFrame).join('  ←  '),
    queryOf: (stack) => `stack:${stack}`,
    numberOf: null,
  }
}

/** Stacks whose naming frames have the same text are one group; "" is the group of those without. */
function byFrame(
  data: DeviceData,
  stacks: Stacks,
  textOf: (stack: number) => string,
  query: (text: string) => string,
  short: (top: Frame) => string,
): Groups {
  const { texts, stacksOf, of } = numbered(data, stacks, textOf)
  const names = stacksOf.map(([first]) => {
    const top = stacks.top(first)
    return top ? short(top) : ''
  })
  return {
    count: texts.length,
    of,
    ...cut(names, texts, 'not known'),
    queryOf: (group) => (texts[group] ? query(texts[group]) : null),
    numberOf: null,
  }
}

/** Allocations by a text of their stacks: `of` each the number of its text, and the stacks of each text. */
function numbered(
  data: DeviceData,
  stacks: Stacks,
  textOf: (stack: number) => string,
): { texts: string[]; stacksOf: number[][]; of: Int32Array } {
  const numbers = new Map<string, number>()
  const stacksOf: number[][] = []
  const groupOf = new Int32Array(stacks.count).fill(-1)
  // Only stacks that occur: a report of many devices holds those of all.
  const of = Int32Array.from(data.stack, (stack) => {
    if (groupOf[stack] < 0) {
      const number = remembered(numbers, textOf(stack), () => stacksOf.push([]) - 1)
      stacksOf[number].push(stack)
      groupOf[stack] = number
    }
    return groupOf[stack]
  })
  return { texts: [...numbers.keys()], stacksOf, of }
}

/** Operators that the stacks show. */
function byOperator(data: DeviceData, stacks: Stacks): Groups {
  const { texts: names, of } = numbered(data, stacks, (stack) => stacks.called(stack))
  return {
    count: names.length,
    of,
    ...cut(names, names, 'no operator'),
    queryOf: (group) => (names[group] ? `op:${quoted(names[group])}` : '-op:*'),
    numberOf: null,
  }
}

/** Names without what most of them begin with. */
function cut(
  names: readonly string[],
  whole: readonly string[],
  none: string,
): Pick<Groups, 'nameOf' | 'fullNameOf' | 'wholeOf' | 'common'> {
  const common = commonStart(names)
  return {
    nameOf: (group) => without(names[group], common) || none,
    fullNameOf: (group) => whole[group],
    wholeOf: (group) => whole[group] || none,
    common,
  }
}

/** "file:line" of the naming frame; its name where it has no file. */
function lineText(top: Frame | null): string {
  if (!top) return ''
  return top.filename && top.filename !== '??' && top.line > 0 ? `${top.filename}:${top.line}` : top.name
}

function hasLine(text: string): boolean {
  return /:\d+$/.test(text)
}

function named(
  of: ArrayLike<number>,
  names: readonly string[],
  query: (name: string) => string | null,
  none: string,
): Groups {
  const isNumbers = names.every((name) => name === '' || /^-?\d{1,15}$/.test(name))
  return {
    count: names.length,
    of,
    ...cut(names, names, none),
    queryOf: (group) => query(names[group]),
    numberOf: isNumbers ? (group) => (names[group] === '' ? NaN : Number(names[group])) : null,
  }
}

function byStep(info: DeviceInfo, data: DeviceData): Groups {
  const steps = stepsOf(info, data)
  const names = ['', ...(steps?.names ?? [])]
  const queries = steps ? [OUTSIDE_STEPS, ...stepQueries(steps)] : [null]
  return {
    count: names.length,
    of: steps ? steps.of.map((step) => step + 1) : new Int32Array(data.N),
    ...cut(names, names, 'outside all steps'),
    queryOf: (group) => queries[group],
    numberOf: (group) => (group > 0 ? group : NaN),
  }
}

function bySize({ size }: DeviceData): Groups {
  const sizes: number[] = []
  const numbers = new Map<number, number>()
  const of = Int32Array.from(size, (bytes) => remembered(numbers, bytes, () => sizes.push(bytes) - 1))
  return {
    count: sizes.length,
    of,
    nameOf: (group) => formatBytesExact(sizes[group]),
    fullNameOf: (group) => String(sizes[group]),
    wholeOf: (group) => `${formatCount(sizes[group])} B`,
    common: '',
    queryOf: (group) => `size:${sizes[group]}`,
    numberOf: (group) => sizes[group],
  }
}
