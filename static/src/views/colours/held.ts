// Bytes and allocations of each colour at one moment, by key.

import type { DeviceData } from '../../data/model'
import type { Colouring } from '../colouring'

export interface Held {
  /** By key. */
  bytes: Float64Array
  count: Uint32Array
}

/** Of what is live at a position. O(allocations born by then): 1 ms for 300,000. */
export function heldAt(
  { start, end, size, N }: Pick<DeviceData, 'start' | 'end' | 'size' | 'N'>,
  { keys, count: keyCount }: Pick<Colouring, 'keys' | 'count'>,
  position: number,
): Held {
  const bytes = new Float64Array(keyCount)
  const count = new Uint32Array(keyCount)
  // Birth order: no allocation starts before an older one.
  for (let id = 0; id < N && start[id] <= position; id++) {
    if (end[id] <= position) continue
    bytes[keys[id]] += size[id]
    count[keys[id]]++
  }
  return { bytes, count }
}

/** By key, the bytes of what is live at a position whose category is inferred. */
export function inferredAt(
  {
    start,
    end,
    size,
    N,
    categorySource,
    info,
  }: Pick<DeviceData, 'start' | 'end' | 'size' | 'N' | 'categorySource' | 'info'>,
  { keys, count }: Pick<Colouring, 'keys' | 'count'>,
  position: number,
): Float64Array {
  const bytes = new Float64Array(count)
  const inferred = info.category_sources.indexOf('inferred')
  for (let id = 0; id < N && start[id] <= position; id++)
    if (end[id] > position && categorySource[id] === inferred) bytes[keys[id]] += size[id]
  return bytes
}

/** Keys of any allocation. */
export function keysUsed({ keys, count }: Pick<Colouring, 'keys' | 'count'>): number[] {
  const isUsed = new Uint8Array(count)
  for (let id = 0; id < keys.length; id++) isUsed[keys[id]] = 1
  const used: number[] = []
  for (let key = 0; key < count; key++) if (isUsed[key]) used.push(key)
  return used
}

/** By bytes, most first; those of the same by key. */
export function byBytes(keys: readonly number[], { bytes }: Held): number[] {
  return [...keys].sort((a, b) => bytes[b] - bytes[a] || a - b)
}
