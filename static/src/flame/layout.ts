// Which cells of a tree a picture shows. Nothing is left out: cells too narrow to draw are joined into one cell that
// says how much it is, and the cells under a cell weigh exactly what it weighs.

import { firstWhere } from '../layout/binary-search'
import type { FlameTree, Node, Sum } from './tree'

/**
 * A frame · the whole tree · bytes of a frame that none of those under it has · stacks without frames · narrow neighbours ·
 * a chain of frames in one · a chain of C++ frames in one.
 */
export type Kind = 'frame' | 'all' | 'own' | 'none' | 'more' | 'chain' | 'native'
/**
 * Chains without a branch worth seeing in one cell each: none, those that lead to the first branches, or all. C++ chains fold
 * unless it is none.
 */
export type Chains = 'none' | 'outer' | 'all'

export interface Cell extends Node, Sum {
  kind: Kind
  /** 0 at the top */
  row: number
  /** Weight left of it, from the left edge of the picture. */
  from: number
  /** Frames of a chain, children in a joined cell, otherwise 1. */
  frames: number
  /** The rows that reach the end of a chain, of which the others branch off within it; otherwise all. */
  inner: Inner
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
/** Share of a chain that may branch off within it. */
const ASIDE = 0.02

/** O(rows of the tree × depth) at most: each row of cells reads the rows under its wide cells once. */
export function layoutFlame(tree: FlameTree, top: Node, options: LayoutOptions): FlameLayout {
  const cells: Cell[] = [
    {
      ...top,
      ...tree.sum(top.low, top.high),
      inner: { ...top, aside: 0 },
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

/** aside: how many frames and ends of stacks a chain leaves aside. */
interface Inner {
  low: number
  high: number
  aside: number
}

/** A run of rows and what it weighs. */
type Run = Sum & { low: number; high: number }

/** The width of a cell: its weight, or its change. */
export function weightOf({ value, loss }: Sum): number {
  return value + loss
}

function addChildren(tree: FlameTree, cells: Cell[], parent: number, options: LayoutOptions): void {
  const above = cells[parent]
  if (above.low === above.high) return
  const bounds = tree.childBounds({ ...above.inner, depth: above.depth })
  const children: Run[] = []
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
  const add = (kind: Kind, run: Run, depth: number, frames: number, chain?: Inner): void => {
    const { low, high, value, loss, count, matched } = run
    const inner = chain ?? { low, high, aside: 0 }
    cells.push({ kind, low, high, depth, value, loss, count, matched, row: above.row + 1, from, frames, parent, inner })
    from += weightOf(run)
  }
  const narrow = { low: above.high, high: above.high, value: 0, loss: 0, count: 0, matched: 0 }
  let narrowCount = 0
  const join = (run: Sum, frames: number): void => {
    narrow.value += run.value
    narrow.loss += run.loss
    narrow.count += run.count
    narrow.matched += run.matched
    narrowCount += frames
  }
  const { inner } = above
  if (inner.aside > 0) {
    join(tree.sum(above.low, inner.low), inner.aside)
    join(tree.sum(inner.high, above.high), 0)
  }
  for (const child of children) {
    if (weightOf(child) < options.least) {
      join(child, 1)
      continue
    }
    const depth = above.depth + 1
    const native = nativeRun(tree, child, depth, options)
    const chain = native > 0 || above.kind === 'chain' ? null : foldable(tree, child, depth, isOuter, options)
    if (native > 0) add('native', child, above.depth + native, native)
    else if (chain) add('chain', child, chain.depth, chain.depth - above.depth, chain)
    else add('frame', child, depth, 1)
  }
  if (narrowCount > 0) add('more', narrow, above.depth, narrowCount)
  const ownEnd = tree.ownEnd({ ...inner, depth: above.depth })
  if (ownEnd > inner.low) {
    add(
      above.depth === 0 ? 'none' : 'own',
      { low: inner.low, high: ownEnd, ...tree.sum(inner.low, ownEnd) },
      above.depth,
      1,
    )
  }
}

/**
 * The end of the chain at the start of a child: the node before the frame at which it branches, which keeps its own cell.
 * Branches that weigh little do not end it. Null: there is none.
 */
function foldable(
  tree: FlameTree,
  run: Run,
  depth: number,
  outer: boolean,
  { chains, open }: LayoutOptions,
): (Node & Inner) | null {
  if (chains === 'none' || (chains === 'outer' && !outer)) return null
  const least = weightOf(run) * (1 - ASIDE)
  let node: Node = { low: run.low, high: run.high, depth }
  let end: (Node & Inner) | null = null
  for (let aside = 0; ; ) {
    const shared = tree.shared(node)
    if (shared > node.depth) end = { ...node, depth: shared - 1, aside }
    node = { ...node, depth: shared }
    const next = heaviest(tree, node)
    if (!next || next.weight < least) break
    end = { ...node, aside }
    aside += next.aside
    node = { low: next.low, high: next.high, depth: shared + 1 }
  }
  // A chain at the top that never branches is what the reader wants to see, so it is not folded.
  if (!end || (chains === 'outer' && tree.length(node.high - 1) === node.depth)) return null
  if (end.depth - depth + 1 < SHORTEST_CHAIN) return null
  return isOpen(open, run.low, run.high, depth, end.depth + 1) ? null : end
}

/** The heaviest child of a node; aside: its siblings, and whether stacks end at the node. */
function heaviest(tree: FlameTree, node: Node): (Inner & { weight: number }) | null {
  const bounds = tree.childBounds(node)
  const aside = bounds.length - 2 + (tree.ownEnd(node) > node.low ? 1 : 0)
  let most: (Inner & { weight: number }) | null = null
  for (let i = 0; i + 1 < bounds.length; i++) {
    const weight = weightOf(tree.sum(bounds[i], bounds[i + 1]))
    if (weight > (most?.weight ?? 0)) most = { low: bounds[i], high: bounds[i + 1], weight, aside }
  }
  return most
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
  return open.some((node) => node.low < high && node.high > low && node.depth >= from && node.depth <= to)
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

/** The first row in which two cells weigh more than a chain may leave aside; 0: none does. */
export function firstBranch({ cells, rows }: FlameLayout): number {
  const least = weightOf(cells[0]) * ASIDE
  for (let row = 1; row + 1 < rows.length; row++) {
    const wide = cells.slice(rows[row], rows[row + 1]).filter((cell) => weightOf(cell) >= least)
    if (wide.length > 1) return row
  }
  return 0
}
