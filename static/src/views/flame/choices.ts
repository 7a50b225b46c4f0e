// The choices of this view, as the state's options hold them: { 'flame.root': 'leaf' }. Absent or unknown ones have their default.

import type { Chains } from '../../flame/layout'
import type { Merge, Root } from '../../flame/paths'
import { MEASURES, type Measure } from '../../flame/weigh'
import type { Options } from '../../ui/state'

/** A node of the tree: one of its stacks, and which of that stack's recorded frames (innermost = 0) it ends at. */
export interface Place {
  stack: number
  frame: number
}

export interface Choices {
  measure: Measure
  root: Root
  merge: Merge
  chains: Chains
  /** The event that growth counts from; -1: before the first. */
  from: number
  /** The node that fills the picture; null: all. */
  focus: Place | null
  /** The function whose callers and callees are shown, by one of its frames; null: the tree of all. */
  middle: Place | null
  /** Chains that were opened individually. */
  open: readonly Place[]
}

export function readChoices(options: Options): Choices {
  const one = <T extends string>(name: string, values: readonly T[]): T =>
    values.includes(options[name] as T) ? (options[name] as T) : values[0]
  const from = options['flame.from'] ?? ''
  return {
    measure: one('flame.measure', MEASURES),
    root: one('flame.root', ['root', 'leaf']),
    merge: one('flame.merge', ['function', 'line']),
    chains: one('flame.chains', ['outer', 'all', 'none']),
    from: /^\d{1,15}$/.test(from) ? Number(from) : -1,
    focus: readPlace(options['flame.focus'] ?? ''),
    middle: readPlace(options['flame.middle'] ?? ''),
    open: (options['flame.open'] ?? '')
      .split('~')
      .map(readPlace)
      .filter((place) => place !== null),
  }
}

function readPlace(text: string): Place | null {
  const match = /^(\d{1,9})\.(\d{1,6})$/.exec(text)
  return match && { stack: Number(match[1]), frame: Number(match[2]) }
}

export function writePlace({ stack, frame }: Place): string {
  return `${stack}.${frame}`
}

/** Measures that the moment does not change: those of the whole trace, and the comparison, which has moments of its own. */
export function isOfTrace(measure: Measure): boolean {
  return measure === 'allocated' || measure === 'allocations' || measure === 'diff'
}

/** Measures whose weights are sums over allocations, which have categories and match queries. */
export function isOfAllocations(measure: Measure): boolean {
  return !isDifference(measure) && measure !== 'reserved'
}

/** Measures with gains and losses. */
export function isDifference(measure: Measure): boolean {
  return measure === 'growth' || measure === 'diff'
}
