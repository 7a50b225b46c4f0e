// Sorting of rows that is stable and as good for a million of them: by digits, without a comparison.

/** What each row is sorted by, as a 64-bit number in two words. All bits set: there is nothing to sort by, last either way. */
export interface SortKeys {
  hi: Uint32Array
  lo: Uint32Array
}

const NONE = 0xffffffff
/** Bits of a digit: 2,048 lists are written at once without missing the cache, 65,536 are not. */
const DIGIT = 11

/** Keys in the order of the numbers; NaN: none. */
export function keysOf(values: Float64Array): SortKeys {
  const hi = new Uint32Array(values.length)
  const lo = new Uint32Array(values.length)
  // Whole numbers, as nearly all are, have fewer digits than the same number with an exponent.
  for (let i = 0; i < values.length; i++) {
    const value = values[i]
    if (Number.isNaN(value)) hi[i] = lo[i] = NONE
    else if (value >= 0 && value <= Number.MAX_SAFE_INTEGER && Math.floor(value) === value) {
      hi[i] = value / 0x100000000
      lo[i] = value
    } else return keysOfFractions(values, hi, lo)
  }
  return { hi, lo }
}

function keysOfFractions(values: Float64Array, hi: Uint32Array, lo: Uint32Array): SortKeys {
  const words = new Uint32Array(values.buffer, values.byteOffset, 2 * values.length)
  for (let i = 0; i < values.length; i++) {
    // Every machine that runs a browser stores the low word first.
    const high = words[2 * i + 1]
    const low = words[2 * i]
    if (Number.isNaN(values[i])) hi[i] = lo[i] = NONE
    else if (values[i] === 0) {
      hi[i] = 0x80000000
      lo[i] = 0
    } else if (high >>> 31) {
      hi[i] = ~high
      lo[i] = ~low
    } else {
      hi[i] = high ^ 0x80000000
      lo[i] = low
    }
  }
  return { hi, lo }
}

/** How many of the keys are those of 0, whole or as a fraction, or of nothing: in descending order they come last. */
export function countEmpty({ hi, lo }: SortKeys): number {
  let empty = 0
  for (let i = 0; i < hi.length; i++) {
    const isZero = lo[i] === 0 && (hi[i] === 0 || hi[i] === 0x80000000)
    if (isZero || (hi[i] === NONE && lo[i] === NONE)) empty++
  }
  return empty
}

/** `rows` in the order of their keys (`keys` are by place in `rows`). Equal ones stay in the order given, either way. */
export function ordered(rows: Int32Array, { hi, lo }: SortKeys, descending: boolean): Int32Array {
  const n = rows.length
  const places = new Uint32Array(n)
  const none: number[] = []
  let count = 0
  for (let i = 0; i < n; i++) {
    if (hi[i] === NONE && lo[i] === NONE) none.push(i)
    else places[count++] = i
  }
  const sorted = sortedPlaces(places.subarray(0, count), hi, lo, descending)
  const out = new Int32Array(n)
  for (let i = 0; i < count; i++) out[i] = rows[sorted[i]]
  for (let i = count; i < n; i++) out[i] = rows[none[i - count]]
  return out
}

/** Digit by digit from the lowest, of the bits in which keys differ at all. */
function sortedPlaces(places: Uint32Array, hi: Uint32Array, lo: Uint32Array, descending: boolean): Uint32Array {
  let from: Uint32Array = places
  let to: Uint32Array = new Uint32Array(places.length)
  const counts = new Uint32Array(1 << DIGIT)
  const flip = descending ? NONE : 0
  for (const words of [lo, hi]) {
    let varying = 0
    for (let i = 1; i < places.length; i++) varying |= words[places[i]] ^ words[places[0]]
    const top = 32 - Math.clz32(varying)
    let shift = varying === 0 ? 0 : 31 - Math.clz32(varying & -varying)
    for (; shift < top; shift += DIGIT) {
      counts.fill(0)
      const mask = (1 << Math.min(DIGIT, top - shift)) - 1
      for (let i = 0; i < places.length; i++) counts[((words[places[i]] ^ flip) >>> shift) & mask]++
      let at = 0
      for (let digit = 0; digit <= mask; digit++) {
        const here = counts[digit]
        counts[digit] = at
        at += here
      }
      for (let i = 0; i < places.length; i++) {
        const place = from[i]
        to[counts[((words[place] ^ flip) >>> shift) & mask]++] = place
      }
      ;[from, to] = [to, from === places ? new Uint32Array(places.length) : from]
    }
  }
  return from
}

/** Rank of each text among the others; equal ones have the same. */
export function ranksOf(texts: readonly string[]): Float64Array {
  const distinct = [...new Set(texts)].sort((a, b) => (a < b ? -1 : 1))
  const rank = new Map(distinct.map((text, i) => [text, i]))
  return Float64Array.from(texts, (text) => rank.get(text)!)
}
