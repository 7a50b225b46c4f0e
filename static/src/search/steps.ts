// Steps and annotated spans as queries mean them, by event, without times: the twin of snapreport/search/steps.py.

import type { DeviceInfo } from '../data/model'
import { ranges, stepRanges, type Steps } from '../steps/steps'
import { QUERY_NOTES, type Range, type Text } from './fields'
import { textsHaving } from './texts'

export interface Within {
  /** 1 for each position s = event + 1 whose event lies in a step, or in a span, that the test selects. */
  positions: Uint8Array
  /** Why the test selects none; "" when it selects one. */
  whyNone: string
}

/** A range selects steps by their numbers, a text steps and annotated spans by a part of their names. O(events + spans). */
export function positionsWithin(info: DeviceInfo, test: Range | Text): Within {
  // Spans that open at each position less those that end there.
  const opened = new Int32Array(info.events + 2)
  let count = 0
  const add = (first: ArrayLike<number>, last: ArrayLike<number>, isMeant: (i: number) => unknown): void => {
    for (let i = 0; i < first.length; i++) {
      if (!isMeant(i)) continue
      opened[first[i] + 1]++
      opened[last[i] + 2]--
      count++
    }
  }
  const steps = stepRanges(info)
  if (steps) {
    const hit =
      test.kind === 'text' ? textsHaving(steps.names, test.parts) : steps.numbers.map((number) => inRange(number, test))
    add(steps.first, steps.last, (i) => hit[i])
  }
  if (test.kind === 'text' && info.spans) {
    const { names, name, first, events } = info.spans
    const hit = textsHaving(names, test.parts)
    const spans = ranges(first, events)
    add(spans.first, spans.last, (i) => hit[name[i]])
  }
  const positions = new Uint8Array(info.events + 1)
  let open = 0
  for (let s = 0; count > 0 && s < positions.length; s++) {
    open += opened[s]
    positions[s] = Number(open > 0)
  }
  const why = test.kind === 'text' ? 'no_name' : steps ? 'no_step' : 'no_steps'
  return { positions, whyNone: count > 0 ? '' : QUERY_NOTES[why] }
}

export function inRange(number: number, { low, high }: Range): boolean {
  return (low === null || number >= low) && (high === null || number <= high)
}

/** Events outside all steps. */
export const OUTSIDE_STEPS = '-step:0..'

/** For each step the query that finds its allocations and no others; null where none does. */
export function stepQueries({ numbers, first, last }: Pick<Steps, 'numbers' | 'first' | 'last'>): (string | null)[] {
  const times = new Map<number, number>()
  for (const number of numbers) times.set(number, (times.get(number) ?? 0) + 1)
  return numbers.map((number, i) => {
    if (times.get(number) === 1) return `step:${number}`
    // A single event would select what is freed there, too.
    return first[i] < last[i] ? `event:${first[i]}..${last[i]}` : null
  })
}
