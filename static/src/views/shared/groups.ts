// Segments in groups: those of one pool, private or not, and one stream.

import type { DeviceInfo } from '../../data/model'
import type { SegmentHistory } from '../../allocator/segment-history'
import { remembered } from '../../data/remembered'

/** Groups of all segments there ever were, so that a group keeps its place and colour at every moment. */
export interface Groups {
  count: number
  /** Group of each row of the history. */
  of: Uint16Array
  names: string[]
  large: boolean[]
  /** The group of allocations that lie in no known segment, after all others. */
  unknown: number
}

export const DEFAULT_POOL = '(0, 0)'

export function groupsOf(info: DeviceInfo, segments: SegmentHistory): Groups {
  const keys = new Map<string, { rows: number[]; pool: string; stream: string; large: boolean }>()
  for (let row = 0; row < segments.count; row++) {
    const pool = info.pools[segments.pool[row]] ?? ''
    const stream = info.streams[segments.stream[row]] ?? ''
    const large = segments.large[row] === 1
    const key = JSON.stringify([pool === DEFAULT_POOL ? '' : pool, stream, large])
    remembered(keys, key, () => ({ rows: [] as number[], pool, stream, large })).rows.push(row)
  }
  const isPrivate = (pool: string): boolean => pool !== '' && pool !== DEFAULT_POOL
  const sorted = [...keys.values()].sort(
    (a, b) =>
      Number(isPrivate(a.pool)) - Number(isPrivate(b.pool)) ||
      compare(a.pool, b.pool) ||
      compareNumbers(a.stream, b.stream) ||
      Number(b.large) - Number(a.large),
  )
  const of = new Uint16Array(segments.count)
  sorted.forEach(({ rows }, group) => {
    for (const row of rows) of[row] = group
  })
  const host = info.kind === 'host'
  return {
    count: sorted.length,
    of,
    names: [
      ...sorted.map(({ pool, stream, large }) =>
        [
          host ? 'Pinned memory' : large ? 'Large blocks' : 'Small blocks',
          isPrivate(pool) && `private pool ${pool}`,
          stream !== '' && !host && `stream ${stream}`,
        ]
          .filter(Boolean)
          .join(' · '),
      ),
      'In no known segment',
    ],
    large: [...sorted.map(({ large }) => large), true],
    unknown: sorted.length,
  }
}

function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0
}

function compareNumbers(a: string, b: string): number {
  return Number(a) - Number(b) || compare(a, b)
}
