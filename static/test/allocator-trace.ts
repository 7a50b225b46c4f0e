// A caching allocator small enough to be seen to be right: segments are lists of blocks, searched from end to end. It
// makes random traces as a device's columns and remembers its own blocks after every event.

import { completeReplay, type Replay, replay } from '../src/allocator/replay'
import type { DeviceData } from '../src/data/model'
import { allocatedCurve } from '../src/data/device'
import { info, random } from './trace'

const MIB = 2 ** 20
export const BASE = 0x7f12_0000_0000

export interface TrueBlock {
  address: number
  size: number
  /** -1: free */
  id: number
}

export interface TrueSegment {
  address: number
  size: number
  small: boolean
  expandable: boolean
  blocks: TrueBlock[]
}

export interface TraceWish {
  events: number
  /** Events before the recorder started: what lives then is a ghost, or freed in the trace. */
  before: number
  expandable: boolean
  maxSplit?: number
  keepStates: boolean
}

export interface MadeTrace {
  data: DeviceData
  settings: Record<string, unknown>
  /** Segments after each position, deep copies; only with keepStates. */
  states: TrueSegment[][]
}

interface Lifetime {
  address: number
  size: number
  start: number
  end: number
}

export function allocatorTrace(wish: TraceWish, seed: number): MadeTrace {
  const r = random(seed)
  const segments: TrueSegment[] = []
  const lives: Lifetime[] = []
  const live: number[] = []
  const others: { event: number; action: number; address: number; size: number }[] = []
  const states: TrueSegment[][] = wish.keepStates ? [[]] : []
  const { maxSplit = Infinity } = wish
  let clock = -wish.before
  let nextAddress = BASE
  const tick = (): void => {
    if (clock === -1 && wish.keepStates) states[0] = structuredClone(segments)
    if (clock >= 0 && wish.keepStates) states[clock + 1] = structuredClone(segments)
    clock++
  }
  const other = (action: number, address: number, size: number): void => {
    if (clock >= 0) others.push({ event: clock, action, address, size })
    tick()
  }
  const merge = (blocks: TrueBlock[]): void => {
    for (let i = blocks.length - 1; i > 0; i--) {
      if (blocks[i].id >= 0 || blocks[i - 1].id >= 0) continue
      blocks[i - 1].size += blocks[i].size
      blocks.splice(i, 1)
    }
  }
  const bestFit = (size: number, small: boolean): { segment: TrueSegment; block: TrueBlock } | null => {
    let found: { segment: TrueSegment; block: TrueBlock } | null = null
    for (const segment of segments) {
      if (segment.small !== small) continue
      for (const block of segment.blocks) {
        if (block.id >= 0 || block.size < size || (found && found.block.size <= block.size)) continue
        if (size < maxSplit ? block.size >= maxSplit : block.size >= size + 20 * MIB) continue
        found = { segment, block }
      }
    }
    return found
  }
  const grow = (size: number, small: boolean): { segment: TrueSegment; block: TrueBlock } => {
    const length = small
      ? 2 * MIB
      : wish.expandable
        ? Math.ceil(size / (20 * MIB)) * 20 * MIB
        : size < 10 * MIB
          ? 20 * MIB
          : Math.ceil(size / (2 * MIB)) * 2 * MIB
    const last = segments.find(
      (segment) =>
        segment.expandable &&
        segment.small === small &&
        !segments.some(
          (next) => next !== segment && next.address >= segment.address && next.address < segment.address + 2 ** 36,
        ),
    )
    if (wish.expandable && last) {
      const block = { address: last.address + last.size, size: length, id: -1 }
      last.blocks.push(block)
      last.size += length
      merge(last.blocks)
      other(2, block.address, length)
      return { segment: last, block: last.blocks[last.blocks.length - 1] }
    }
    const segment: TrueSegment = {
      address: nextAddress,
      size: length,
      small,
      expandable: wish.expandable,
      blocks: [{ address: nextAddress, size: length, id: -1 }],
    }
    nextAddress += wish.expandable ? 2 ** 37 : r() < 0.5 ? length : length + 4 * MIB
    segments.push(segment)
    other(wish.expandable ? 2 : 0, segment.address, length)
    return { segment, block: segment.blocks[0] }
  }
  const alloc = (asked: number): void => {
    const size = Math.max(1, Math.ceil(asked / 512)) * 512
    const small = size <= MIB
    const { segment, block } = bestFit(size, small) ?? grow(size, small)
    if (clock >= wish.events) return
    const left = block.size - size
    if (small || wish.expandable ? left >= 512 : left > MIB && size < maxSplit) {
      segment.blocks.splice(segment.blocks.indexOf(block) + 1, 0, { address: block.address + size, size: left, id: -1 })
      block.size = size
    }
    block.id = lives.length
    lives.push({ address: block.address, size: asked, start: Math.max(0, clock + 1), end: Infinity })
    live.push(block.id)
    tick()
  }
  const free = (at: number): void => {
    const id = live[at]
    live.splice(at, 1)
    const segment = segments.find(({ blocks }) => blocks.some((block) => block.id === id))!
    segment.blocks.find((block) => block.id === id)!.id = -1
    merge(segment.blocks)
    lives[id].end = clock + 1
    tick()
  }
  const giveBack = (): void => {
    for (let i = segments.length - 1; i >= 0 && clock < wish.events; i--) {
      const { address, size, blocks, expandable } = segments[i]
      if (blocks.length > 1 || blocks[0].id >= 0) continue
      segments.splice(i, 1)
      other(expandable ? 3 : 1, address, size)
    }
  }
  while (clock < wish.events) {
    const choice = r()
    if (choice < 0.004) giveBack()
    if (clock >= wish.events) break
    if (live.length === 0 || choice < 0.53)
      alloc(r() < 0.5 ? Math.ceil(r() * 1.2 * MIB) : Math.ceil(r() ** 3 * 60 * MIB))
    else free(Math.floor(r() * live.length))
  }
  return {
    ...columnsOf(lives, others, segments, wish, states),
    settings: { expandable_segments: wish.expandable, max_split_size: maxSplit === Infinity ? -1 : maxSplit },
  }
}

function columnsOf(
  lives: Lifetime[],
  others: { event: number; action: number; address: number; size: number }[],
  segments: TrueSegment[],
  wish: TraceWish,
  states: TrueSegment[][],
): { data: DeviceData; states: TrueSegment[][] } {
  const n = wish.events
  const P = n + 1
  // What was over before the recorder started is not known; ids are renumbered in the states as well.
  const known = lives.map((life, id) => ({ ...life, id })).filter(({ end }) => end > 0)
  const renumber = new Map(known.map(({ id }, index) => [id, index]))
  for (const state of states)
    for (const segment of state)
      for (const block of segment.blocks) block.id = block.id < 0 ? -1 : renumber.get(block.id)!
  const N = known.length
  const start = Int32Array.from(known, (life) => life.start)
  const end = Int32Array.from(known, (life) => Math.min(P, life.end))
  const size = Float64Array.from(known, (life) => life.size)
  const hi = (address: number): number => Math.floor(address / 2 ** 32)
  const lo = (address: number): number => address % 2 ** 32
  const zeros = new Uint32Array(N)
  const final = segments
  let reservedNow = final.reduce((sum, segment) => sum + segment.size, 0)
  const reserved = new Float64Array(P)
  const step = new Float64Array(P + 1)
  for (const { event, action, size: bytes } of others) step[event + 1] += action % 2 === 0 ? bytes : -bytes
  for (let s = P - 1; s >= 0; s--) {
    reserved[s] = reservedNow
    reservedNow -= step[s]
  }
  const small16 = (count: number): Uint16Array => new Uint16Array(count)
  const data = {
    info: info({
      events: n,
      allocations: N,
      actions: ['segment_alloc', 'segment_free', 'segment_map', 'segment_unmap'],
      streams: ['', '0'],
      pools: ['', '(0, 0)'],
    }),
    n,
    P,
    N,
    size,
    start,
    end,
    allocEvent: start.map((s) => s - 1),
    freeRequestedEvent: end.map((s) => (s === P ? -1 : s - 1)),
    freeEvent: end.map((s) => (s === P ? -1 : s - 1)),
    addrHi: Uint32Array.from(known, (life) => hi(life.address)),
    addrLo: Uint32Array.from(known, (life) => lo(life.address)),
    stream: small16(N),
    pool: small16(N),
    stack: zeros,
    freeStack: zeros,
    category: new Uint8Array(N),
    categorySource: new Uint8Array(N),
    context: zeros,
    metadata: zeros,
    allocated: allocatedCurve(start, end, size, P),
    reserved,
    timeUs: null,
    clockUs: null,
    other: {
      event: Int32Array.from(others, (row) => row.event),
      action: Uint8Array.from(others, (row) => row.action),
      size: Float64Array.from(others, (row) => row.size),
      addrHi: Uint32Array.from(others, (row) => hi(row.address)),
      addrLo: Uint32Array.from(others, (row) => lo(row.address)),
      stack: new Uint32Array(others.length),
      stream: small16(others.length),
      free: new Float64Array(others.length).fill(NaN),
    },
    segments: {
      addrHi: Uint32Array.from(final, (segment) => hi(segment.address)),
      addrLo: Uint32Array.from(final, (segment) => lo(segment.address)),
      size: Float64Array.from(final, (segment) => segment.size),
      stream: small16(final.length),
      pool: small16(final.length),
      large: Uint8Array.from(final, (segment) => Number(!segment.small)),
      expandable: Uint8Array.from(final, (segment) => Number(segment.expandable)),
      stack: new Uint32Array(final.length),
    },
  } as DeviceData
  return { data, states }
}

/** What the worker and the page compute together. */
export function replayOf(data: DeviceData, settings: Record<string, unknown> | undefined): Replay {
  return completeReplay(data, replay(data, data.info, settings))
}
