// Binary searches, in O(log n).

/** The first index in [from, to) that passes, where all after it pass too; `to` where none does. */
export function firstWhere(from: number, to: number, passes: (index: number) => boolean): number {
  let low = from
  let high = to
  while (low < high) {
    const middle = (low + high) >>> 1
    if (passes(middle)) high = middle
    else low = middle + 1
  }
  return low
}

/** First index in [from, to) whose value is at least x, in an ascending array. Not by `firstWhere`: pictures call it for every column. */
export function lowerBound(values: ArrayLike<number>, x: number, from = 0, to = values.length): number {
  let low = from
  let high = to
  while (low < high) {
    const middle = (low + high) >>> 1
    if (values[middle] < x) low = middle + 1
    else high = middle
  }
  return low
}

/** First index in [from, to) whose value is above x, in an ascending array: so many are at most x. */
export function upperBound(values: ArrayLike<number>, x: number, from = 0, to = values.length): number {
  return firstWhere(from, to, (index) => values[index] > x)
}
