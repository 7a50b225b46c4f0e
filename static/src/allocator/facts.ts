// What the allocator's model shares with the library: snapreport/allocator_facts.json, which the bundle includes.

import facts from '../../../snapreport/allocator_facts.json'
import { fillIn } from '../data/fill-in'

/** c10's kMinBlockSize and its siblings, in bytes; see snapreport/allocator_facts.py. */
export const {
  min_block: MIN_BLOCK,
  small_size: SMALL_SIZE,
  small_buffer: SMALL_BUFFER,
  large_buffer: LARGE_BUFFER,
  min_large_alloc: MIN_LARGE_ALLOC,
  round_large: ROUND_LARGE,
  intervals: INTERVALS,
} = facts.constants

type Sentences = Pick<typeof facts, 'setting_errors' | 'refusals' | 'page_refusals' | 'limits' | 'notes'>

/** A sentence of the facts with its values put in. */
export function sentence<G extends keyof Sentences>(
  group: G,
  key: keyof Sentences[G],
  values: Record<string, string | number> = {},
): string {
  return fillIn(facts[group][key as keyof (typeof facts)[G]] as string, values)
}

export { facts }
