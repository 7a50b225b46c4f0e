// How the page reads its data: promises over a link, and synchronously for window.snapreport.

import { completeReplay, placesOf, type Replay } from '../allocator/replay'
import { BlobStore } from '../data/blobs'
import { DecodedBlob } from '../data/columns'
import { type DeviceColumns, readDevice, readTimes } from '../data/device'
import type { BandKeys, DeviceData, DeviceInfo, Manifest, Stacks, TileKey, TileMesh, Times } from '../data/model'
import { complete, setTimes } from '../data/on-demand'
import { readSource, type SourceLines } from '../data/source-links'
import { readStacks } from '../data/stacks'
import { tileName } from '../layout/grid'
import type { Replays } from '../whatif/job'
import { traceOf } from '../whatif/trace'
import type { DataClient, OnProgress, ReplayRequest } from './data-client'
import { MAIN } from './engine'
import { type Link, openLink } from './link'
import { type CheckedTrace, type RequestKind, type Requests, TileCancelled, type ToWorker } from './protocol'
import { remembered } from '../data/remembered'

/** The blobs of the document: their names, and the text of each. */
export interface BlobTexts {
  names(): string[]
  text(name: string): string | undefined
}

/** Opens the report: settles when its manifest is read. `script`: the page's own bundle, to make the worker from. */
export async function openClient(texts: BlobTexts, script: string): Promise<DataClient> {
  const all: Record<string, string> = {}
  for (const name of texts.names()) all[name] = texts.text(name)!
  const requests = new RequestTable(openLink(script, all, (name) => texts.text(name)))
  const manifest = await requests.ask('manifest', null).reply
  // Replays have a worker of their own, which needs none of the blobs: tiles are laid out while they run.
  const openReplays = () => new RequestTable(openLink(script, {}, () => undefined))
  const client = new LinkedClient(requests, openReplays, manifest, texts, requests.isRefused)
  // The worker decodes while this thread builds the app.
  const { opening, devices } = manifest
  const first = (opening && devices[opening.device]) ?? devices.find((info) => info.allocations > 0)
  if (first && !manifest.job) client.device(first.index).catch(() => {}) // errors reach its callers
  return client
}

interface Waiting {
  resolve(value: unknown): void
  reject(error: Error): void
}

/** Numbers the requests and resolves their replies. */
class RequestTable {
  private nextId = 1
  private readonly waiting = new Map<number, Waiting>()
  private readonly progress = new Map<number, (share: number) => void>()
  /** The viewer allows no workers. */
  isRefused = false

  constructor(private readonly link: Link) {
    link.onRefused = () => (this.isRefused = true)
    link.onMessage = (message) => {
      if (message.type === 'up') return
      if (message.type === 'progress') return this.progress.get(message.id)?.(message.share)
      this.progress.delete(message.id)
      const waiting = this.waiting.get(message.id)
      this.waiting.delete(message.id)
      if (message.type === 'reply') waiting?.resolve(message.value)
      else waiting?.reject(new Error(message.message))
    }
  }

  ask<K extends RequestKind>(
    kind: K,
    argument: Requests[K]['argument'],
  ): { id: number; reply: Promise<Requests[K]['reply']> } {
    const id = this.nextId++
    const reply = new Promise<unknown>((resolve, reject) => this.waiting.set(id, { resolve, reject }))
    this.link.send({ type: 'request', id, kind, argument } satisfies ToWorker)
    return { id, reply: reply as Promise<Requests[K]['reply']> }
  }

  onProgress(id: number, report: (share: number) => void): void {
    this.progress.set(id, report)
  }

  setKeys(keys: BandKeys, instead: number): void {
    this.link.send({ type: 'keys', keys, instead })
  }

  cancel(id: number): void {
    const waiting = this.waiting.get(id)
    if (!waiting) return
    this.waiting.delete(id)
    this.link.send({ type: 'cancel', id })
    waiting.reject(new TileCancelled())
  }
}

class LinkedClient implements DataClient {
  readonly devices: DeviceInfo[]
  onTimes: DataClient['onTimes'] = () => {}
  private readonly devicesRead = new Map<number, DeviceData>()
  private readonly devicesPending = new Map<number, Promise<DeviceData>>()
  /** Devices whose times were read or are missing. */
  private readonly timesSettled = new Set<number>()
  private readonly timesPending = new Map<number, Promise<void>>()
  private readonly replaysPending = new Map<number, Promise<Replay>>()
  private readonly tilesPending = new Map<string, { id: number; mesh: Promise<TileMesh> }>()
  private readonly traces = new Map<number, Promise<CheckedTrace>>()
  private stacksRead: Stacks | undefined
  private stacksPending: Promise<Stacks> | undefined
  private sourcePending: Promise<SourceLines | null> | undefined
  private replays: RequestTable | undefined
  private readonly local: BlobStore

  constructor(
    private readonly requests: RequestTable,
    private readonly openReplays: () => RequestTable,
    readonly manifest: Manifest,
    texts: BlobTexts,
    readonly hasNoWorker: boolean,
  ) {
    this.devices = manifest.devices
    this.local = new BlobStore((name) => texts.text(name))
  }

  stacks(): Promise<Stacks> {
    this.stacksPending ??= this.stacksRead
      ? Promise.resolve(this.stacksRead)
      : this.requests
          .ask('bytes', 'stacks')
          .reply.then((bytes) => (this.stacksRead ??= readStacks(new DecodedBlob(bytes))))
    return this.stacksPending
  }

  source(): Promise<SourceLines | null> {
    this.sourcePending ??=
      'source' in this.manifest.sections
        ? this.requests.ask('bytes', 'source').reply.then((bytes) => readSource(new DecodedBlob(bytes)))
        : Promise.resolve(null)
    return this.sourcePending
  }

  device(index: number): Promise<DeviceData> {
    const here = this.devicesRead.get(index)
    if (here) return Promise.resolve(here)
    return remembered(this.devicesPending, index, async () => {
      const { columns, timeUs } = await this.requests.ask('device', index).reply
      this.devicesPending.delete(index)
      // A synchronous call may have read it meanwhile: there is one object per device.
      const d = this.devicesRead.get(index) ?? this.addDevice(columns)
      if (timeUs !== undefined) this.addTimes(d, timeUs)
      return d
    })
  }

  replay(index: number): Promise<Replay> {
    return remembered(this.replaysPending, index, async () => {
      const data = await this.device(index)
      return completeReplay(data, await this.requests.ask('replay', { device: index, places: placesOf(data) }).reply)
    })
  }

  async largestFree(index: number): Promise<Float64Array> {
    return this.requests.ask('largestFree', { device: index, places: placesOf(await this.device(index)) }).reply
  }

  replayed<K extends keyof Replays>(
    kind: K,
    index: number,
    question: Replays[K]['question'],
    onProgress: OnProgress = () => {},
  ): ReplayRequest<Replays[K]['answer']> {
    let cancel = (): void => {}
    let isCancelled = false
    const answer = (async () => {
      const known = await this.traceOf(index)
      if (isCancelled) throw new TileCancelled()
      const requests = (this.replays ??= this.openReplays())
      const { id, reply } = requests.ask(kind, { ...known, question } as Requests[K]['argument'])
      requests.onProgress(id, onProgress)
      cancel = () => requests.cancel(id)
      const value = (await reply) as Replays[K]['answer']
      // The others need not check the trace again.
      if ('check' in value) known.check = value.check
      return value
    })()
    return {
      answer,
      cancel: () => {
        isCancelled = true
        cancel()
      },
    }
  }

  private traceOf(index: number): Promise<CheckedTrace> {
    return remembered(this.traces, index, async () => {
      const replay = await this.replay(index)
      const { settings } = this.manifest.snapshots[replay.data.info.snapshot] ?? {}
      return { trace: traceOf(replay.data, replay, settings), check: null }
    })
  }

  times(index: number): Promise<void> {
    return remembered(this.timesPending, index, () => this.fetchTimes(index))
  }

  async identity(): Promise<Uint32Array> {
    return (await this.section('diff')).u32('identity')
  }

  async section(name: string): Promise<DecodedBlob> {
    return new DecodedBlob(await this.requests.ask('bytes', name).reply)
  }

  code(blob: string): Promise<string> {
    return this.requests.ask('code', blob).reply
  }

  isIntact(blob: string): Promise<boolean> {
    return this.requests.ask('isIntact', blob).reply
  }

  tile(key: TileKey): Promise<TileMesh> {
    const name = `${tileName(key)} ${key.version ?? 0}`
    const pending = this.tilesPending.get(name)
    if (pending) return pending.mesh
    const { id, reply } = this.requests.ask('tile', key)
    const mesh = reply.finally(() => {
      if (this.tilesPending.get(name)?.id === id) this.tilesPending.delete(name)
    })
    this.tilesPending.set(name, { id, mesh })
    return mesh
  }

  cancel(key: TileKey): void {
    const name = `${tileName(key)} ${key.version ?? 0}`
    const pending = this.tilesPending.get(name)
    if (!pending) return
    this.tilesPending.delete(name) // at once: the same tile may be requested again before the rejection is handled
    this.requests.cancel(pending.id)
  }

  setKeys(keys: BandKeys, instead: number): void {
    this.requests.setKeys(keys, instead)
  }

  deviceNow(index: number): DeviceData {
    let d = this.devicesRead.get(index)
    if (!d) {
      const info = this.devices[index]
      if (!info) throw new RangeError(`device ${index} of ${this.devices.length}`)
      d = this.addDevice(readDevice(info, this.sectionNow(info.section)))
      this.release(info.section)
    }
    if (!this.timesSettled.has(index)) {
      const section = `${d.info.section}.times`
      this.addTimes(d, readTimes(d.info, section in this.manifest.sections ? this.sectionNow(section) : null))
      this.release(section)
    }
    return d
  }

  private addDevice(columns: DeviceColumns): DeviceData {
    const info = this.devices[columns.info.index]
    // A read cannot report the error; onTimes does.
    const d = complete({ ...columns, info }, () => void this.times(info.index).catch(() => {}))
    this.devicesRead.set(info.index, d)
    return d
  }

  private addTimes(d: DeviceData, timeUs: Times | null): void {
    if (this.timesSettled.has(d.info.index)) return
    this.timesSettled.add(d.info.index)
    setTimes(d, timeUs)
  }

  private async fetchTimes(index: number): Promise<void> {
    const d = await this.device(index)
    if (this.timesSettled.has(index)) return
    try {
      this.addTimes(d, await this.requests.ask('times', index).reply)
    } catch (error) {
      this.onTimes(index, error)
      throw error
    }
    this.onTimes(index)
  }

  stacksNow(): Stacks {
    return (this.stacksRead ??= readStacks(this.sectionNow('stacks')))
  }

  private sectionNow(section: string): DecodedBlob {
    const blob = this.manifest.sections[section]
    if (blob === undefined) throw new Error(`the report holds no section ${section}`)
    return this.local.now(blob)
  }

  /** Bytes of a blob of its own are not kept here once read. */
  private release(section: string): void {
    const blob = this.manifest.sections[section]
    if (blob !== undefined && blob !== MAIN) this.local.release(blob)
  }
}
