// Which of many distinct strings contain a text, without scanning all of them: an index of their trigrams.
//
// Characters fall into 64 classes, so a trigram is a number of 18 bits and the index a counting sort. Strings of unlike
// characters may share a trigram: candidates from the index are checked. A text of one or two characters is the beginning of a
// run of trigrams, since every string is followed by two blanks of class 0.

import { fold } from './fields'

const BITS = 6
const KEYS = 1 << (3 * BITS)
/** Fewer strings than this are faster to scan than to index. */
const WORTH_INDEXING = 256

export class StringIndex {
  readonly folded: string[]
  private index: { begins: Int32Array; strings: Uint32Array } | null = null

  constructor(texts: readonly string[]) {
    this.folded = texts.map(fold)
  }

  /** 1 for each string that contains the parts in this order; without parts, for each that is not empty. */
  having(parts: readonly string[]): Uint8Array {
    const found = new Uint8Array(this.folded.length)
    for (const i of this.matching(parts)) found[i] = 1
    return found
  }

  /** The numbers of these strings, each once, in no order. */
  matching(parts: readonly string[]): number[] {
    const { folded } = this
    const found: number[] = []
    if (parts.length === 0 || folded.length < WORTH_INDEXING) {
      for (let i = 0; i < folded.length; i++) if (holds(folded[i], parts)) found.push(i)
      return found
    }
    const { begins, strings } = (this.index ??= indexOf(folded))
    const [from, to] = fewest(begins, parts)
    const seen = new Uint8Array(folded.length)
    for (let row = from; row < to; row++) {
      const i = strings[row]
      if (seen[i]) continue
      seen[i] = 1
      if (holds(folded[i], parts)) found.push(i)
    }
    return found
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

/** The strings of each trigram, by trigram: counted, then put in place. A string stands once under each of its trigrams. */
function indexOf(folded: readonly string[]): { begins: Int32Array; strings: Uint32Array } {
  const begins = new Int32Array(KEYS + 1)
  const last = new Int32Array(KEYS).fill(-1)
  for (let i = 0; i < folded.length; i++) {
    eachKey(folded[i], (key) => {
      if (last[key] === i) return
      last[key] = i
      begins[key + 1]++
    })
  }
  for (let key = 0; key < KEYS; key++) begins[key + 1] += begins[key]
  const strings = new Uint32Array(begins[KEYS])
  const next = begins.slice(0, KEYS)
  last.fill(-1)
  for (let i = 0; i < folded.length; i++) {
    eachKey(folded[i], (key) => {
      if (last[key] === i) return
      last[key] = i
      strings[next[key]++] = i
    })
  }
  return { begins, strings }
}

function eachKey(text: string, each: (key: number) => void): void {
  let key = 0
  for (let at = 0; at < text.length + 2; at++) {
    key = ((key << BITS) | (at < text.length ? classOf(text.charCodeAt(at)) : 0)) & (KEYS - 1)
    if (at >= 2) each(key)
  }
}

/** The rows of the index with every string that contains all parts, and as few others as one trigram allows. */
function fewest(begins: Int32Array, parts: readonly string[]): [number, number] {
  let best: [number, number] = [0, begins[KEYS]]
  for (const part of parts) {
    const length = Math.min(3, part.length)
    const free = BITS * (3 - length)
    let key = 0
    for (let at = 0; at < part.length; at++) {
      key = ((key << BITS) | classOf(part.charCodeAt(at))) & ((1 << (BITS * length)) - 1)
      if (at < length - 1) continue
      const rows: [number, number] = [begins[key << free], begins[(key + 1) << free]]
      if (rows[1] - rows[0] < best[1] - best[0]) best = rows
    }
  }
  return best
}

/** 1 … 36 for letters and digits, 37 … 62 for other ASCII, 63 for the rest. */
function classOf(code: number): number {
  if (code >= 97 && code <= 122) return code - 96
  if (code >= 48 && code <= 57) return code - 21
  return code < 128 ? 37 + (code % 26) : 63
}
