// Every stack of a device as a path of keys, sorted so that stacks with a common beginning lie side by side. A tree needs
// nothing more: a node is a run of neighbours that agree on their first keys. That holds for 50,000 stacks of 100 frames
// in either direction, where a tree of objects would have millions of nodes from the innermost frame outwards.

import type { StackTrie } from '../data/model'
import { remembered } from '../data/remembered'

/** Where the tree starts: at the outermost frame, or at the innermost. */
export type Root = 'root' | 'leaf'
/** Which frames are one: those of one function (name and file), or of one line of it. */
export type Merge = 'function' | 'line'

export interface PathOptions {
  root: Root
  merge: Merge
  /** Keep the frames of the interpreter loop, the dispatcher and the unwinder. */
  noise: boolean
  /**
   * Only stacks with this frame, or one that merges with it, from its outermost call on: inwards where the tree starts at the
   * outermost frame, outwards where it starts at the innermost. Null: all of every stack.
   */
  middle?: number | null
}

/** Shorter runs are sorted by comparing whole paths. */
const COMPARED_BELOW = 12

export class Paths {
  /** per key: a frame that stands for it */
  readonly frameOfKey: Int32Array
  /** per row: its stack */
  readonly stack: Int32Array
  /** per row: how many keys it has in common with the row before */
  readonly common: Int32Array
  /** per stack: its row; -1 for a stack that was not asked for */
  readonly rowOf: Int32Array
  private readonly lengths: Int32Array
  private readonly hidden: Uint8Array
  /** Row r's frames are frames[from[r]] … frames[from[r + 1]], root of the tree first. */
  private readonly frames: Int32Array
  private readonly keyOf: Int32Array
  private readonly from: Int32Array
  /** The key that every path begins with; -1: any. */
  private readonly middle: number

  /** used: the stacks that matter, ascending. Takes some 100 ms for 50,000 stacks of 100 frames. */
  constructor(
    private readonly trie: StackTrie,
    used: Int32Array,
    readonly options: PathOptions,
  ) {
    const { keyOf, frameOfKey } = keysOf(trie, options.merge)
    this.frameOfKey = frameOfKey
    this.hidden = Uint8Array.from(keyOf, (_, frame) => (options.noise || !trie.isNoise(frame) ? 0 : 1))
    this.keyOf = keyOf
    this.middle = options.middle == null ? -1 : keyOf[options.middle]
    const whole = pathsOf(trie, this.hidden, used, options.root)
    const cut = this.middle < 0 ? { ...whole, used } : cutAt(whole, used, keyOf, this.middle, options.root)
    const { frames, from } = cut
    used = cut.used
    const keys = frames.map((frame) => keyOf[frame])
    const order = sorted(keys, from)
    const rows = used.length
    this.frames = frames
    this.from = new Int32Array(rows)
    this.stack = new Int32Array(rows)
    this.common = new Int32Array(rows)
    this.rowOf = new Int32Array(trie.leaf.length).fill(-1)
    this.lengths = new Int32Array(rows)
    for (let row = 0; row < rows; row++) {
      const path = order[row]
      this.from[row] = from[path]
      this.lengths[row] = from[path + 1] - from[path]
      this.stack[row] = used[path]
      this.rowOf[used[path]] = row
      if (row > 0) this.common[row] = commonLength(keys, from, order[row - 1], path)
    }
  }

  get rows(): number {
    return this.stack.length
  }

  length(row: number): number {
    return this.lengths[row]
  }

  /** The key of a row at a depth, 0 at the root of the tree. */
  key(row: number, depth: number): number {
    return this.keyOf[this.frames[this.from[row] + depth]]
  }

  /** The line that a row runs through at a depth: a key may merge several. */
  line(row: number, depth: number): number {
    return this.trie.frames.line[this.frames[this.from[row] + depth]]
  }

  /** Neither Python nor the interpreter's: C++ and what is under it. */
  isNative(key: number): boolean {
    return !this.trie.isPython(this.frameOfKey[key])
  }

  /** The rows that share their first `depth` keys with a row: [first, last + 1]. */
  run(row: number, depth: number): [number, number] {
    let low = row
    let high = row + 1
    while (low > 0 && this.common[low] >= depth) low--
    while (high < this.rows && this.common[high] >= depth) high++
    return [low, high]
  }

  /**
   * Which of a stack's recorded frames, innermost = 0, a depth of its path ends at. Names a node in a link: unlike the
   * depth it stays right when runtime frames are shown, and when the tree is turned around.
   */
  recordedAt(stack: number, depth: number): number {
    const seen = this.seen(stack)
    return seen[this.options.root === 'leaf' ? depth - 1 : seen.length - depth] ?? 0
  }

  /** The depth of the path of a stack that ends at one of its recorded frames, or at the nearest shown frame inside it. */
  depthAt(stack: number, recorded: number): number {
    const seen = this.seen(stack)
    if (seen.length === 0) return 0
    let at = seen.length - 1
    while (at > 0 && seen[at] > recorded) at--
    return this.options.root === 'leaf' ? at + 1 : seen.length - at
  }

  /** The recorded frames of a stack that are part of its path, innermost first. */
  private seen(stack: number): number[] {
    const { trie, hidden } = this
    const seen: number[] = []
    let recorded = 0
    for (let node = trie.leaf[stack]; node >= 0; node = trie.caller[node], recorded++) {
      if (!hidden[trie.frameOf[node]]) seen.push(recorded)
    }
    if (seen.length === 0 && recorded > 0) seen.push(0)
    if (this.middle < 0) return seen
    const frames = this.framesOf(stack)
    let at = seen.length - 1
    while (at >= 0 && this.keyOf[frames[seen[at]]] !== this.middle) at--
    return this.options.root === 'leaf' ? seen.slice(Math.max(0, at)) : seen.slice(0, at + 1)
  }

  /** Innermost first. */
  private framesOf(stack: number): number[] {
    const { leaf, caller, frameOf } = this.trie
    const frames: number[] = []
    for (let node = leaf[stack]; node >= 0; node = caller[node]) frames.push(frameOf[node])
    return frames
  }
}

/** The paths that contain a key, from its outermost call on. */
function cutAt(
  { frames, from }: { frames: Int32Array; from: Int32Array },
  used: Int32Array,
  keyOf: Int32Array,
  key: number,
  root: Root,
): { frames: Int32Array; from: Int32Array; used: Int32Array } {
  const [kept, bounds, stacks]: number[][] = [[], [0], []]
  for (let path = 0; path < used.length; path++) {
    const whole = frames.subarray(from[path], from[path + 1])
    const keys = whole.map((frame) => keyOf[frame])
    const at = root === 'leaf' ? keys.lastIndexOf(key) : keys.indexOf(key)
    if (at < 0) continue
    for (let i = at; i < whole.length; i++) kept.push(whole[i])
    bounds.push(kept.length)
    stacks.push(used[path])
  }
  return { frames: Int32Array.from(kept), from: Int32Array.from(bounds), used: Int32Array.from(stacks) }
}

/** A key for every frame, equal where frames merge. */
function keysOf(trie: StackTrie, merge: Merge): { keyOf: Int32Array; frameOfKey: Int32Array } {
  const { name, file, line } = trie.frames
  const keyOf = new Int32Array(name.length)
  const frameOfKey: number[] = []
  const known = new Map<number, Map<number | string, number>>()
  for (let frame = 0; frame < name.length; frame++) {
    const byFile = remembered(known, name[frame], () => new Map<number | string, number>())
    const place = merge === 'function' ? file[frame] : `${file[frame]}:${line[frame]}`
    keyOf[frame] = remembered(byFile, place, () => frameOfKey.push(frame) - 1)
  }
  return { keyOf, frameOfKey: Int32Array.from(frameOfKey) }
}

/** The frames of each stack, one path after the other. A stack of noise alone keeps its innermost frame, as its name does. */
function pathsOf(
  { frameOf, caller, leaf }: StackTrie,
  hidden: Uint8Array,
  used: Int32Array,
  root: Root,
): { frames: Int32Array; from: Int32Array } {
  // Frames shown with each node and above it: a node's caller comes before it.
  const shown = new Int32Array(caller.length)
  for (let node = 0; node < caller.length; node++) {
    shown[node] = (caller[node] < 0 ? 0 : shown[caller[node]]) + 1 - hidden[frameOf[node]]
  }
  const from = new Int32Array(used.length + 1)
  for (let path = 0; path < used.length; path++) {
    const innermost = leaf[used[path]]
    from[path + 1] = from[path] + (innermost < 0 ? 0 : Math.max(1, shown[innermost]))
  }
  const frames = new Int32Array(from[used.length])
  for (let path = 0; path < used.length; path++) {
    const innermost = leaf[used[path]]
    if (innermost < 0) continue
    if (shown[innermost] === 0) frames[from[path]] = frameOf[innermost]
    let at = root === 'leaf' ? from[path] : from[path + 1] - 1
    for (let node = innermost; node >= 0; node = caller[node]) {
      if (hidden[frameOf[node]]) continue
      frames[at] = frameOf[node]
      at += root === 'leaf' ? 1 : -1
    }
  }
  return { frames, from }
}

/**
 * The paths in ascending order, a path before those it begins: quicksort in three parts by one key after the other, which
 * reads what paths have in common once, not once per comparison.
 */
function sorted(keys: Int32Array, from: Int32Array): Int32Array {
  const order = Int32Array.from({ length: from.length - 1 }, (_, path) => path)
  const at = (path: number, depth: number): number =>
    from[path] + depth < from[path + 1] ? keys[from[path] + depth] : -1
  const swap = (a: number, b: number): void => {
    const path = order[a]
    order[a] = order[b]
    order[b] = path
  }
  // Runs that are still to be sorted: first row, last row + 1, keys in common.
  const todo: number[] = [0, order.length, 0]
  while (todo.length > 0) {
    const depth = todo.pop()!
    const high = todo.pop()!
    const low = todo.pop()!
    if (high - low <= COMPARED_BELOW) {
      insertionSort(order, low, high, (a, b) => compare(a, b, depth))
      continue
    }
    const pivot = at(order[(low + high) >> 1], depth)
    let less = low
    let greater = high
    for (let row = low; row < greater; ) {
      const key = at(order[row], depth)
      if (key < pivot) swap(less++, row++)
      else if (key > pivot) swap(row, --greater)
      else row++
    }
    todo.push(low, less, depth, greater, high, depth)
    if (pivot >= 0) todo.push(less, greater, depth + 1)
  }
  return order

  function compare(a: number, b: number, depth: number): number {
    for (; ; depth++) {
      const x = at(a, depth)
      const y = at(b, depth)
      if (x !== y || x < 0) return x - y
    }
  }
}

function insertionSort(order: Int32Array, low: number, high: number, compare: (a: number, b: number) => number): void {
  for (let i = low + 1; i < high; i++) {
    const path = order[i]
    let j = i
    for (; j > low && compare(order[j - 1], path) > 0; j--) order[j] = order[j - 1]
    order[j] = path
  }
}

function commonLength(keys: Int32Array, from: Int32Array, a: number, b: number): number {
  const most = Math.min(from[a + 1] - from[a], from[b + 1] - from[b])
  let length = 0
  while (length < most && keys[from[a] + length] === keys[from[b] + length]) length++
  return length
}
