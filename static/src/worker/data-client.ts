// What the page asks data of, wherever that is worked out.

import type { Replay } from '../allocator/replay'
import type { BandKeys, DeviceData, DeviceInfo, Manifest, Stacks, TileKey, TileMesh } from '../data/model'
import type { SourceLines } from '../data/source'
import type { DecodedBlob } from '../data/columns'
import type { LeastQuestion, WhatIfAnswer, WhatIfQuestion } from '../whatif/job'
import type { Minimum } from '../whatif/minimum'

/** How the page asks for data. Devices are named by DeviceInfo.index. */
export interface DataClient {
  readonly manifest: Manifest
  readonly devices: DeviceInfo[]
  /** The viewer allows no workers: everything is worked out on the page's own thread. */
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
  /** Lines of source that the report was asked to hold; null where it was not. */
  source(): Promise<SourceLines | null>
  device(index: number): Promise<DeviceData>
  /** The allocator's state of a device all along, worked out in the worker: a million events take a fifth of a second. */
  replay(index: number): Promise<Replay>
  /** Bytes of the largest contiguous free range at every position (length P), worked out in the worker anew. */
  largestFree(index: number): Promise<Float64Array>
  /** A device's trace under other settings of the allocator; `onProgress` hears the share that is done. */
  whatIf(index: number, question: WhatIfQuestion, onProgress?: OnProgress): ReplayRequest<WhatIfAnswer>
  /** The least memory on which a device's trace runs, for a trace that `whatIf` found to replay exactly. */
  leastMemory(index: number, question: LeastQuestion, onProgress?: OnProgress): ReplayRequest<Minimum[]>
  /** Latest request first. Rejects with TileCancelled after cancel(key). */
  tile(key: TileKey): Promise<TileMesh>
  cancel(key: TileKey): void
  /** Tiles of a device that are asked for from now on are named by these keys. */
  setKeys(device: number, keys: BandKeys): void
  /** Settled when the times of a device are there, if it has any. */
  times(index: number): Promise<void>
  /** The times of a device, which were not read with it, are there, or cannot be read: draw again. */
  onTimes: (index: number, error?: unknown) => void
  /** The same at once and with its times, for window.snapreport; decodes on this thread when it has to. */
  deviceNow(index: number): DeviceData
  stacksNow(): Stacks
}

export type OnProgress = (share: number) => void

/** `answer` rejects after `cancel`. */
export interface ReplayRequest<T> {
  answer: Promise<T>
  cancel(): void
}
