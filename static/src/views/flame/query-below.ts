// The query that finds everything below a node of the tree: the stacks that share its path.

import type { FlameTree } from '../../flame/tree'
import { MAX_LENGTH } from '../../search/grammar'

/** `depth` keys of the path of `stack`; null where the query would be longer than one may be. */
export function queryBelow({ paths }: FlameTree, stack: number, depth: number): string | null {
  const [low, high] = paths.run(paths.rowOf[stack], depth)
  const stacks = paths.stack.slice(low, high).sort()
  const parts: string[] = []
  for (let at = 0; at < stacks.length; ) {
    let last = at
    while (last + 1 < stacks.length && stacks[last + 1] === stacks[last] + 1) last++
    parts.push(last === at ? `stack:${stacks[at]}` : `stack:${stacks[at]}..${stacks[last]}`)
    at = last + 1
  }
  const query = parts.join(' OR ')
  return query.length <= MAX_LENGTH ? query : null
}
