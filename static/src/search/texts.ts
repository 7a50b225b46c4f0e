// Which stacks and rows contain a text: strings → frames → nodes of the trie → stacks, each in one pass. The twin of
// snapreport/search/texts.py.

import type { Stacks, StackTrie } from '../data/model'
import { fold, type Text } from './fields'
import { remembered } from '../data/remembered'

/** Answers that are cached; each has a byte for every stack. */
const MOST_ANSWERS = 64

/** Distinct texts, folded. Of 25,000, and stacks of 1.5 million nodes, a search takes 12 ms. */
export class Folded {
  private readonly values: string[]

  constructor(private readonly texts: readonly string[]) {
    this.values = texts.map(fold)
  }

  /** 1 for each text that contains the parts in this order; without parts, for each that is not empty. */
  having(parts: readonly string[]): Uint8Array {
    return Uint8Array.from(this.values, (value) => Number(holds(value, parts)))
  }

  /** These texts as they were. */
  matching(parts: readonly string[]): string[] {
    return this.texts.filter((_, i) => holds(this.values[i], parts))
  }
}

export function holds(value: string, parts: readonly string[]): boolean {
  let at = 0
  for (const part of parts) {
    const found = value.indexOf(part, at)
    if (found < 0) return false
    at = found + part.length
  }
  return value !== ''
}

export class StackTexts {
  private readonly files: Folded
  private readonly names: Folded
  private readonly answers = new Map<string, Uint8Array>()

  private constructor(private readonly trie: StackTrie) {
    this.files = new Folded(trie.frames.filenames)
    this.names = new Folded(trie.frames.names)
  }

  private static readonly cache = new WeakMap<Stacks, StackTexts>()

  /** The texts of these stacks, which are folded when they are first requested. */
  static of(stacks: Stacks): StackTexts {
    return remembered(StackTexts.cache, stacks, () => new StackTexts(stacks.trie))
  }

  /** 1 for each stack with a frame whose file, function or either holds a text. */
  holding(what: 'file' | 'func' | 'either', { parts, place }: Text): Uint8Array {
    return this.cached(`${what} ${JSON.stringify([parts, place])}`, () => {
      const { file, name, line } = this.trie.frames
      const hit = new Uint8Array(line.length)
      if (what !== 'func') {
        const files = this.files.having(parts)
        for (let frame = 0; frame < hit.length; frame++) hit[frame] = files[file[frame]]
      }
      if (what !== 'file') {
        const names = this.names.having(parts)
        for (let frame = 0; frame < hit.length; frame++) hit[frame] |= names[name[frame]]
      }
      if (place && what !== 'func') {
        const files = this.files.having(place.parts)
        for (let frame = 0; frame < hit.length; frame++)
          if (line[frame] === place.line) hit[frame] |= files[file[frame]]
      }
      return hit
    })
  }

  /** 1 for each stack with a frame on a line from `low` to `high`. */
  onLine(low: number, high: number): Uint8Array {
    return this.cached(`line ${low} ${high}`, () =>
      Uint8Array.from(this.trie.frames.line, (line) => Number(line >= low && line <= high)),
    )
  }

  /** Distinct files or functions that hold a folded text. */
  distinct(what: 'file' | 'func', text: string): string[] {
    return (what === 'file' ? this.files : this.names).matching([text])
  }

  private cached(key: string, frames: () => Uint8Array): Uint8Array {
    const known = this.answers.get(key)
    const answer = known ?? this.withFrame(frames())
    this.answers.delete(key)
    this.answers.set(key, answer)
    if (this.answers.size > MOST_ANSWERS) this.answers.delete(this.answers.keys().next().value!)
    return answer
  }

  /** 1 for each stack that has one of the frames; marks are handed down the trie, in which callers come first. */
  private withFrame(hit: Uint8Array): Uint8Array {
    const { frameOf, caller, leaf } = this.trie
    const marked = new Uint8Array(frameOf.length)
    for (let node = 0; node < marked.length; node++)
      marked[node] = hit[frameOf[node]] | (caller[node] < 0 ? 0 : marked[caller[node]])
    const found = new Uint8Array(leaf.length)
    for (let stack = 0; stack < found.length; stack++) if (leaf[stack] >= 0) found[stack] = marked[leaf[stack]]
    return found
  }
}

const lists = new WeakMap<readonly string[], Folded>()

/** 1 for each text of a list that holds the parts. The list must not change. */
export function textsHaving(list: readonly string[], parts: readonly string[]): Uint8Array {
  return remembered(lists, list, () => new Folded(list)).having(parts)
}
