// From the context of a view to the cells of a picture, each step cached until something that it depends on changes: the
// sorted paths (per device), the weights (per moment), the tree, the layout (per width).

import { reservedByStack, reservingStacks } from '../../allocator/reserved-by-stack'
import type { Frame, StackTrie } from '../../data/model'
import type { ExportNames } from '../../flame/export'
import { type FlameLayout, layoutFlame, weightOf } from '../../flame/layout'
import { Paths } from '../../flame/paths'
import { FlameTree, type Node, type Sum } from '../../flame/tree'
import { weigh, weighDifference } from '../../flame/weigh'
import { Memo } from '../memo'
import type { ViewContext } from '../view'
import { type Choices, isOfAllocations, isOfTrace, type Place, readChoices } from './choices'
import { Mixes, MOST_KEYS } from './mixes'

/** Narrower cells are joined, in pixels. */
const MIN_WIDTH = 1.5

export interface Focus {
  node: Node
  /** The stack that names it. */
  stack: number
}

export interface FlameModel {
  choices: Choices
  trie: StackTrie
  tree: FlameTree
  /** The whole tree, whatever is focused. */
  all: Sum
  focus: Focus | null
  /** The function whose callers or callees it is of; null: of all stacks. */
  middle: Frame | null
  layout: FlameLayout
  /** Pixels per unit of weight; 0 when there is nothing. */
  scale: number
  mixes: Mixes | null
  names: ExportNames
  frame(id: number): Frame
}

export class FlameModels {
  private readonly choices = new Memo<Choices>()
  private readonly tries = new Memo<StackTrie>()
  private readonly used = new Memo<Int32Array>()
  private readonly paths = new Memo<Paths>()
  private readonly trees = new Memo<{ tree: FlameTree; all: Sum }>()
  private readonly layouts = new Memo<{ focus: Focus | null; layout: FlameLayout; scale: number }>()
  private readonly mixes = new Memo<Mixes>()

  /** side: which half of a function's picture its models are; without a function the one picture is that of the callees. */
  constructor(private readonly side: 'callers' | 'callees' = 'callees') {}

  /** width: of the picture, in CSS pixels. Null where the measure needs times and there are none. */
  of(context: ViewContext, width: number): FlameModel | null {
    const { data, stacks, state, position, matches, colouring } = context
    const choices = this.choices.get([state.options], () => readChoices(state.options))
    const { merge, measure } = choices
    const clock = measure === 'seconds' ? data.clockUs : null
    if (measure === 'seconds' && !clock) return null
    const trie = this.tries.get([stacks], () => stacks.trie)
    const other = measure === 'diff' ? context.baseline : null
    if (measure === 'diff' && !other) return null
    const others = measure === 'reserved' ? reservingStacks : null
    const used = this.used.get([data, stacks, other?.before, others], () =>
      usedStacks(stacks.count, others ? others(data) : data.stack, other?.before.stack ?? []),
    )
    const middle = choices.middle && frameAt(trie, choices.middle)
    const root = middle === null ? choices.root : this.side === 'callers' ? 'leaf' : 'root'
    const paths = this.paths.get(
      [used, trie, root, merge, state.noise, middle],
      () => new Paths(trie, used, { root, merge, noise: state.noise, middle }),
    )
    const at = isOfTrace(measure) ? 0 : position
    const since = measure === 'growth' ? Math.min(choices.from + 1, data.P - 1) : 0
    const { tree, all } = this.trees.get([paths, data, measure, at, since, matches, clock, other], () => {
      const mask = matches?.mask ?? null
      const weights = other
        ? weighDifference(data, stacks.count, other, mask)
        : measure === 'reserved'
          ? { measure, ...reservedByStack(data, stacks.count, at), loss: null, matched: null, matchedTotal: null }
          : weigh(data, stacks.count, measure, at, since, mask)
      const tree = new FlameTree(paths, weights)
      return { tree, all: tree.sum(0, tree.rows) }
    })
    const layout = this.layouts.get([tree, choices, width, context.extent?.[0]], () => {
      const focus = middle === null && choices.focus ? focusOf(tree, choices.focus) : null
      const node = focus?.node ?? { ...tree.top, depth: middle === null ? 0 : 1 }
      const weight = focus ? weightOf(tree.sum(node.low, node.high)) : weightOf(all)
      const scale = weight > 0 ? width / Math.max(weight, focus || middle !== null ? 0 : (context.extent?.[0] ?? 0)) : 0
      const open = choices.open.map((place) => nodeOf(tree, place)).filter((node) => node !== null)
      const layout = layoutFlame(tree, node, {
        chains: choices.chains,
        open,
        least: scale > 0 ? MIN_WIDTH / scale : Infinity,
      })
      return { focus, layout, scale }
    })
    const frame = (id: number): Frame => trie.frame(id)
    const isMixed = colouring.by !== 'stack' && colouring.count <= MOST_KEYS && isOfAllocations(measure)
    return {
      choices,
      trie,
      tree,
      all,
      ...layout,
      middle: middle === null ? null : frame(middle),
      frame,
      mixes: isMixed
        ? this.mixes.get(
            [tree, colouring.keys, colouring.version],
            () => new Mixes(tree, data, colouring, stacks.count, at),
          )
        : null,
      names: { lines: merge === 'line', frameOf: (key) => frame(paths.frameOfKey[key]) },
    }
  }
}

/** The stacks that occur, ascending. */
function usedStacks(count: number, ...of: Iterable<number>[]): Int32Array {
  const seen = new Uint8Array(count)
  for (const stacks of of) for (const stack of stacks) seen[stack] = 1
  let used = 0
  for (let s = 0; s < count; s++) used += seen[s]
  const ids = new Int32Array(used)
  for (let s = 0, i = 0; s < count; s++) if (seen[s]) ids[i++] = s
  return ids
}

/** The frame that a place names; null where there is none. */
function frameAt(trie: StackTrie, { stack, frame }: Place): number | null {
  if (stack >= trie.leaf.length) return null
  let node = trie.leaf[stack]
  for (let i = 0; i < frame && node >= 0; i++) node = trie.caller[node]
  return node >= 0 ? trie.frameOf[node] : null
}

function nodeOf(tree: FlameTree, { stack, frame }: Place): Node | null {
  if (!(tree.paths.rowOf[stack] >= 0)) return null
  return tree.nodeOf(stack, tree.paths.depthAt(stack, frame))
}

function focusOf(tree: FlameTree, place: Place): Focus | null {
  const node = nodeOf(tree, place)
  return node && node.depth > 0 ? { node, stack: place.stack } : null
}

/** The name of a node in a link. */
export function placeOfNode(tree: FlameTree, stack: number, depth: number): Place {
  return { stack, frame: tree.paths.recordedAt(stack, depth) }
}
