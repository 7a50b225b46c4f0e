// window.snapreport: how tests, scripts and other tools drive a report. `ready` and `setView` are promises, the rest
// answers at once and exactly, from the columns, never from what happens to be drawn.

import type { Controller, Drawn, ViewPatch, ViewState } from './controller'
import { type AllocationRecord, describeAllocation } from './allocation-record'
import { type DataClient, maskOf, matchesOf } from './worker/data-client'
import type { FrameJson, StatsJson } from './data/model'
import { formatBytes, formatCount, formatShare } from './layout/format'
import { pick as pickAt } from './layout/pick'
import { parse } from './search/grammar'
import { peakWithout } from './data/held-memory'
import type { WhatIfAnswer } from './whatif/job'
import type { Minimum } from './whatif/minimum'

export interface PublicApi {
  /** Settled once the first view is painted from real data, and the code of the others has run. */
  ready: Promise<void>
  devices(): number[]
  stats(device: number): StatsJson
  setView(patch: ViewPatch): Promise<void>
  getView(): ViewState
  /** The allocation that holds `byte` of the stack after `event` (-1: before the first); null above the stack. */
  pick(device: number, event: number, byte: number): AllocationRecord | null
  allocation(device: number, id: number): AllocationRecord | null
  frames(device: number, stack: number): FrameJson[]
  /** The allocations that match, in birth order. Rejects with QueryError, which says where a query is bad. */
  search(device: number, query: string): Promise<{ count: number; bytes: number; ids: number[] }>
  /** A device's trace replayed as recorded and under settings in PYTORCH_CUDA_ALLOC_CONF's syntax, without what a query matches. */
  whatIf(device: number, question?: WhatIfOptions): Promise<WhatIfAnswer>
  /** The minimum memory on which a trace runs, for a trace that `whatIf` found to replay exactly. */
  leastMemory(device: number, question?: { settings?: string; without?: string }): Promise<Minimum[]>
  drawn(): Drawn
  testContextLoss(): void
  /** For the tests, which compare what a view shows, and formatted numbers, with an oracle. */
  debug: {
    view(): unknown
    format: { bytes(size: number): string; count(n: number): string; share(part: number, whole: number): string }
  }
}

/** `memory`: bytes for the allocator. */
export interface WhatIfOptions {
  settings?: string[]
  without?: string
  memory?: number
  start?: 'fresh' | 'recorded'
}

interface Parts {
  client: DataClient
  controller: Controller
}

/** Installs the object at once; `opening` settles once the report can answer. */
export function installApi(target: { snapreport?: PublicApi }, opening: Promise<Parts>): PublicApi {
  let parts: Parts | undefined
  const now = (): Parts => {
    if (!parts) throw new Error('the report is still opening: await snapreport.ready first')
    return parts
  }
  const opened = opening.then((got) => (parts = got))
  const api: PublicApi = {
    ready: opened.then(({ controller }) => controller.ready),
    devices: () => deviceNumbers(now().client),
    stats: (device) => stats(now().client, indexOf(now().client, device)),
    async setView(patch) {
      const { client, controller } = await opened
      await controller.setView(checked(client, patch))
    },
    getView() {
      const { client, controller } = now()
      const view = controller.getView()
      const numbers = deviceNumbers(client)
      const { second } = view
      return { ...view, device: numbers[view.device], second: second && { ...second, device: numbers[second.device] } }
    },
    pick(device, event, byte) {
      const { client } = now()
      const d = client.deviceNow(indexOf(client, device))
      const s = Math.floor(event) + 1
      if (!(s >= 0 && s < d.P)) throw new RangeError(`event ${event} is outside -1 … ${d.n - 1}`)
      const id = pickAt(d, s, byte)
      return id < 0 ? null : describeAllocation(d, id)
    },
    allocation(device, id) {
      const { client } = now()
      return describeAllocation(client.deviceNow(indexOf(client, device)), id)
    },
    frames(device, stack) {
      const { client } = now()
      indexOf(client, device)
      return frameRecords(client, stack)
    },
    async search(device, query) {
      const { client } = await opened
      const index = indexOf(client, device)
      if (typeof query !== 'string') throw new TypeError('a query is a text')
      const { mask, count, bytes } = await matchesOf(client, index, query)
      const ids: number[] = []
      for (let id = 0; id < mask.length; id++) if (mask[id]) ids.push(id)
      return { count, bytes, ids }
    },
    async whatIf(device, { settings = [], without, memory, start = 'fresh' } = {}) {
      const { client } = await opened
      const index = indexOf(client, device)
      const mask = without ? await maskOf(client, index, without) : null
      const question = { settings, without: mask, memory: memory ?? null, fromRecorded: start === 'recorded' }
      return client.replayed('whatIf', index, question).answer
    },
    async leastMemory(device, { settings = '', without } = {}) {
      const { client } = await opened
      const index = indexOf(client, device)
      const mask = without ? await maskOf(client, index, without) : null
      const peakAllocated = mask ? peakWithout(await client.device(index), mask) : client.devices[index].peak_bytes
      return client.replayed('leastMemory', index, { settings, without: mask, peakAllocated }).answer
    },
    drawn: () => now().controller.drawn(),
    testContextLoss: () => now().controller.testContextLoss(),
    debug: {
      view: () => now().controller.debugView(),
      format: { bytes: formatBytes, count: formatCount, share: formatShare },
    },
  }
  target.snapreport = api
  return api
}

/** How callers name devices: by the recorder's number, or by the index when several files share numbers. */
function deviceNumbers(client: DataClient): number[] {
  const numbers = client.devices.map((info) => info.device)
  return new Set(numbers).size === numbers.length ? numbers : client.devices.map((info) => info.index)
}

function indexOf(client: DataClient, device: number): number {
  const numbers = deviceNumbers(client)
  const index = numbers.indexOf(device)
  if (index < 0) throw new RangeError(`there is no device ${device}; there are ${numbers.join(', ') || 'none'}`)
  return index
}

function stats(client: DataClient, index: number): StatsJson {
  const copy = structuredClone(client.devices[index].stats)
  for (const entry of copy.top_stacks_at_peak) entry.frames = frameRecords(client, entry.stack)
  return copy
}

function frameRecords(client: DataClient, stack: number): FrameJson[] {
  return client
    .stacksNow()
    .frames(stack)
    .map(({ filename, line, name }) => ({ filename, line, name }))
}

const KEYS = new Set([
  'device',
  'view',
  'x',
  'y',
  'axis',
  'select',
  'query',
  'at',
  'colour',
  'options',
  'oom',
  'stack',
  'second',
])

/** The patch with the device as an index. Throws on malformed values, so that the app need not check them. */
function checked(client: DataClient, patch: ViewPatch): ViewPatch {
  if (typeof patch !== 'object' || patch === null) throw new TypeError('setView takes an object')
  for (const key of Object.keys(patch)) if (!KEYS.has(key)) throw new TypeError(`setView knows no "${key}"`)
  const out = { ...patch }
  if (patch.device !== undefined) out.device = indexOf(client, patch.device)
  if (patch.second?.device !== undefined) out.second = { ...patch.second, device: indexOf(client, patch.second.device) }
  if (out.second?.x) out.second = { ...out.second, x: range('x', out.second.x) }
  for (const key of ['x', 'y'] as const) if (patch[key] !== undefined) out[key] = range(key, patch[key])
  if (patch.axis !== undefined && patch.axis !== 'event' && patch.axis !== 'time')
    throw new TypeError(`axis is "event" or "time", not "${patch.axis}"`)
  if (patch.query !== undefined) {
    if (typeof patch.query !== 'string') throw new TypeError('a query is a text')
    parse(patch.query)
  }
  if (patch.at !== undefined && patch.at !== null && !(Number.isInteger(patch.at) && patch.at >= -1)) {
    throw new RangeError(
      `at is an event, -1 for before the first, or null for the peak, not ${JSON.stringify(patch.at)}`,
    )
  }
  for (const key of ['oom', 'stack'] as const) {
    const value = patch[key]
    if (value !== undefined && value !== null && !(Number.isInteger(value) && value >= 0))
      throw new RangeError(`${key} is a number from 0, or null, not ${JSON.stringify(value)}`)
  }
  if (typeof patch.select === 'number' && patch.select < 0) out.select = null
  else if (typeof patch.select === 'number') {
    const info = client.devices[out.device ?? -1]
    if (!Number.isInteger(patch.select) || (info && patch.select >= info.allocations))
      throw new RangeError(`there is no allocation ${patch.select}`)
  }
  return out
}

/** Two ascending numbers; one event or byte when they are the same. */
function range(key: string, value: unknown): [number, number] {
  const [a, b] = Array.isArray(value) ? value : []
  if (!Number.isFinite(a) || !Number.isFinite(b) || a > b)
    throw new RangeError(`${key} is two ascending numbers, not ${JSON.stringify(value)}`)
  return a === b ? [a, a + 1] : [a, b]
}
