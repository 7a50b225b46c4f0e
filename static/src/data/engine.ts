// Everything that is computed from the blobs: manifest, devices, stacks, tiles. Runs in the worker, and on the page's own
// thread where no worker can be made.

import { layOutTile, meshStored, type TileSource } from '../layout/tile'
import { BlobStore } from './blobs'
import type { DecodedBlob } from './columns'
import { readDevice } from './device'
import { readManifest } from './manifest'
import type { DeviceData, Manifest, TileKey, TileMesh } from './model'
import { storedSpans } from './stored'

export const MAIN = 'main'

export class Engine {
  private loaded: Manifest | undefined
  private readonly sources = new Map<number, TileSource>()

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

  /** Bytes of a section's blob. The caller may not give them away: other sections may lie in the same blob. */
  async bytes(section: string): Promise<Uint8Array> {
    const blob = await this.section(section)
    if (!blob) throw new Error(`the report holds no section ${section}`)
    return blob.bytes
  }

  /** Decode a device whole. Tiles are laid out from some of its arrays (see KEPT in protocol.ts): the caller may give only the others away. */
  async device(index: number): Promise<DeviceData> {
    const info = (await this.manifest()).devices[index]
    if (!info) throw new RangeError(`device ${index} of ${this.loaded!.devices.length}`)
    const [columns, times] = await Promise.all([this.section(info.section), this.section(`${info.section}.times`)])
    if (!columns) throw new Error(`the report holds no section ${info.section}`)
    const d = readDevice(info, columns, times)
    if (!this.sources.has(index)) {
      const { start, end, size, stack, category, allocated, clockUs } = d
      this.sources.set(index, { ...info, start, end, size, stack, category, allocated, clockUs })
    }
    // A large device has blobs of its own; their bytes have served.
    for (const section of [info.section, `${info.section}.times`]) this.release(section)
    return d
  }

  /** Whether a tile can be made without decoding a device first. */
  isReady(key: TileKey): boolean {
    return this.sources.has(key.device) || this.isStored(key)
  }

  async tile(key: TileKey): Promise<TileMesh> {
    await this.manifest()
    const source = this.sources.get(key.device)
    if (source) return layOutTile(source, key)
    const info = this.loaded!.devices[key.device]
    if (this.isStored(key)) {
      const blob = await this.section(`${info.section}.tiles`)
      const spans = blob && storedSpans(blob, key)
      if (spans) return meshStored(info, key, spans)
    }
    await this.device(key.device)
    return layOutTile(this.sources.get(key.device)!, key)
  }

  /** Stored tiles are of the event axis and the whole height. */
  isStored(key: TileKey): boolean {
    const info = this.loaded?.devices[key.device]
    return !!info && key.axis === 'event' && key.yLevel === 0 && info.levels.includes(key.level)
  }

  private release(section: string): void {
    const blob = this.loaded?.sections[section]
    if (blob !== undefined && blob !== MAIN) this.blobs.release(blob)
  }
}
