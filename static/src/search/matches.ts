// What a query matches on one device.

import type { DeviceData, DeviceInfo, Stacks } from '../data/model'
import { find } from './evaluate'

export { QueryError } from './fields'

export interface Matches {
  query: string
  /** 1 for each allocation that matches (length N). */
  mask: Uint8Array
  count: number
  /** Bytes of all that match, live or not. */
  bytes: number
  /** Why parts of the query cannot match anything here. */
  notes: string[]
}

/** Throws QueryError for a query that cannot be read. */
export function evaluateQuery(data: DeviceData, stacks: Stacks, info: DeviceInfo, query: string): Matches {
  const { mask, notes } = find(data, stacks, info, query)
  let count = 0
  let bytes = 0
  for (let id = 0; id < mask.length; id++) {
    if (mask[id] === 0) continue
    count++
    bytes += data.size[id]
  }
  return { query, mask, count, bytes, notes }
}

/** How many of the matches are live at a position, and their bytes. */
export function liveMatches({ start, end, size }: DeviceData, mask: Uint8Array, position: number): { count: number; bytes: number } {
  let count = 0
  let bytes = 0
  for (let id = 0; id < mask.length; id++) {
    if (mask[id] === 0 || start[id] > position || end[id] <= position) continue
    count++
    bytes += size[id]
  }
  return { count, bytes }
}

/** Ids of the matches, largest first, then in birth order. O(count) for each 16 bits of the largest size. */
export function matchesBySize({ size }: DeviceData, { mask, count }: Matches): Int32Array {
  let ids = new Int32Array(count)
  let largest = 0
  for (let id = 0, i = 0; i < count; id++) {
    if (!mask[id]) continue
    ids[i++] = id
    largest = Math.max(largest, size[id])
  }
  // A radix sort, lowest digits first: each pass leaves equal digits in the order of the pass before.
  let sorted = new Int32Array(count)
  for (let unit = 1; unit <= largest; unit *= DIGITS) {
    const begins = new Int32Array(DIGITS + 1)
    for (const id of ids) begins[DIGITS - digitOf(size[id], unit)]++
    for (let digit = 1; digit < DIGITS; digit++) begins[digit] += begins[digit - 1]
    for (const id of ids) sorted[begins[DIGITS - 1 - digitOf(size[id], unit)]++] = id
    ;[ids, sorted] = [sorted, ids]
  }
  return ids
}

const DIGITS = 2 ** 16

function digitOf(size: number, unit: number): number {
  return Math.floor(size / unit) % DIGITS
}
