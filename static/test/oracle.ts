// The layout worked out column by column, the slow way, from its description.

import type { DeviceData, TileKey } from '../src/data/model'
import { axisClock } from '../src/layout/gaps'
import { gridOf } from '../src/layout/grid'
import { type Lifetimes, visibleIn } from '../src/layout/pick'
import { eventSamples, type Samples, timeSamples } from '../src/layout/sampling'
import { layOut } from '../src/layout/spans'

export interface OracleSpan {
  first: number
  length: number
  rep: number
  stack: number
  members: number
  bytes: number
}

export function liveIds(l: Pick<Lifetimes, 'start' | 'end' | 'size'>, s: number): number[] {
  const ids: number[] = []
  for (let id = 0; id < l.size.length; id++) if (l.start[id] <= s && s < l.end[id]) ids.push(id)
  return ids
}

function birthOffset(l: Lifetimes, id: number): number {
  if (l.start[id] > 0) return Math.max(0, l.allocated[l.start[id]] - l.size[id])
  let sum = 0
  for (let older = 0; older < id; older++) sum += l.size[older]
  return sum
}

export function oracleSpans(l: Lifetimes, samples: Int32Array, tolerance: number): OracleSpan[] {
  const live = Array.from(samples, (s) => liveIds(l, s))
  const visible = [...new Set(live.flat())].sort((a, b) => a - b)
  const groupOf = new Map<number, number>()
  let previous = ''
  let group = -1
  for (const id of visible) {
    const kind = l.size[id] >= tolerance ? `thick ${id}` : `row ${Math.floor(birthOffset(l, id) / tolerance)}`
    if (kind !== previous) group++
    previous = kind
    groupOf.set(id, group)
  }
  const runs: OracleSpan[][] = Array.from({ length: group + 1 }, () => [])
  live.forEach((ids, c) => {
    const members = new Map<number, number[]>()
    for (const id of ids) {
      const inside = members.get(groupOf.get(id)!)
      if (inside) inside.push(id)
      else members.set(groupOf.get(id)!, [id])
    }
    for (const [g, inside] of members) {
      const span = { first: c, length: 1, ...heaviest(l, inside) }
      const last = runs[g].at(-1)
      if (
        last &&
        last.first + last.length === c &&
        last.rep === span.rep &&
        last.members === span.members &&
        last.bytes === span.bytes
      )
        last.length++
      else runs[g].push(span)
    }
  })
  return runs.flat()
}

function heaviest(l: Lifetimes, ids: number[]): { rep: number; stack: number; members: number; bytes: number } {
  const held = new Map<number, number>()
  const keys = l.bandKeys?.keys ?? l.stack
  const isAhead = (key: number): number => (l.bandKeys?.matched ? key % 2 : 0)
  for (const id of ids) held.set(keys[id], (held.get(keys[id]) ?? 0) + l.size[id])
  const stack = [...held.keys()].sort((a, b) => isAhead(b) - isAhead(a) || held.get(b)! - held.get(a)! || a - b)[0]
  return {
    rep: ids.find((id) => keys[id] === stack)!,
    stack,
    members: ids.length,
    bytes: ids.reduce((sum, id) => sum + l.size[id], 0),
  }
}

/** The positions that the columns of a tile show. */
export function tileSamples(d: DeviceData, key: TileKey): Samples {
  const grid = gridOf(d, key.axis)
  if (key.axis === 'event') return eventSamples(d.allocated, grid, key.level, key.tile)
  return timeSamples(d.allocated, axisClock(d.clockUs!).us, grid, key.level, key.tile)
}

/** The page's own spans of a tile whose columns show `samples`, bottom first. */
export function spansOf(lives: Lifetimes, samples: Int32Array, tolerance: number): OracleSpan[] {
  const spans: OracleSpan[] = []
  const add = (first: number, length: number, rep: number, stack: number, members: number, bytes: number): void => {
    spans.push({ first, length, rep, stack, members, bytes })
  }
  layOut(lives, visibleIn(lives, samples), tolerance, { add, full: false }, null)
  return spans
}
