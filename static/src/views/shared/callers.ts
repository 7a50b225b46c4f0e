// The callers that tell stacks apart: the nearest ones without those that most stacks have in common, which a heading says
// once, and where several stacks would still read alike the first caller in which they differ.

import type { Frame, Stacks } from '../../data/model'
import { remembered } from '../../data/remembered'

/** Callers named with a stack. */
const NEAREST = 2
/** Share of the stacks that makes a caller common to them. */
const MOST = 0.8
/** Times that stacks which read alike are told apart. */
const ROUNDS = 2

export interface Callers {
  /** The nearest of those that are left out somewhere, nearest first. */
  readonly common: readonly Frame[]
  /** Nearest first. */
  of(stack: number): CallersOfStack
}

export interface CallersOfStack {
  readonly frames: readonly Frame[]
  /** `common` would follow. */
  readonly isCut: boolean
  /** A caller farther out, in which the stack differs from others with these callers. */
  readonly farther: readonly Frame[]
}

/** Stacks that read alike, and the callers that may tell them apart. */
type Group = [stack: number, farther: number[]][]

const NONE: CallersOfStack = { frames: [], isCut: false, farther: [] }

/** used: numbers of stacks. isNamed: whether a frame may be named as a caller. O(frames of these stacks). */
export function callersOf(stacks: Stacks, used: Iterable<number>, isNamed: (frame: Frame) => boolean): Callers {
  const { frameOf, caller, leaf, frame } = stacks.trie
  const through = new Uint32Array(frameOf.length)
  const tops: [stack: number, node: number][] = []
  for (const stack of used) {
    const top = stacks.top(stack)
    if (!top) continue
    let node = leaf[stack]
    while (node >= 0 && frame(frameOf[node]) !== top) node = caller[node]
    tops.push([stack, node])
    for (; node >= 0; node = caller[node]) through[node]++
  }
  const many = tops.length > 1 ? Math.max(2, MOST * tops.length) : Infinity
  // A frame has a higher number than its caller, and most stacks go through one path only.
  let end = through.length - 1
  while (end >= 0 && through[end] < many) end--
  const namedFrom = (node: number): number => {
    while (node >= 0 && !isNamed(frame(frameOf[node]))) node = caller[node]
    return node
  }
  const path = (node: number): number[] => {
    const nodes: number[] = []
    for (let at = namedFrom(node); at >= 0; at = namedFrom(caller[at])) nodes.push(at)
    return nodes
  }
  const framesOf = (nodes: readonly number[]): Frame[] => nodes.map((node) => frame(frameOf[node]))
  const made = new Map<number, CallersOfStack>()
  const alike = new Map<string, Group>()
  for (const [stack, node] of tops) {
    const nodes = path(caller[node])
    const own = nodes.filter((at) => through[at] < many)
    const near = own.slice(0, NEAREST)
    made.set(stack, { frames: framesOf(near), isCut: near.length < Math.min(NEAREST, nodes.length), farther: [] })
    const name = [frameOf[node], stacks.operator(stack), ...near.map((at) => frameOf[at])].join()
    remembered(alike, name, (): Group => []).push([stack, own.slice(NEAREST)])
  }
  const tellApart = (group: Group, round: number): void => {
    if (group.length < 2 || round === ROUNDS) return
    const longest = Math.max(...group.map(([, nodes]) => nodes.length))
    const frameAt = (nodes: readonly number[], i: number): number => (i < nodes.length ? frameOf[nodes[i]] : -1)
    let i = 0
    while (i < longest && group.every(([, nodes]) => frameAt(nodes, i) === frameAt(group[0][1], i))) i++
    if (i === longest) return
    const parts = new Map<number, Group>()
    for (const [stack, nodes] of group) {
      const key = frameAt(nodes, i)
      const before = made.get(stack)!
      if (key >= 0) made.set(stack, { ...before, farther: [...before.farther, frame(key)] })
      remembered(parts, key, (): Group => []).push([stack, nodes.slice(i + 1)])
    }
    for (const part of parts.values()) tellApart(part, round + 1)
  }
  for (const group of alike.values()) tellApart(group, 0)
  const isCut = [...made.values()].some((callers) => callers.isCut)
  return { common: isCut ? framesOf(path(end)).slice(0, NEAREST) : [], of: (stack) => made.get(stack) ?? NONE }
}

/** "name  ←  caller  ←  … outer caller  ←  …": `describe` writes a caller, `arrow` stands between. */
export function withCallers(
  name: string,
  { frames, isCut, farther }: CallersOfStack,
  describe: (frame: Frame) => string,
  arrow: string,
): string {
  const outer = farther.map((frame) => `… ${describe(frame)}`)
  return [name, ...frames.map(describe), ...outer, ...(isCut ? ['…'] : [])].join(arrow)
}
