// The bytes of some allocations by stack: which stack dominates a group, a colour or a query.

import type { DeviceData } from './model'

export interface StackShare {
  /** 0: no stack trace. */
  stack: number
  /** Bytes of it live at the moment, and of all its allocations. */
  live: number
  bytes: number
}

/** Of the allocations that pass, most bytes live at a position first, then most bytes in all. O(allocations). */
export function stackShares(
  { N, start, end, size, stack }: Pick<DeviceData, 'N' | 'start' | 'end' | 'size' | 'stack'>,
  position: number,
  passes: (id: number) => boolean,
): StackShare[] {
  const shares = new Map<number, StackShare>()
  for (let id = 0; id < N; id++) {
    if (!passes(id)) continue
    let share = shares.get(stack[id])
    if (!share) shares.set(stack[id], (share = { stack: stack[id], live: 0, bytes: 0 }))
    share.bytes += size[id]
    if (start[id] <= position && end[id] > position) share.live += size[id]
  }
  return [...shares.values()].sort((a, b) => b.live - a.live || b.bytes - a.bytes || a.stack - b.stack)
}

/** The stack with the most bytes, of those with a trace; null where none has one. */
export function dominantStack(shares: readonly StackShare[]): number | null {
  return shares.find(({ stack }) => stack > 0)?.stack ?? null
}
