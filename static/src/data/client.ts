// How the page gets at its data: promises over a link, and the same at once for window.snapreport.

import { tileName } from '../layout/grid'
import { BlobStore } from './blobs'
import { DecodedBlob } from './columns'
import { ascending, readDevice } from './device'
import { type Link, openLink } from './link'
import type { DataClient, DeviceData, DeviceInfo, Manifest, Stacks, TileKey, TileMesh } from './model'
import { type RequestKind, type Requests, TileCancelled, type ToWorker } from './protocol'
import { readStacks } from './stacks'

/** Where the blobs lie: their names, and the text of each. */
export interface BlobTexts {
  names(): string[]
  text(name: string): string | undefined
}

/** Open the report: settles when its manifest is read. `script`: the page's own bundle, to make the worker from. */
export async function openClient(texts: BlobTexts, script: string): Promise<DataClient> {
  const all: Record<string, string> = {}
  for (const name of texts.names()) all[name] = texts.text(name)!
  const requests = new RequestTable(openLink(script, all, (name) => texts.text(name)))
  const manifest = await requests.ask('manifest', null).reply
  const client = new LinkedClient(requests, manifest, texts)
  // The worker decodes while this thread builds the app. Not where tiles are stored: those come first then.
  const first = manifest.devices.find((info) => info.allocations > 0)
  if (first && first.levels.length === 0) client.device(first.index).catch(() => {}) // whoever asks for it is told
  return client
}

interface Waiting {
  resolve(value: unknown): void
  reject(error: Error): void
}

/** Numbers the requests and hands the replies out. */
class RequestTable {
  private nextId = 1
  private readonly waiting = new Map<number, Waiting>()

  constructor(private readonly link: Link) {
    link.onMessage = (message) => {
      if (message.type === 'up') return
      const waiting = this.waiting.get(message.id)
      this.waiting.delete(message.id)
      if (message.type === 'reply') waiting?.resolve(message.value)
      else waiting?.reject(new Error(message.message))
    }
  }

  ask<K extends RequestKind>(kind: K, argument: Requests[K]['argument']): { id: number; reply: Promise<Requests[K]['reply']> } {
    const id = this.nextId++
    const reply = new Promise<unknown>((resolve, reject) => this.waiting.set(id, { resolve, reject }))
    this.link.send({ type: 'request', id, kind, argument } satisfies ToWorker)
    return { id, reply: reply as Promise<Requests[K]['reply']> }
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
  private readonly devicesHere = new Map<number, DeviceData>()
  private readonly devicesComing = new Map<number, Promise<DeviceData>>()
  private readonly tilesComing = new Map<string, { id: number; mesh: Promise<TileMesh> }>()
  private stacksHere: Stacks | undefined
  private stacksComing: Promise<Stacks> | undefined
  private readonly local: BlobStore

  constructor(
    private readonly requests: RequestTable,
    readonly manifest: Manifest,
    texts: BlobTexts,
  ) {
    this.devices = manifest.devices
    this.local = new BlobStore((name) => texts.text(name))
  }

  stacks(): Promise<Stacks> {
    this.stacksComing ??= this.stacksHere
      ? Promise.resolve(this.stacksHere)
      : this.requests.ask('bytes', 'stacks').reply.then((bytes) => (this.stacksHere ??= readStacks(new DecodedBlob(bytes))))
    return this.stacksComing
  }

  device(index: number): Promise<DeviceData> {
    const here = this.devicesHere.get(index)
    if (here) return Promise.resolve(here)
    let coming = this.devicesComing.get(index)
    if (!coming) {
      coming = this.requests.ask('device', index).reply.then((d) => {
        // Someone may have needed it at once meanwhile: there is one object per device.
        const had = this.devicesHere.get(index)
        if (had) return had
        d.info = this.devices[index]
        d.clockUs = d.timeUs && ascending(d.timeUs)
        this.devicesHere.set(index, d)
        this.devicesComing.delete(index)
        return d
      })
      this.devicesComing.set(index, coming)
    }
    return coming
  }

  tile(key: TileKey): Promise<TileMesh> {
    const name = tileName(key)
    const coming = this.tilesComing.get(name)
    if (coming) return coming.mesh
    const { id, reply } = this.requests.ask('tile', key)
    const mesh = reply.finally(() => this.tilesComing.delete(name))
    this.tilesComing.set(name, { id, mesh })
    return mesh
  }

  cancel(key: TileKey): void {
    const coming = this.tilesComing.get(tileName(key))
    if (coming) this.requests.cancel(coming.id)
  }

  deviceNow(index: number): DeviceData {
    let d = this.devicesHere.get(index)
    if (!d) {
      const info = this.devices[index]
      if (!info) throw new RangeError(`device ${index} of ${this.devices.length}`)
      const times = this.manifest.sections[`${info.section}.times`]
      d = readDevice(info, this.sectionNow(info.section), times === undefined ? null : this.local.now(times))
      this.devicesHere.set(index, d)
    }
    return d
  }

  stacksNow(): Stacks {
    return (this.stacksHere ??= readStacks(this.sectionNow('stacks')))
  }

  private sectionNow(section: string): DecodedBlob {
    const blob = this.manifest.sections[section]
    if (blob === undefined) throw new Error(`the report holds no section ${section}`)
    return this.local.now(blob)
  }
}
