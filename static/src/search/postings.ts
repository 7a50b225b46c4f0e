// Which stacks contain a frame, by the report's posting lists, which name the nodes of the trie of stacks.
//
// Under a node lie the stacks that run through it. Laid out as the trie branches, those of a node are a run of one array, so that
// an entry is a node and its stacks are never written out: a hundred frames of fifty thousand stacks would be five million.

import type { StackTrie } from '../data/model'

/** Rows by code: those of `code` are rows[begins[code]] … rows[begins[code + 1] - 1], in ascending order. */
export interface RowsByCode {
  begins: Int32Array
  rows: Int32Array
}

/** A counting sort of codes below `count`. */
export function rowsByCode(codes: ArrayLike<number>, count: number): RowsByCode {
  const begins = new Int32Array(count + 1)
  for (let row = 0; row < codes.length; row++) begins[codes[row] + 1]++
  for (let code = 0; code < count; code++) begins[code + 1] += begins[code]
  const next = begins.slice(0, count)
  const rows = new Int32Array(codes.length)
  for (let row = 0; row < codes.length; row++) rows[next[codes[row]]++] = row
  return { begins, rows }
}

export class FramePostings {
  /** Stacks as the trie branches; those through a node are `through` many from `first` on. */
  private readonly stacks: Int32Array
  private readonly first: Int32Array
  private readonly through: Int32Array
  /** Stacks to be marked for a frame; one counts as often as it contains it. */
  private readonly weight: Float64Array

  constructor(private readonly trie: StackTrie) {
    const { frameOf, caller, leaf, frames } = trie
    const own = new Int32Array(frameOf.length)
    let rooted = 0
    for (let s = 0; s < leaf.length; s++) if (leaf[s] >= 0) own[leaf[s]]++
    const through = own.slice()
    // A caller comes before what it calls.
    for (let node = through.length - 1; node >= 0; node--) if (caller[node] >= 0) through[caller[node]] += through[node]
    const first = new Int32Array(frameOf.length)
    const next = new Int32Array(frameOf.length)
    const weight = new Float64Array(frames.line.length)
    for (let node = 0; node < first.length; node++) {
      const above = caller[node]
      first[node] = above < 0 ? rooted : next[above]
      if (above < 0) rooted += through[node]
      else next[above] += through[node]
      next[node] = first[node] + own[node]
      weight[frameOf[node]] += through[node]
    }
    const stacks = new Int32Array(rooted)
    const place = first.slice()
    for (let s = 0; s < leaf.length; s++) if (leaf[s] >= 0) stacks[place[leaf[s]]++] = s
    this.stacks = stacks
    this.first = first
    this.through = through
    this.weight = weight
  }

  /** 1 for each stack that has one of the frames. Touches their entries alone, or where that is less the trie once. */
  having(frames: readonly number[]): Uint8Array {
    const {
      stacks,
      first,
      through,
      weight,
      trie: {
        leaf,
        frameOf,
        postings: { begins, nodes },
      },
    } = this
    let cost = 0
    for (const frame of frames) cost += weight[frame]
    if (cost > frameOf.length + leaf.length) return this.passed(frames)
    const found = new Uint8Array(leaf.length)
    for (const frame of frames) {
      for (let at = begins[frame]; at < begins[frame + 1]; at++) {
        const node = nodes[at]
        for (let i = first[node], end = i + through[node]; i < end; i++) found[stacks[i]] = 1
      }
    }
    return found
  }

  /** The same by handing marks down the whole trie. */
  private passed(frames: readonly number[]): Uint8Array {
    const {
      frameOf,
      caller,
      leaf,
      frames: { line },
    } = this.trie
    const hit = new Uint8Array(line.length)
    for (const frame of frames) hit[frame] = 1
    const marked = new Uint8Array(frameOf.length)
    for (let node = 0; node < marked.length; node++)
      marked[node] = hit[frameOf[node]] | (caller[node] < 0 ? 0 : marked[caller[node]])
    const found = new Uint8Array(leaf.length)
    for (let s = 0; s < found.length; s++) if (leaf[s] >= 0) found[s] = marked[leaf[s]]
    return found
  }
}
