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

/** Bytes of the matches that are live at a position. */
export function liveMatches({ start, end, size }: DeviceData, mask: Uint8Array, position: number): number {
  let bytes = 0
  for (let id = 0; id < mask.length; id++)
    if (mask[id] !== 0 && start[id] <= position && end[id] > position) bytes += size[id]
  return bytes
}

/**
 * The match after an allocation, the largest first and equal ones in birth order, or for by = -1 the one before it. Past
 * the last, and for an allocation that is no match, comes the first. -1 where nothing matches. One pass: nothing is sorted.
 */
export function nextBySize({ size }: DeviceData, { mask }: Matches, after: number | null, by: 1 | -1): number {
  const isAfter = (id: number, other: number): boolean =>
    size[id] === size[other] ? (id - other) * by > 0 : (size[other] - size[id]) * by > 0
  const from = after !== null && mask[after] ? after : -1
  let first = -1
  let next = -1
  for (let id = 0; id < mask.length; id++) {
    if (!mask[id]) continue
    if (first < 0 || isAfter(first, id)) first = id
    if (from >= 0 && isAfter(id, from) && (next < 0 || isAfter(next, id))) next = id
  }
  return next < 0 ? first : next
}

/** How many matches come before one in that order. */
export function rankBySize({ size }: DeviceData, { mask }: Matches, id: number): number {
  let rank = 0
  for (let other = 0; other < mask.length; other++) {
    if (mask[other] && (size[other] > size[id] || (size[other] === size[id] && other < id))) rank++
  }
  return rank
}
