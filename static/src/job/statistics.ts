// Medians, quartiles and spreads.

/** Minimum, quartiles and maximum. */
export type Spread = [min: number, lower: number, median: number, upper: number, max: number]

/** Minimum, quartiles and maximum of values in any order; quartiles are linear between neighbours. Null of none. */
export function spreadOf(values: ArrayLike<number>): Spread | null {
  const sorted = Float64Array.from(values).filter((value) => !Number.isNaN(value))
  if (sorted.length === 0) return null
  sorted.sort()
  const at = (share: number): number => {
    const place = share * (sorted.length - 1)
    const below = Math.floor(place)
    const above = Math.min(sorted.length - 1, below + 1)
    return sorted[below] + (place - below) * (sorted[above] - sorted[below])
  }
  return [sorted[0], at(0.25), at(0.5), at(0.75), sorted[sorted.length - 1]]
}

export function medianOf(values: ArrayLike<number>): number {
  return spreadOf(values)?.[2] ?? NaN
}

/**
 * The value that a group predicts for a rank: the median of all, or where the group slopes (pipeline stages hold less from one to
 * the next) a line through them. The line's slope is the median over pairs half the group apart, so that fewer than a quarter of
 * the ranks cannot bend it. NaN values are ignored.
 */
export function fitOf(ranks: readonly number[], values: ArrayLike<number>, isSlope: boolean): (rank: number) => number {
  const known = Array.from(ranks.keys()).filter((i) => !Number.isNaN(values[i]))
  const half = Math.ceil(known.length / 2)
  const slopes: number[] = []
  if (isSlope && known.length > 2) {
    known.sort((a, b) => ranks[a] - ranks[b])
    for (let i = 0; i + half < known.length; i++) {
      const [from, to] = [known[i], known[i + half]]
      if (ranks[to] > ranks[from]) slopes.push((values[to] - values[from]) / (ranks[to] - ranks[from]))
    }
  }
  const slope = slopes.length ? medianOf(slopes) : 0
  const base = medianOf(known.map((i) => values[i] - slope * ranks[i]))
  return (rank) => base + slope * rank
}

/** A few ranks may lie beyond a scale: when the highest is above twice what nine in ten stay below. */
const CLIP_ABOVE = 2
const CLIP_AT = 1.25
const CLIP_SHARE = 0.9

/** Where a scale over values ends, so that one extreme rank does not squeeze all others: at the greatest, or before it. */
export function clippedEnd(values: ArrayLike<number>): number {
  const known = Float64Array.from(values)
    .filter((value) => value > 0)
    .sort()
  const most = known[known.length - 1] ?? 0
  if (known.length < 3) return most
  const usual = known[Math.floor(CLIP_SHARE * (known.length - 1))]
  return most > CLIP_ABOVE * usual ? CLIP_AT * usual : most
}
