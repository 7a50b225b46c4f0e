// The tree of one moment: those rows of the sorted paths that weigh anything, with their weights. A node is a run of rows
// that share their first `depth` keys; it is never stored, only walked.

import type { Paths } from './paths'
import type { Weights } from './weigh'

/** Rows low … high - 1 and how many keys they share. The whole tree is { low: 0, high: rows, depth: 0 }. */
export interface Node {
  low: number
  high: number
  depth: number
}

/** The weight of a run of rows. */
export interface Sum {
  value: number
  loss: number
  count: number
  matched: number
}

export class FlameTree {
  readonly rows: number
  /** per row: its row in the paths */
  readonly path: Int32Array
  /** per row: keys in common with the row before */
  readonly common: Int32Array
  /** per path row and one more: how many of the tree's rows come before it */
  private readonly before: Int32Array

  /** O(stacks). */
  constructor(
    readonly paths: Paths,
    readonly weights: Weights,
  ) {
    const { value, loss, count } = weights
    const before = new Int32Array(paths.rows + 1)
    for (let row = 0; row < paths.rows; row++) {
      const s = paths.stack[row]
      before[row + 1] = before[row] + (value[s] > 0 || count[s] !== 0 || (loss !== null && loss[s] > 0) ? 1 : 0)
    }
    this.before = before
    this.rows = before[paths.rows]
    this.path = new Int32Array(this.rows)
    this.common = new Int32Array(this.rows)
    let common = 0
    for (let row = 0; row < paths.rows; row++) {
      common = row === 0 ? 0 : Math.min(common, paths.common[row])
      const at = before[row]
      if (before[row + 1] === at) continue
      this.path[at] = row
      this.common[at] = at === 0 ? 0 : common
      common = Infinity
    }
  }

  get top(): Node {
    return { low: 0, high: this.rows, depth: 0 }
  }

  stack(row: number): number {
    return this.paths.stack[this.path[row]]
  }

  length(row: number): number {
    return this.paths.length(this.path[row])
  }

  /** The key of a row at a depth; a node's own key is that of any of its rows at depth - 1. */
  key(row: number, depth: number): number {
    return this.paths.key(this.path[row], depth)
  }

  /** The line that all rows of a node end at; 0 where its key merges several, or none was recorded. O(rows of the node). */
  line({ low, high, depth }: Node): number {
    const { paths, path } = this
    const first = paths.line(path[low], depth - 1)
    for (let row = low + 1; row < high; row++) if (paths.line(path[row], depth - 1) !== first) return 0
    return Math.max(0, first)
  }

  /** The node at a depth of the path of a stack, which may be empty at this moment; null for a stack of another device. */
  nodeOf(stack: number, depth: number): Node | null {
    const row = this.paths.rowOf[stack] ?? -1
    if (row < 0 || depth > this.paths.length(row)) return null
    const [low, high] = this.paths.run(row, depth)
    return { low: this.before[low], high: this.before[high], depth }
  }

  sum(low: number, high: number): Sum {
    const { value, loss, count, matched } = this.weights
    const sum = { value: 0, loss: 0, count: 0, matched: 0 }
    for (let row = low; row < high; row++) {
      const s = this.stack(row)
      sum.value += value[s]
      sum.count += count[s]
      if (loss) sum.loss += loss[s]
      if (matched) sum.matched += matched[s]
    }
    return sum
  }

  /** The first row that continues past the node: those before it end at the node itself. */
  ownEnd({ low, high, depth }: Node): number {
    let row = low
    while (row < high && this.length(row) === depth) row++
    return row
  }

  /** First rows of the children of a node, and its end. O(rows of the node). */
  childBounds(node: Node): number[] {
    const bounds: number[] = []
    const first = this.ownEnd(node)
    for (let row = first; row < node.high; row++) if (row === first || this.common[row] <= node.depth) bounds.push(row)
    bounds.push(node.high)
    return bounds
  }

  /** How many keys all rows of a node share, at least its depth: the depth of the first node below it that branches or ends. */
  shared({ low, high }: Node): number {
    let shared = this.length(low)
    for (let row = low + 1; row < high; row++) shared = Math.min(shared, this.common[row])
    return shared
  }
}
