// How the page reads its data: promises over a link, and synchronously for window.snapreport.

import { completeReplay, placesOf, type Replay } from '../allocator/replay'
import { BlobStore } from '../data/blobs'
import { DecodedBlob } from '../data/columns'
import { type DeviceColumns, readDevice, readTimes } from '../data/device'
import type { BandKeys, DeviceData, DeviceInfo, Manifest, Stacks, TileKey, TileMesh, Times } from '../data/model'
import { complete, setTimes } from '../data/on-demand'
import { readSource, type SourceLines } from '../data/source'
import { readStacks } from '../data/stacks'
import { tileName } from '../layout/grid'
import type { Check } from '../whatif/check'
import type { LeastQuestion, WhatIfAnswer, WhatIfQuestion } from '../whatif/job'
import type { Minimum } from '../whatif/minimum'
import { type Trace, traceOf } from '../whatif/trace'
import type { DataClient, OnProgress, ReplayRequest } from './data-client'
import { MAIN } from './engine'
import { type Link, openLink } from './link'
import { type RequestKind, type Requests, TileCancelled, type ToWorker } from './protocol'

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
  // The worker decodes while this thread builds the app. Not where tiles are stored: those come first then.
  const { opening, devices } = manifest
  const first = (opening && devices[opening.device]) ?? devices.find((info) => info.allocations > 0)
  if (first && first.levels.length === 0 && !manifest.job) client.device(first.index).catch(() => {}) // errors reach its callers
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

  setKeys(device: number, keys: BandKeys): void {
    this.link.send({ type: 'keys', device, keys })
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
  private readonly devicesHere = new Map<number, DeviceData>()
  private readonly devicesComing = new Map<number, Promise<DeviceData>>()
  /** Devices whose times were read or are missing. */
  private readonly timesHere = new Set<number>()
  private readonly timesComing = new Map<number, Promise<void>>()
  private readonly replaysComing = new Map<number, Promise<Replay>>()
  private readonly tilesComing = new Map<string, { id: number; mesh: Promise<TileMesh> }>()
  private readonly traces = new Map<number, { trace: Trace; check: Check | null }>()
  private stacksHere: Stacks | undefined
  private stacksComing: Promise<Stacks> | undefined
  private sourceComing: Promise<SourceLines | null> | undefined
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
    this.stacksComing ??= this.stacksHere
      ? Promise.resolve(this.stacksHere)
      : this.requests
          .ask('bytes', 'stacks')
          .reply.then((bytes) => (this.stacksHere ??= readStacks(new DecodedBlob(bytes))))
    return this.stacksComing
  }

  source(): Promise<SourceLines | null> {
    this.sourceComing ??=
      'source' in this.manifest.sections
        ? this.requests.ask('bytes', 'source').reply.then((bytes) => readSource(new DecodedBlob(bytes)))
        : Promise.resolve(null)
    return this.sourceComing
  }

  device(index: number): Promise<DeviceData> {
    const here = this.devicesHere.get(index)
    if (here) return Promise.resolve(here)
    let coming = this.devicesComing.get(index)
    if (!coming) {
      coming = this.requests.ask('device', index).reply.then(({ columns, timeUs }) => {
        this.devicesComing.delete(index)
        // A synchronous call may have read it meanwhile: there is one object per device.
        const d = this.devicesHere.get(index) ?? this.addDevice(columns)
        if (timeUs !== undefined) this.addTimes(d, timeUs)
        return d
      })
      this.devicesComing.set(index, coming)
    }
    return coming
  }

  replay(index: number): Promise<Replay> {
    let coming = this.replaysComing.get(index)
    if (!coming) {
      coming = this.device(index).then(async (data) =>
        completeReplay(data, await this.requests.ask('replay', { device: index, places: placesOf(data) }).reply),
      )
      this.replaysComing.set(index, coming)
    }
    return coming
  }

  async largestFree(index: number): Promise<Float64Array> {
    return this.requests.ask('largestFree', { device: index, places: placesOf(await this.device(index)) }).reply
  }

  whatIf(index: number, question: WhatIfQuestion, onProgress?: OnProgress): ReplayRequest<WhatIfAnswer> {
    return this.replayed(
      'whatIf',
      index,
      ({ trace, check }) => ({ trace, check, question }),
      onProgress,
      (answer) => {
        this.traces.get(index)!.check = answer.check
      },
    )
  }

  leastMemory(index: number, question: LeastQuestion, onProgress?: OnProgress): ReplayRequest<Minimum[]> {
    const argument = ({ trace, check }: { trace: Trace; check: Check | null }) => {
      if (!check?.exact) throw new Error('a trace is replayed under its own settings first')
      return { trace, check, question }
    }
    return this.replayed('leastMemory', index, argument, onProgress)
  }

  private replayed<K extends 'whatIf' | 'leastMemory'>(
    kind: K,
    index: number,
    argument: (known: { trace: Trace; check: Check | null }) => Requests[K]['argument'],
    onProgress: OnProgress = () => {},
    onReply: (reply: Requests[K]['reply']) => void = () => {},
  ): ReplayRequest<Requests[K]['reply']> {
    let cancel = (): void => {}
    let isCancelled = false
    const answer = (async () => {
      const known = await this.traceOf(index)
      if (isCancelled) throw new TileCancelled()
      const requests = (this.replays ??= this.openReplays())
      const { id, reply } = requests.ask(kind, argument(known))
      requests.onProgress(id, onProgress)
      cancel = () => requests.cancel(id)
      const value = await reply
      onReply(value)
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

  private async traceOf(index: number): Promise<{ trace: Trace; check: Check | null }> {
    let known = this.traces.get(index)
    if (!known) {
      const replay = await this.replay(index)
      const { settings } = this.manifest.snapshots[replay.data.info.snapshot] ?? {}
      known = { trace: traceOf(replay.data, replay, settings), check: null }
      this.traces.set(index, known)
    }
    return known
  }

  times(index: number): Promise<void> {
    let coming = this.timesComing.get(index)
    if (!coming) {
      coming = this.fetchTimes(index)
      this.timesComing.set(index, coming)
    }
    return coming
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
    const name = tileName(key)
    const coming = this.tilesComing.get(name)
    if (coming) return coming.mesh
    const { id, reply } = this.requests.ask('tile', key)
    const mesh = reply.finally(() => {
      if (this.tilesComing.get(name)?.id === id) this.tilesComing.delete(name)
    })
    this.tilesComing.set(name, { id, mesh })
    return mesh
  }

  cancel(key: TileKey): void {
    const name = tileName(key)
    const coming = this.tilesComing.get(name)
    if (!coming) return
    this.tilesComing.delete(name) // at once: the same tile may be requested again before the rejection is handled
    this.requests.cancel(coming.id)
  }

  setKeys(device: number, keys: BandKeys): void {
    this.requests.setKeys(device, keys)
  }

  deviceNow(index: number): DeviceData {
    let d = this.devicesHere.get(index)
    if (!d) {
      const info = this.devices[index]
      if (!info) throw new RangeError(`device ${index} of ${this.devices.length}`)
      d = this.addDevice(readDevice(info, this.sectionNow(info.section)))
      this.release(info.section)
    }
    if (!this.timesHere.has(index)) {
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
    this.devicesHere.set(info.index, d)
    return d
  }

  private addTimes(d: DeviceData, timeUs: Times | null): void {
    if (this.timesHere.has(d.info.index)) return
    this.timesHere.add(d.info.index)
    setTimes(d, timeUs)
  }

  private async fetchTimes(index: number): Promise<void> {
    const d = await this.device(index)
    if (this.timesHere.has(index)) return
    try {
      this.addTimes(d, await this.requests.ask('times', index).reply)
    } catch (error) {
      this.onTimes(index, error)
      throw error
    }
    this.onTimes(index)
  }

  stacksNow(): Stacks {
    return (this.stacksHere ??= readStacks(this.sectionNow('stacks')))
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
