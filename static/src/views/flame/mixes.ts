// How a node's weight is divided among the keys of a colouring: categories, streams, sizes. Sums up to each row of the
// tree, one column per key, answer for any run of rows at once.

import type { DeviceData } from '../../data/model'
import type { FlameTree } from '../../flame/tree'
import { weigh } from '../../flame/weigh'
import type { Colouring } from '../colouring'

/** More keys than these cannot be distinguished in a strip, and each costs a pass over the allocations. */
export const MOST_KEYS = 24

export class Mixes {
  /** per key with any weight: its number, and the weight of all rows before each row (length rows + 1) */
  private readonly columns: { key: number; before: Float64Array }[] = []

  /** O(keys × allocations). */
  constructor(tree: FlameTree, data: DeviceData, colouring: Colouring, stacks: number, position: number) {
    const mask = new Uint8Array(data.N)
    for (let key = 0; key < colouring.count; key++) {
      let any = 0
      for (let id = 0; id < data.N; id++) any |= mask[id] = colouring.keys[id] === key ? 1 : 0
      if (!any) continue
      const { matched } = weigh(data, stacks, tree.weights.measure, position, 0, mask)
      const before = new Float64Array(tree.rows + 1)
      for (let row = 0; row < tree.rows; row++) before[row + 1] = before[row] + matched![tree.stack(row)]
      if (before[tree.rows] > 0) this.columns.push({ key, before })
    }
  }

  /** Keys of some rows and their weights, heaviest first. */
  of(low: number, high: number): { key: number; weight: number }[] {
    return this.columns
      .map(({ key, before }) => ({ key, weight: before[high] - before[low] }))
      .filter(({ weight }) => weight > 0)
      .sort((a, b) => b.weight - a.weight || a.key - b.key)
  }
}
