// Which stacks hold a text: strings → frames → the trie of stacks. Answers are kept for as long as the stacks.

import type { Stacks, StackTrie } from '../data/model'
import type { Text } from './fields'
import { StringIndex } from './strings'

/** Answers kept; each has a byte for every stack. */
const KEPT = 64

export class StackTexts {
  private readonly files: StringIndex
  private readonly names: StringIndex
  private readonly answers = new Map<string, Uint8Array>()

  private constructor(private readonly trie: StackTrie) {
    this.files = new StringIndex(trie.frames.filenames)
    this.names = new StringIndex(trie.frames.names)
  }

  private static readonly made = new WeakMap<Stacks, StackTexts>()

  /** The one for these stacks; strings are folded when it is first asked for. */
  static of(stacks: Stacks): StackTexts {
    let texts = this.made.get(stacks)
    if (!texts) this.made.set(stacks, (texts = new StackTexts(stacks.trie)))
    return texts
  }

  /** 1 for each stack with a frame whose file, function or either holds a text. */
  holding(what: 'file' | 'func' | 'either', test: Text): Uint8Array {
    return this.kept(`${what} ${JSON.stringify(test)}`, () => {
      const { file, name, line } = this.trie.frames
      const inFile = what === 'func' ? null : this.files.having(test.parts)
      const inName = what === 'file' ? null : this.names.having(test.parts)
      const atPlace = test.place && what !== 'func' ? this.files.having(test.place.parts) : null
      const hit = new Uint8Array(line.length)
      for (let f = 0; f < hit.length; f++) {
        if (inFile?.[file[f]] || inName?.[name[f]] || (atPlace?.[file[f]] && line[f] === test.place!.line)) hit[f] = 1
      }
      return hit
    })
  }

  /** 1 for each stack with a frame on a line from `low` to `high`. */
  onLine(low: number, high: number): Uint8Array {
    return this.kept(`line ${low} ${high}`, () => {
      const { line } = this.trie.frames
      const hit = new Uint8Array(line.length)
      for (let f = 0; f < hit.length; f++) if (line[f] >= low && line[f] <= high) hit[f] = 1
      return hit
    })
  }

  /** Distinct files or functions that hold a folded text. */
  distinct(what: 'file' | 'func', text: string): string[] {
    const { filenames, names } = this.trie.frames
    const texts = what === 'file' ? filenames : names
    const hit = (what === 'file' ? this.files : this.names).having([text])
    return texts.filter((_, i) => hit[i] === 1)
  }

  private kept(key: string, frames: () => Uint8Array): Uint8Array {
    let answer = this.answers.get(key)
    if (answer) this.answers.delete(key)
    else answer = withFrame(this.trie, frames())
    this.answers.set(key, answer)
    if (this.answers.size > KEPT) this.answers.delete(this.answers.keys().next().value!)
    return answer
  }
}

/** 1 for each stack that has one of the frames that `hit` marks. */
export function withFrame({ frameOf, caller, leaf }: StackTrie, hit: Uint8Array): Uint8Array {
  // A caller comes before what it calls, so one pass hands the mark on to all of them.
  const marked = new Uint8Array(frameOf.length)
  for (let node = 0; node < marked.length; node++) marked[node] = hit[frameOf[node]] | (caller[node] < 0 ? 0 : marked[caller[node]])
  const found = new Uint8Array(leaf.length)
  for (let s = 0; s < found.length; s++) if (leaf[s] >= 0) found[s] = marked[leaf[s]]
  return found
}

const lists = new WeakMap<readonly string[], StringIndex>()

/** 1 for each text of a list that holds the parts. The list must not change. */
export function textsHaving(list: readonly string[], parts: readonly string[]): Uint8Array {
  let index = lists.get(list)
  if (!index) lists.set(list, (index = new StringIndex(list)))
  return index.having(parts)
}
