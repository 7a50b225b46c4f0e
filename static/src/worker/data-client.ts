// The interface of the page's data, wherever it is computed.

import type { Replay } from '../allocator/replay'
import type { DecodedBlob } from '../data/columns'
import type { BandKeys, DeviceData, DeviceInfo, Manifest, Stacks, TileKey, TileMesh } from '../data/model'
import type { SourceLines } from '../data/source-links'
import { asksForTimes, parse } from '../search/grammar'
import { evaluateQuery, type Matches } from '../search/matches'
import type { Replays } from '../whatif/job'

/** How the page requests data. Devices are named by DeviceInfo.index. */
export interface DataClient {
  readonly manifest: Manifest
  readonly devices: DeviceInfo[]
  /** The viewer allows no workers: everything is computed on the page's own thread. */
  readonly hasNoWorker: boolean
  stacks(): Promise<Stacks>
  /** Per stack of the report the number of its code, equal for stacks that are the same before and after; 0: of neither. */
  identity(): Promise<Uint32Array>
  /** Text of a blob that holds code. */
  code(blob: string): Promise<string>
  /** Whether a blob is there and has the bytes that were written. */
  isIntact(blob: string): Promise<boolean>
  /** A section's columns, read on this thread. */
  section(name: string): Promise<DecodedBlob>
  /** Lines of source that the report includes; null without any. */
  source(): Promise<SourceLines | null>
  device(index: number): Promise<DeviceData>
  /** The replay of a device, computed in the worker: a million events take a fifth of a second. */
  replay(index: number): Promise<Replay>
  /** Bytes of the largest contiguous free range at every position (length P), computed in the worker on each call. */
  largestFree(index: number): Promise<Float64Array>
  /** A device's trace replayed in a worker of its own; `onProgress` gets the progress, 0 to 1. */
  replayed<K extends keyof Replays>(
    kind: K,
    index: number,
    question: Replays[K]['question'],
    onProgress?: OnProgress,
  ): ReplayRequest<Replays[K]['answer']>
  /** Latest request first. Rejects with TileCancelled after cancel(key). */
  tile(key: TileKey): Promise<TileMesh>
  cancel(key: TileKey): void
  /** Keys of a version for tiles that are requested from now on; those of another, `instead`, are used no more. */
  setKeys(keys: BandKeys, instead: number): void
  /** Settles when the times of a device have arrived, if it has any. */
  times(index: number): Promise<void>
  /** Called when the times of a device, which are not read with it, have arrived or cannot be read: draw again. */
  onTimes: (index: number, error?: unknown) => void
  /** Synchronously and with its times, for window.snapreport; decodes on this thread if necessary. */
  deviceNow(index: number): DeviceData
  stacksNow(): Stacks
}

export type OnProgress = (share: number) => void

/** `answer` rejects after `cancel`. */
export interface ReplayRequest<T> {
  answer: Promise<T>
  cancel(): void
}

/** What a query matches. Rejects with QueryError where it is malformed. */
export async function matchesOf(client: DataClient, device: number, query: string): Promise<Matches> {
  parse(query) // before anything is read for it
  const times = asksForTimes(query) && client.times(device)
  const [data, stacks] = await Promise.all([client.device(device), client.stacks(), times])
  return evaluateQuery(data, stacks, client.devices[device], query)
}

/** 1 per allocation that matches. */
export async function maskOf(client: DataClient, device: number, query: string): Promise<Uint8Array> {
  return (await matchesOf(client, device, query)).mask
}
