// Classes of sizes and of lifetimes: which one a number is in, what it is called, and the query that names it exactly.

import { formatBytes, formatCount } from '../../layout/format'

/** Powers of two from "< 512 B" to "≥ 1 GiB". */
export const SIZE_CLASSES = 23
/** Powers of ten of events, and allocations that are live throughout. */
export const AGE_CLASSES = 8

const SMALLEST = 9
const LARGEST = 30

/** Class 0 is below 512 bytes, class k is 2**(8 + k) bytes and more. */
export function sizeClass(bytes: number): number {
  if (bytes >= 2 ** LARGEST) return SIZE_CLASSES - 1
  return bytes < 2 ** SMALLEST ? 0 : 32 - SMALLEST - Math.clz32(bytes)
}

export function sizeName(k: number): string {
  if (k === 0) return `< ${formatBytes(2 ** SMALLEST)}`
  if (k === SIZE_CLASSES - 1) return `≥ ${rounded(k)}`
  return `${rounded(k)} to ${rounded(k + 1)}`
}

export function sizeQuery(k: number): string {
  if (k === 0) return 'size<512'
  const from = `size>=${rounded(k).replace(' ', '')}`
  return k === SIZE_CLASSES - 1 ? from : `${from} size<${rounded(k + 1).replace(' ', '')}`
}

/** The lower end of a class, which is a whole number of its unit: "64 KiB" */
function rounded(k: number): string {
  return formatBytes(2 ** (SMALLEST - 1 + k)).replace(/\.0+ /, ' ')
}

/** events: from its alloc to its free, or as far as the trace reaches; positions: how long the trace is. */
export function ageClass(events: number, positions: number): number {
  if (events >= positions) return AGE_CLASSES - 1
  let k = 0
  for (let limit = 10; k < AGE_CLASSES - 2 && events >= limit; limit *= 10) k++
  return k
}

export function ageName(k: number): string {
  if (k === AGE_CLASSES - 1) return 'the whole trace'
  if (k === 0) return 'under 10 events'
  if (k === AGE_CLASSES - 2) return `${formatCount(10 ** k)} events and more`
  return `${formatCount(10 ** k)} to ${formatCount(10 ** (k + 1) - 1)} events`
}

export function ageQuery(k: number, positions: number): string {
  if (k === AGE_CLASSES - 1) return `lifetime>=${positions}`
  if (k === 0) return `lifetime<${Math.min(10, positions)}`
  return k === AGE_CLASSES - 2
    ? `lifetime>=${10 ** k} lifetime<${positions}`
    : `lifetime>=${10 ** k} lifetime<${Math.min(10 ** (k + 1), positions)}`
}
