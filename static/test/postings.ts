// Posting lists for tries that tests make by hand.

import type { Postings } from '../src/data/model'

/** The nodes of each frame, by a look at all nodes for each. */
export function postingsOf(frameOf: readonly number[], frames: number): Postings {
  const lists = Array.from({ length: frames }, (_, frame) =>
    frameOf.flatMap((own, node) => (own === frame ? [node] : [])),
  )
  const begins = [0, ...lists.map((_, frame) => lists.slice(0, frame + 1).flat().length)]
  return { begins: Int32Array.from(begins), nodes: Int32Array.from(lists.flat()) }
}
