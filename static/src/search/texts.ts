// Which stacks hold a text: strings → frames → stacks, by lists from each to the next. Answers are kept for as long as the stacks.

import type { Stacks, StackTrie } from '../data/model'
import type { Text } from './fields'
import { FramePostings, type RowsByCode, rowsByCode } from './postings'
import { StringIndex } from './strings'

/** Answers kept; each has a byte for every stack. */
const KEPT = 64

export class StackTexts {
  private readonly files: StringIndex
  private readonly names: StringIndex
  private readonly ofFile: RowsByCode
  private readonly ofName: RowsByCode
  private readonly postings: FramePostings
  private readonly answers = new Map<string, Uint8Array>()

  private constructor(private readonly trie: StackTrie) {
    const { filenames, names, file, name } = trie.frames
    this.files = new StringIndex(filenames)
    this.names = new StringIndex(names)
    this.ofFile = rowsByCode(file, filenames.length)
    this.ofName = rowsByCode(name, names.length)
    this.postings = new FramePostings(trie)
  }

  private static readonly cache = new WeakMap<Stacks, StackTexts>()

  /** The index of these stacks; strings are folded and lists made when it is first requested. */
  static of(stacks: Stacks): StackTexts {
    let texts = StackTexts.cache.get(stacks)
    if (!texts) StackTexts.cache.set(stacks, (texts = new StackTexts(stacks.trie)))
    return texts
  }

  /** 1 for each stack with a frame whose file, function or either holds a text. */
  holding(what: 'file' | 'func' | 'either', test: Text): Uint8Array {
    return this.cached(`${what} ${JSON.stringify(test)}`, () => {
      const { files, names, ofFile, ofName } = this
      const { line } = this.trie.frames
      const seen = new Uint8Array(line.length)
      const found: number[] = []
      const add = (frame: number): void => {
        if (seen[frame] === 0) found.push(frame)
        seen[frame] = 1
      }
      if (what !== 'func') for (const file of files.matching(test.parts)) eachRow(ofFile, file, add)
      if (what !== 'file') for (const name of names.matching(test.parts)) eachRow(ofName, name, add)
      if (test.place && what !== 'func') {
        const { parts, line: wanted } = test.place
        for (const file of files.matching(parts)) eachRow(ofFile, file, (frame) => line[frame] === wanted && add(frame))
      }
      return found
    })
  }

  /** 1 for each stack with a frame on a line from `low` to `high`. */
  onLine(low: number, high: number): Uint8Array {
    return this.cached(`line ${low} ${high}`, () => {
      const { line } = this.trie.frames
      const found: number[] = []
      for (let frame = 0; frame < line.length; frame++) if (line[frame] >= low && line[frame] <= high) found.push(frame)
      return found
    })
  }

  /** Distinct files or functions that hold a folded text. */
  distinct(what: 'file' | 'func', text: string): string[] {
    const { filenames, names } = this.trie.frames
    const texts = what === 'file' ? filenames : names
    return (what === 'file' ? this.files : this.names)
      .matching([text])
      .sort((a, b) => a - b)
      .map((i) => texts[i])
  }

  private cached(key: string, frames: () => number[]): Uint8Array {
    let answer = this.answers.get(key)
    if (answer) this.answers.delete(key)
    else answer = this.postings.having(frames())
    this.answers.set(key, answer)
    if (this.answers.size > KEPT) this.answers.delete(this.answers.keys().next().value!)
    return answer
  }
}

function eachRow({ begins, rows }: RowsByCode, code: number, each: (row: number) => void): void {
  for (let at = begins[code]; at < begins[code + 1]; at++) each(rows[at])
}

const lists = new WeakMap<readonly string[], StringIndex>()

/** 1 for each text of a list that holds the parts. The list must not change. */
export function textsHaving(list: readonly string[], parts: readonly string[]): Uint8Array {
  let index = lists.get(list)
  if (!index) lists.set(list, (index = new StringIndex(list)))
  return index.having(parts)
}
