// Everything that is computed from the blobs: manifest, devices, stacks, tiles. Runs in the worker, and on the page's own
// thread where no worker can be made.

import { largestFree } from '../allocator/largest-free'
import { type Lives, type Replayed, replay } from '../allocator/replay'
import { axisClock } from '../layout/gaps'
import { layOutTile, type TileSource } from '../layout/tile'
import type { BlobStore } from '../data/blobs'
import type { DecodedBlob } from '../data/columns'
import { type DeviceColumns, readDevice, readTimes } from '../data/device'
import { readManifest } from '../data/manifest'
import type { BandKeys, DeviceInfo, Manifest, TileKey, TileMesh, Times } from '../data/model'
import { ascending } from '../data/on-demand'
import type { Requests } from './protocol'

export const MAIN = 'main'

/** A device of up to so many events is read with its times at once: 1 MB of them, in a few ms. */
const EVENTS_WITH_TIMES = 1 << 18

export class Engine {
  private loaded: Manifest | undefined
  private readonly sources = new Map<number, TileSource>()
  /** Columns that were read for a tile before the page asked for them: a second time would take 1 s of 940,000 allocations. */
  private readonly reading = new Map<number, Promise<DeviceColumns>>()
  /** As recorded; null: the snapshot has none. */
  private readonly timesRead = new Map<number, Times | null>()
  private readonly keys = new Map<number, BandKeys>()

  constructor(private readonly blobs: BlobStore) {}

  async manifest(): Promise<Manifest> {
    this.loaded ??= readManifest(await this.blobs.get(MAIN))
    return this.loaded
  }

  /** A section's decoded blob; null when the report has no such section. */
  async section(name: string): Promise<DecodedBlob | null> {
    const blob = (await this.manifest()).sections[name]
    return blob === undefined ? null : this.blobs.get(blob)
  }

  /** Bytes of a section's blob. The caller must not transfer them: other sections may be in the same blob. */
  async bytes(section: string): Promise<Uint8Array> {
    const blob = await this.section(section)
    if (!blob) throw new Error(`the report holds no section ${section}`)
    return blob.bytes
  }

  /**
   * Decodes the columns of a device, and its times if they are few. Tiles are laid out from some of these arrays (see KEPT
   * in protocol.ts): the caller may transfer only the others.
   */
  async device(index: number): Promise<Requests['device']['reply']> {
    const info = await this.info(index)
    const columns = await (this.reading.get(index) ?? this.read(index))
    this.reading.delete(index)
    return { columns, timeUs: info.events <= EVENTS_WITH_TIMES ? await this.times(index) : undefined }
  }

  /** The columns that tiles are laid out from. Where a tile needed them first, they are kept for the page's own request. */
  private async source(index: number): Promise<TileSource> {
    if (!this.sources.has(index)) {
      if (!this.reading.has(index)) this.reading.set(index, this.read(index))
      await this.reading.get(index)
    }
    return this.sources.get(index)!
  }

  private async read(index: number): Promise<DeviceColumns> {
    const info = await this.info(index)
    const blob = await this.section(info.section)
    if (!blob) throw new Error(`the report holds no section ${info.section}`)
    const columns = readDevice(info, blob)
    if (!this.sources.has(index)) {
      const { start, end, size, stack, allocated } = columns
      this.sources.set(index, { ...info, start, end, size, stack, allocated, axisUs: null })
    }
    this.release(info.section)
    return columns
  }

  /** Text of a blob that is no section: the code of views that are not shown at first. */
  code(blob: string): Promise<string> {
    return this.blobs.code(blob)
  }

  isIntact(blob: string): boolean {
    return this.blobs.isIntact(blob)
  }

  /** Times of a device as recorded. They stay here for tiles of the time axis: the caller must not transfer them. */
  async times(index: number): Promise<Times | null> {
    let timeUs = this.timesRead.get(index)
    if (timeUs === undefined) {
      const info = await this.info(index)
      const section = `${info.section}.times`
      timeUs = readTimes(info, await this.section(section))
      this.timesRead.set(index, timeUs)
      this.release(section)
    }
    return timeUs
  }

  /** Keeps the keys for tiles of their version, and forgets those of `instead`. */
  setKeys(keys: BandKeys, instead: number): void {
    this.keys.delete(instead)
    this.keys.set(keys.version, keys)
  }

  /** Whether a tile can be made without decoding a device first. */
  isReady(key: TileKey): boolean {
    const isRead = key.axis === 'event' || this.timesRead.has(key.device)
    return this.sources.has(key.device) && isRead
  }

  async tile(key: TileKey): Promise<TileMesh> {
    const source = await this.source(key.device)
    if (key.axis === 'time' && !source.axisUs) {
      const timeUs = await this.times(key.device)
      source.axisUs = timeUs && axisClock(ascending(timeUs)).us
    }
    source.bandKeys = this.keys.get(key.version ?? 0)
    return layOutTile({ ...source, ...source.bandKeys?.shown }, key)
  }

  /** The replay of the allocator over the whole trace. */
  async replay({ device, places }: Requests['replay']['argument']): Promise<Replayed> {
    const info = await this.info(device)
    return replay({ ...(await this.lives(device)), ...places }, info, this.loaded!.snapshots[info.snapshot]?.settings)
  }

  async largestFree(argument: Requests['largestFree']['argument']): Promise<Float64Array> {
    return largestFree(await this.replay(argument), await this.lives(argument.device))
  }

  private async lives(device: number): Promise<Lives> {
    const { start, end, size, allocated } = await this.source(device)
    return { N: start.length, P: allocated.length, start, end, size }
  }

  private async info(index: number): Promise<DeviceInfo> {
    const { devices } = await this.manifest()
    if (!devices[index]) throw new RangeError(`device ${index} of ${devices.length}`)
    return devices[index]
  }

  /** A large device has blobs of its own: once read, their bytes are no longer needed. */
  private release(section: string): void {
    const blob = this.loaded?.sections[section]
    if (blob !== undefined && blob !== MAIN) this.blobs.release(blob)
  }
}
