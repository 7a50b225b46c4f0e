// How PyTorch's caching allocators round a request and when they split a block (c10/cuda/CUDACachingAllocator.cpp,
// ATen/core/CachingHostAllocator.h). The twin of snapreport/timeline/rounding.py.

import { INTERVALS, MIN_BLOCK } from './facts'

export interface Rules {
  /** Pinned memory: powers of two, and a block is a segment. */
  host: boolean
  /** Expandable segments were switched on: whatever remains is split off. */
  expandable: boolean
  /** Blocks are not split for requests of so many bytes or more. */
  maxSplit: number
  /** Steps into which a power of two is divided, for requests below 2 MiB, from 2, 4, 8 … MiB on; 0: no such rounding. */
  divisions: readonly number[]
}

/** The rules under a snapshot's allocator settings; what is absent or no number has its default. */
export function rulesOf(settings: Record<string, unknown> | undefined, kind: string): Rules {
  const given = settings?.roundup_power2_divisions
  const table = typeof given === 'object' && given !== null ? (given as Record<string, unknown>) : {}
  const split = settings?.max_split_size
  return {
    host: kind === 'host',
    expandable: settings?.expandable_segments === true,
    maxSplit: typeof split === 'number' && split > 0 && split < 2 ** 62 ? split : Infinity,
    divisions: Array.from({ length: INTERVALS }, (_, n) => {
      const count = table[String(2 ** n)]
      return typeof count === 'number' && count > 0 && count <= 2 ** 20 ? Math.floor(count) : 0
    }),
  }
}

/** Bytes of a block for a request, before any remainder that is not split off. */
export function roundedSize(rules: Rules, size: number): number {
  const power = size > 0 ? Math.floor(Math.log2(size)) : 0
  if (rules.host) return size <= 1 ? 1 : 2 ** (2 ** power === size ? power : power + 1)
  const divisions = rules.divisions[Math.min(INTERVALS - 1, Math.max(0, power - 20))]
  if (divisions > 1 && size > MIN_BLOCK * divisions) {
    const step = 2 ** Math.max(0, power - Math.floor(Math.log2(divisions)))
    return Math.ceil(size / step) * step
  }
  return Math.max(1, Math.ceil(size / MIN_BLOCK)) * MIN_BLOCK
}
