// What a query matches on one device.

import type { Annotation, DeviceData, DeviceInfo, Stacks } from '../data/model'
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

/** Throws QueryError for a query that cannot be read. `annotations`: the manifest's, which tell steps. */
export function evaluateQuery(
  data: DeviceData, stacks: Stacks, info: DeviceInfo, query: string, annotations: readonly Annotation[] = [],
): Matches {
  const { mask, notes } = find(data, stacks, info, annotations, query)
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

/** Ids of the matches, largest first, then in birth order. */
export function matchesBySize({ size }: DeviceData, { mask, count }: Matches): Int32Array {
  const ids = new Int32Array(count)
  for (let id = 0, i = 0; i < count; id++) if (mask[id]) ids[i++] = id
  return ids.sort((a, b) => size[b] - size[a] || a - b)
}
