// The weight of each stack: the bytes, byte-events or allocations of a measure, summed over its allocations.

import type { DeviceData } from '../data/model'

export const MEASURES = [
  'live',
  'events',
  'seconds',
  'count',
  'allocated',
  'allocations',
  'growth',
  'reserved',
  'diff',
] as const
/**
 * live: bytes live at the moment · events, seconds: those bytes times the lifetime of their allocation within the trace ·
 * count: allocations live at the moment · allocated, allocations: bytes and number of all allocations made in the trace ·
 * growth: bytes live at the moment less those live at another ·
 * reserved: bytes of segments at the moment, by the stack that made PyTorch ask the driver for them · diff: bytes live at a moment less those live in another
 * snapshot at the corresponding moment.
 */
export type Measure = (typeof MEASURES)[number]

/** Columns by stack; sums over stacks are exact while they are whole numbers under 2^53. */
export interface Weights {
  measure: Measure
  /** The weight of a stack, never negative; of growth: the bytes gained. */
  value: Float64Array
  /** Bytes that a stack lost, not negative; only of growth. A stack gains or loses, never both. */
  loss: Float64Array | null
  /** Allocations behind it; of growth: how many more there are (or fewer, negative). */
  count: Float64Array
  /** The part of value plus loss that the query matches; null without a query. */
  matched: Float64Array | null
  /** The exact signed sum over the matching allocations; null without a query. */
  matchedTotal: number | null
}

/**
 * position: the moment. since: the position that growth counts from. mask: 1 for each allocation that matches the query.
 * O(allocations). Throws on seconds of a trace without times.
 */
export function weigh(
  data: DeviceData,
  stacks: number,
  measure: Measure,
  position: number,
  since: number,
  mask: Uint8Array | null,
): Weights {
  const { N, start, end, stack, size } = data
  const value = new Float64Array(stacks)
  const count = new Float64Array(stacks)
  const matched = mask && new Float64Array(stacks)
  const grows = measure === 'growth'
  const whole = measure === 'allocated' || measure === 'allocations'
  const amount = amountOf(data, measure)
  let matchedTotal = 0
  for (let id = 0; id < N; id++) {
    let times = 0
    if (whole) times = start[id] > 0 ? 1 : 0
    else {
      if (start[id] <= position && end[id] > position) times = 1
      if (grows && start[id] <= since && end[id] > since) times--
    }
    if (times === 0) continue
    const bytes = times * (amount ? amount(id) : size[id])
    const s = stack[id]
    value[s] += bytes
    count[s] += times
    if (matched && mask[id]) {
      matched[s] += bytes
      matchedTotal += bytes
    }
  }
  const loss = grows ? new Float64Array(stacks) : null
  if (loss) splitSigns(value, loss, matched)
  return { measure, value, loss, count, matched, matchedTotal: mask && matchedTotal }
}

/** The other side of a comparison: its allocations, and the stack that each of its stacks is counted under. */
export interface Other {
  before: Pick<DeviceData, 'N' | 'start' | 'end' | 'stack' | 'size'>
  beforePosition: number
  afterPosition: number
  home: Int32Array
}

/** Bytes in one snapshot less bytes in another. mask: of the allocations after; those before count as matching with their stack. */
export function weighDifference(data: DeviceData, stacks: number, other: Other, mask: Uint8Array | null): Weights {
  const value = new Float64Array(stacks)
  const count = new Float64Array(stacks)
  const matched = mask && new Float64Array(stacks)
  const add = ({ N, start, end, stack, size }: Other['before'], position: number, sign: number): void => {
    for (let id = 0; id < N; id++) {
      if (start[id] > position || end[id] <= position) continue
      const s = other.home[stack[id]]
      value[s] += sign * size[id]
      count[s] += sign
    }
  }
  add(data, other.afterPosition, 1)
  add(other.before, other.beforePosition, -1)
  let matchedTotal = 0
  if (matched) {
    const found = new Uint8Array(stacks)
    for (let id = 0; id < data.N; id++) if (mask[id]) found[other.home[data.stack[id]]] = 1
    for (let s = 0; s < stacks; s++) {
      if (!found[s]) continue
      matched[s] = value[s]
      matchedTotal += value[s]
    }
  }
  const loss = new Float64Array(stacks)
  splitSigns(value, loss, matched)
  return { measure: 'diff', value, loss, count, matched, matchedTotal: mask && matchedTotal }
}

/** The weight of one allocation; null: its size. */
function amountOf(data: DeviceData, measure: Measure): ((id: number) => number) | null {
  const { start, end, size, n } = data
  if (measure === 'count' || measure === 'allocations') return () => 1
  // From its alloc to its free, or as far as the trace reaches.
  if (measure === 'events') return (id) => size[id] * (end[id] - Math.max(1, start[id]))
  if (measure !== 'seconds') return null
  const clock = data.clockUs
  if (!clock) throw new RangeError('byte-seconds need a trace with times')
  if (n === 0) return () => 0
  return (id) => size[id] * ((clock[Math.min(n, end[id]) - 1] - clock[Math.max(0, start[id] - 1)]) / 1e6)
}

/** Signed differences as gains and losses; the matching part is at most what its stack gained or lost. */
function splitSigns(value: Float64Array, loss: Float64Array, matched: Float64Array | null): void {
  for (let s = 0; s < value.length; s++) {
    const change = value[s]
    if (matched) matched[s] = Math.min(Math.abs(matched[s]), Math.abs(change))
    value[s] = Math.max(0, change)
    loss[s] = Math.max(0, -change)
  }
}
