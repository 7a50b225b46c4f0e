// Random traces for tests: allocations in birth order as the file's columns describe them.

import type { DeviceData, DeviceInfo } from '../src/data/model'
import { allocatedCurve } from '../src/data/device'
import { ascending } from '../src/data/on-demand'
import { axisClock } from '../src/layout/gaps'
import type { TileSource } from '../src/layout/tile'

/** mulberry32: the same numbers in every run. */
export function random(seed: number): () => number {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed)
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296
  }
}

/** Its times are doubles, as the layout of tiles takes them. */
export interface TestDevice extends DeviceData {
  timeUs: Float64Array | null
  clockUs: Float64Array | null
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
  index: 0,
  device: 0,
  kind: 'cuda',
  snapshot: 0,
  section: 'd0',
  events: 0,
  allocations: 0,
  ghosts: 0,
  freed: 0,
  start_reserved: 0,
  peak_bytes: 0,
  peak_event: -1,
  named_bytes: 0,
  time0: 1_700_000_000_000_000,
  actions: [],
  streams: [''],
  pools: [''],
  categories: ['a', 'b', 'c'],
  category_sources: ['unknown', 'recorded', 'stack', 'freed in', 'inferred'],
  contexts: [''],
  metadata: [''],
  modules: [''],
  shapes: [''],
  dtypes: [''],
  grad_fns: [''],
  stats: { top_stacks_at_peak: [] } as never,
  left_out: [],
  ooms: [],
  ...over,
})

/** Mostly young allocations go; many that live long lie above early frees, which slides everything. */
export function randomDevice(shape: TraceShape, seed: number): TestDevice {
  const r = random(seed)
  const { events: n, older } = shape
  const lives = new Lives(n)
  const live: number[] = []
  for (let i = 0; i < older; i++) live.push(lives.alloc(-1, shape.size(r)))
  for (let e = 0; e < n; e++) {
    if (live.length === 0 || r() < shape.alloc) live.push(lives.alloc(e, shape.size(r)))
    else if (r() < 0.9) {
      const at = Math.max(0, live.length - 1 - Math.floor(r() ** 4 * live.length))
      lives.free(live[at], e)
      live.splice(at, 1)
    }
  }
  return deviceOf(lives, older, shape.stacks, shape.times ?? false, r)
}

/** Steps of forward, backward and optimizer over `layers`, with short-lived temporaries between. */
export function trainingDevice(events: number, layers: number, seed: number): TestDevice {
  const r = random(seed)
  const lives = new Lives(events)
  const older = 4 * layers
  for (let i = 0; i < older; i++) lives.alloc(-1, Math.ceil(r() ** 3 * 4e7))
  const sizes = Array.from({ length: layers }, () => Math.ceil(r() ** 3 * 6e7))
  let e = 0
  const alloc = (bytes: number) => (e < events ? lives.alloc(e++, bytes) : -1)
  const free = (id: number) => void (id >= 0 && e < events && lives.free(id, e++))
  const temporaries = (bytes: number) => {
    for (let i = 0; i < 3; i++) {
      const a = alloc(Math.ceil(bytes * r()))
      const b = alloc(512)
      free(a)
      free(b)
    }
  }
  while (e < events) {
    const saved = sizes.map((bytes) => {
      temporaries(bytes)
      return [alloc(bytes), alloc(Math.ceil(bytes / 7)), alloc(1024)]
    })
    const gradients: number[] = []
    for (let layer = layers - 1; layer >= 0; layer--) {
      gradients.push(alloc(Math.ceil(sizes[layer] / 3)))
      temporaries(sizes[layer])
      saved[layer].forEach(free)
    }
    if (r() < 0.02) alloc(Math.ceil(r() * 1e6))
    gradients.forEach(free)
  }
  return deviceOf(lives, older, 5 * layers, true, r)
}

class Lives {
  readonly start: number[] = []
  readonly end: number[] = []
  readonly size: number[] = []

  constructor(readonly n: number) {}

  alloc(event: number, bytes: number): number {
    this.start.push(event + 1)
    this.end.push(this.n + 1)
    return this.size.push(bytes) - 1
  }

  free(id: number, event: number): void {
    this.end[id] = event + 1
  }
}

function deviceOf(
  { n, start, end, size }: Lives,
  older: number,
  stacks: number,
  times: boolean,
  r: () => number,
): TestDevice {
  const N = size.length
  const P = n + 1
  const starts = Int32Array.from(start)
  const ends = Int32Array.from(end)
  const sizes = Float64Array.from(size)
  const allocated = allocatedCurve(starts, ends, sizes, P)
  let peak = 0
  for (let s = 1; s < P; s++) if (allocated[s] > allocated[peak]) peak = s
  let clock = 0
  const timeUs = times
    ? Float64Array.from({ length: n }, (_, e) => (e === 0 ? 0 : (clock += Math.floor(r() ** 6 * 400))))
    : null
  const u32 = (make: (id: number) => number) => Uint32Array.from({ length: N }, (_, id) => make(id))
  return {
    info: info({ events: n, allocations: N, ghosts: older, peak_bytes: allocated[peak], peak_event: peak - 1 }),
    n,
    P,
    N,
    size: sizes,
    start: starts,
    end: ends,
    allocEvent: starts.map((s) => s - 1),
    freeEvent: ends.map((s) => (s === P ? -1 : s - 1)),
    freeRequestedEvent: ends.map((s) => (s === P ? -1 : s - 1)),
    addrHi: u32(() => 0x7f12),
    addrLo: u32((id) => id * 512),
    stream: new Uint16Array(N),
    pool: new Uint16Array(N),
    stack: u32(() => 1 + Math.floor(r() * stacks)),
    freeStack: u32(() => 0),
    category: Uint8Array.from({ length: N }, () => Math.floor(r() * 3)),
    categorySource: new Uint8Array(N),
    context: u32(() => 0),
    metadata: u32(() => 0),
    module: new Uint8Array(N),
    shape: new Uint8Array(N),
    dtype: new Uint8Array(N),
    savedBy: new Uint8Array(N),
    allocated,
    reserved: allocated.slice(),
    timeUs,
    clockUs: timeUs && Float64Array.from(ascending(timeUs)),
    other: {
      event: new Int32Array(0),
      action: new Uint8Array(0),
      size: new Float64Array(0),
      addrHi: new Uint32Array(0),
      addrLo: new Uint32Array(0),
      stack: new Uint32Array(0),
      stream: new Uint16Array(0),
      pool: new Uint16Array(0),
      free: new Float64Array(0),
    },
    segments: {
      addrHi: new Uint32Array(0),
      addrLo: new Uint32Array(0),
      size: new Float64Array(0),
      stream: new Uint16Array(0),
      pool: new Uint16Array(0),
      large: new Uint8Array(0),
      expandable: new Uint8Array(0),
      stack: new Uint32Array(0),
    },
  }
}

/** What tiles are laid out from. */
export function tileSource(d: DeviceData): TileSource {
  return { ...d.info, ...d, axisUs: d.clockUs && axisClock(d.clockUs).us }
}
