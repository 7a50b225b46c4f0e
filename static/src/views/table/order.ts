// Sorting of rows that is stable and as good for a million of them: by digits, without a comparison.

/** What each row is sorted by, as a 64-bit number in two words. All bits set: there is nothing to sort by, last either way. */
export interface SortKeys {
  hi: Uint32Array
  lo: Uint32Array
}

const NONE = 0xffffffff
const RADIX = 1 << 16

/** Keys in the order of the numbers; NaN: none. */
export function keysOf(values: Float64Array): SortKeys {
  const words = new Uint32Array(values.buffer, values.byteOffset, 2 * values.length)
  const hi = new Uint32Array(values.length)
  const lo = new Uint32Array(values.length)
  for (let i = 0; i < values.length; i++) {
    // Every machine that runs a browser stores the low word first.
    const high = words[2 * i + 1]
    const low = words[2 * i]
    if (Number.isNaN(values[i])) hi[i] = lo[i] = NONE
    else if (values[i] === 0) hi[i] = 0x80000000
    else if (high >>> 31) {
      hi[i] = ~high
      lo[i] = ~low
    } else {
      hi[i] = high ^ 0x80000000
      lo[i] = low
    }
  }
  return { hi, lo }
}

/** `rows` in the order of their keys (`keys` are by place in `rows`). Equal ones stay in the order given, either way. */
export function ordered(rows: Int32Array, { hi, lo }: SortKeys, descending: boolean): Int32Array {
  const n = rows.length
  let places = new Uint32Array(n)
  for (let i = 0; i < n; i++) places[i] = i
  let other = new Uint32Array(n)
  const flip = (words: Uint32Array): Uint32Array =>
    descending ? words.map((word, i) => (hi[i] === NONE && lo[i] === NONE ? NONE : ~word)) : words
  const counts = new Uint32Array(RADIX)
  for (const words of [flip(lo), flip(hi)]) {
    for (const shift of [0, 16]) {
      counts.fill(0)
      for (let i = 0; i < n; i++) counts[(words[i] >>> shift) & 0xffff]++
      if (n === 0 || counts[(words[0] >>> shift) & 0xffff] === n) continue
      let at = 0
      for (let digit = 0; digit < RADIX; digit++) {
        const here = counts[digit]
        counts[digit] = at
        at += here
      }
      for (let i = 0; i < n; i++) {
        const place = places[i]
        other[counts[(words[place] >>> shift) & 0xffff]++] = place
      }
      ;[places, other] = [other, places]
    }
  }
  return Int32Array.from(places, (place) => rows[place])
}

/** Rank of each text among the others; equal ones have the same. */
export function ranksOf(texts: readonly string[]): Float64Array {
  const distinct = [...new Set(texts)].sort((a, b) => (a < b ? -1 : 1))
  const rank = new Map(distinct.map((text, i) => [text, i]))
  return Float64Array.from(texts, (text) => rank.get(text)!)
}
