// Random traces for tests: allocations in birth order as the file's columns describe them.

import type { DeviceData, DeviceInfo } from '../src/data/model'
import { allocatedCurve, ascending } from '../src/data/device'

/** mulberry32: the same numbers in every run. */
export function random(seed: number): () => number {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed)
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296
  }
}

export interface TraceShape {
  events: number
  older: number
  stacks: number
  /** chance that an event allocates */
  alloc: number
  /** size of one allocation */
  size: (r: () => number) => number
  times?: boolean
}

export const info = (over: Partial<DeviceInfo>): DeviceInfo => ({
  index: 0, device: 0, kind: 'cuda', snapshot: 0, section: 'd0', events: 0, allocations: 0, ghosts: 0, freed: 0, startReserved: 0,
  peakBytes: 0, peakEvent: -1, time0: 1_700_000_000_000_000, levels: [], actions: [], streams: [''], pools: [''], categories: ['a', 'b', 'c'],
  contexts: [''], metadata: [''], stats: { top_stacks_at_peak: [] } as never, ...over,
})

export function randomDevice(shape: TraceShape, seed: number): DeviceData {
  const r = random(seed)
  const { events: n, older } = shape
  const start: number[] = []
  const end: number[] = []
  const size: number[] = []
  const live: number[] = []
  for (let i = 0; i < older; i++) {
    live.push(i)
    start.push(0)
    end.push(n + 1)
    size.push(shape.size(r))
  }
  for (let e = 0; e < n; e++) {
    if (live.length === 0 || r() < shape.alloc) {
      live.push(size.length)
      start.push(e + 1)
      end.push(n + 1)
      size.push(shape.size(r))
    } else if (r() < 0.9) {
      // mostly young ones go, as in a training step
      const at = Math.max(0, live.length - 1 - Math.floor(r() ** 4 * live.length))
      end[live[at]] = e + 1
      live.splice(at, 1)
    }
  }
  const N = size.length
  const P = n + 1
  const starts = Int32Array.from(start)
  const ends = Int32Array.from(end)
  const sizes = Float64Array.from(size)
  const allocated = allocatedCurve(starts, ends, sizes, P)
  let peak = 0
  for (let s = 1; s < P; s++) if (allocated[s] > allocated[peak]) peak = s
  let clock = 0
  const timeUs = shape.times ? Float64Array.from({ length: n }, (_, e) => (e === 0 ? 0 : (clock += Math.floor(r() ** 6 * 400)))) : null
  const u32 = (make: (id: number) => number) => Uint32Array.from({ length: N }, (_, id) => make(id))
  return {
    info: info({ events: n, allocations: N, ghosts: older, peakBytes: allocated[peak], peakEvent: peak - 1 }),
    n, P, N, size: sizes, start: starts, end: ends,
    allocEvent: starts.map((s) => s - 1),
    freeEvent: ends.map((s) => (s === P ? -1 : s - 1)),
    freeRequestedEvent: ends.map((s) => (s === P ? -1 : s - 1)),
    addrHi: u32(() => 0x7f12), addrLo: u32((id) => id * 512), stream: new Uint16Array(N), pool: new Uint16Array(N),
    stack: u32(() => 1 + Math.floor(r() * shape.stacks)), freeStack: u32(() => 0), category: Uint8Array.from({ length: N }, () => Math.floor(r() * 3)),
    context: u32(() => 0), metadata: u32(() => 0), allocated, reserved: allocated.slice(), timeUs, clockUs: timeUs && ascending(timeUs),
    other: { event: new Int32Array(0), action: new Uint8Array(0), size: new Float64Array(0), addrHi: new Uint32Array(0), addrLo: new Uint32Array(0), stack: new Uint32Array(0), stream: new Uint16Array(0), free: new Float64Array(0) },
    segments: { addrHi: new Uint32Array(0), addrLo: new Uint32Array(0), size: new Float64Array(0), stream: new Uint16Array(0), pool: new Uint16Array(0), large: new Uint8Array(0), expandable: new Uint8Array(0), stack: new Uint32Array(0) },
  }
}
