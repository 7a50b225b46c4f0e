// Which cells of a tree a picture shows. Nothing is left out: cells too narrow to draw are joined into one cell that
// says how much it is, and the cells under a cell weigh exactly what it weighs.

import { firstWhere } from '../layout/binary-search'
import type { FlameTree, Node, Sum } from './tree'

/**
 * A frame · the whole tree · bytes of a frame that none of those under it has · stacks without frames · narrow neighbours ·
 * a chain of frames in one · a chain of C++ frames in one.
 */
export type Kind = 'frame' | 'all' | 'own' | 'none' | 'more' | 'chain' | 'native'
/** Chains without a branch in one cell each: none, those that lead to the first branches, or all. C++ chains fold unless it is none. */
export type Chains = 'none' | 'outer' | 'all'

export interface Cell extends Node, Sum {
  kind: Kind
  /** 0 at the top */
  row: number
  /** Weight left of it, from the left edge of the picture. */
  from: number
  /** Frames of a chain, children in a joined cell, otherwise 1. */
  frames: number
  /** Index of the cell above; -1 at the top. */
  parent: number
}

export interface LayoutOptions {
  chains: Chains
  /** Chains, by the nodes that they end at, that are shown frame by frame whatever `chains` says. */
  open: readonly Node[]
  /** Cells that weigh less are joined. 0: no cell is joined. */
  least: number
}

export interface FlameLayout {
  /** Row by row, in each from left to right. */
  cells: Cell[]
  /** per row and one more: index of its first cell */
  rows: number[]
}

/** Two frames would take as much room as the chain's cell and the one that follows. */
const SHORTEST_CHAIN = 2

/** O(rows of the tree × depth) at most: each row of cells reads the rows under its wide cells once. */
export function layoutFlame(tree: FlameTree, top: Node, options: LayoutOptions): FlameLayout {
  const cells: Cell[] = [
    {
      ...top,
      ...tree.sum(top.low, top.high),
      kind: top.depth === 0 ? 'all' : 'frame',
      row: 0,
      from: 0,
      frames: 1,
      parent: -1,
    },
  ]
  const rows = [0, 1]
  for (let first = 0; first < cells.length; ) {
    const last = cells.length
    for (let at = first; at < last; at++) {
      const { kind } = cells[at]
      if ((kind === 'frame' || kind === 'all' || isChain(kind)) && (at === 0 || weightOf(cells[at]) >= options.least)) {
        addChildren(tree, cells, at, options)
      }
    }
    if (cells.length > last) rows.push(cells.length)
    first = last
  }
  return { cells, rows }
}

/** One cell for several frames, which are shown when it is opened. */
export function isChain(kind: Kind): boolean {
  return kind === 'chain' || kind === 'native'
}

/** The width of a cell: its weight, or its change. */
export function weightOf({ value, loss }: Sum): number {
  return value + loss
}

function addChildren(tree: FlameTree, cells: Cell[], parent: number, options: LayoutOptions): void {
  const above = cells[parent]
  if (above.low === above.high) return
  const bounds = tree.childBounds(above)
  const children: (Sum & { low: number; high: number })[] = []
  for (let i = 0; i + 1 < bounds.length; i++) {
    const low = bounds[i]
    const high = bounds[i + 1]
    children.push({ low, high, ...tree.sum(low, high) })
  }
  // Without children a frame's bytes are all its own: no cell needs to say so.
  if (children.length === 0 && above.depth > 0) return
  children.sort((a, b) => weightOf(b) - weightOf(a) || a.low - b.low)

  // C++ frames that lead to the program are not shown at the top.
  const isOuter = above.parent < 0 || (above.kind === 'native' && cells[above.parent].parent < 0)
  let { from } = above
  const add = (kind: Kind, run: Sum & { low: number; high: number }, depth: number, frames: number): void => {
    const { low, high, value, loss, count, matched } = run
    cells.push({ kind, low, high, depth, value, loss, count, matched, row: above.row + 1, from, frames, parent })
    from += weightOf(run)
  }
  const narrow = { low: above.high, high: above.high, value: 0, loss: 0, count: 0, matched: 0 }
  let narrowCount = 0
  for (const child of children) {
    if (weightOf(child) < options.least) {
      narrow.value += child.value
      narrow.loss += child.loss
      narrow.count += child.count
      narrow.matched += child.matched
      narrowCount++
      continue
    }
    const depth = above.depth + 1
    const native = nativeRun(tree, child, depth, options)
    const folded = native > 0 || above.kind === 'chain' ? 0 : foldable(tree, child, depth, isOuter, options)
    if (native > 0) add('native', child, above.depth + native, native)
    else if (folded > 0) add('chain', child, above.depth + folded, folded)
    else add('frame', child, depth, 1)
  }
  if (narrowCount > 0) add('more', narrow, above.depth, narrowCount)
  const ownEnd = tree.ownEnd(above)
  if (ownEnd > above.low) {
    add(
      above.depth === 0 ? 'none' : 'own',
      { low: above.low, high: ownEnd, ...tree.sum(above.low, ownEnd) },
      above.depth,
      1,
    )
  }
}

/** Frames at the start of a child that go into one cell; 0: none. The frame at which the chain branches keeps its own cell. */
function foldable(
  tree: FlameTree,
  { low, high }: { low: number; high: number },
  depth: number,
  outer: boolean,
  options: LayoutOptions,
): number {
  const { chains, open } = options
  if (chains === 'none' || (chains === 'outer' && !outer)) return 0
  const shared = tree.shared({ low, high, depth })
  // A chain at the top that never branches is what the reader wants to see, so it is not folded.
  if (chains === 'outer' && tree.length(high - 1) === shared) return 0
  const frames = shared - depth
  if (frames < SHORTEST_CHAIN) return 0
  return isOpen(open, low, high, depth, shared) ? 0 : frames
}

/** C++ frames at the start of a child up to where it branches or the program goes on, all of them in one cell; 0: none. */
function nativeRun(
  tree: FlameTree,
  { low, high }: { low: number; high: number },
  depth: number,
  { chains, open }: LayoutOptions,
): number {
  if (chains === 'none' || !tree.paths.isNative(tree.key(low, depth - 1))) return 0
  const shared = tree.shared({ low, high, depth })
  let end = depth
  while (end < shared && tree.paths.isNative(tree.key(low, end))) end++
  const frames = end - depth + 1
  return frames < SHORTEST_CHAIN || isOpen(open, low, high, depth, end) ? 0 : frames
}

/** Whether a chain from one depth to another, over these rows or some of them, was opened. */
function isOpen(open: readonly Node[], low: number, high: number, from: number, to: number): boolean {
  return open.some((node) => node.low <= low && node.high >= high && node.depth >= from && node.depth <= to)
}

/** The cell at a weight from the left in a row; -1 outside. */
export function cellAt({ cells, rows }: FlameLayout, row: number, weight: number): number {
  if (row < 0 || row + 1 >= rows.length) return -1
  const at = firstWhere(rows[row] + 1, rows[row + 1], (index) => cells[index].from > weight) - 1
  const cell = cells[at]
  return weight >= cell.from && weight < cell.from + weightOf(cell) ? at : -1
}

/** Indices of the cells directly under a cell: [first, last + 1]. */
export function childrenOf({ cells, rows }: FlameLayout, index: number): [number, number] {
  const row = cells[index].row + 1
  if (row + 1 >= rows.length) return [0, 0]
  // Cells lie in the order of their parents.
  let first = rows[row]
  while (first < rows[row + 1] && cells[first].parent < index) first++
  let last = first
  while (last < rows[row + 1] && cells[last].parent === index) last++
  return [first, last]
}
