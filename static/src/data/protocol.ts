// What page and worker say to each other, and which arrays move over whole.

import type { DeviceData, Manifest, TileKey, TileMesh } from './model'

export interface Requests {
  manifest: { argument: null; reply: Manifest }
  device: { argument: number; reply: DeviceData }
  tile: { argument: TileKey; reply: TileMesh }
  /** Bytes of a section's blob after brotli, for the page to read columns from itself. */
  bytes: { argument: string; reply: Uint8Array }
}
export type RequestKind = keyof Requests

export type ToWorker =
  | { type: 'start'; texts: Record<string, string> }
  | { type: 'request'; id: number; kind: RequestKind; argument: unknown }
  | { type: 'cancel'; id: number }

export type FromWorker =
  | { type: 'up' }
  | { type: 'reply'; id: number; value: unknown }
  | { type: 'failed'; id: number; message: string }

export class TileCancelled extends Error {
  constructor() {
    super('the tile is no longer wanted')
    this.name = 'TileCancelled'
  }
}

/** The worker lays tiles out from these and keeps them; the page gets copies. All else moves. */
const KEPT = new Set(['size', 'start', 'end', 'stack', 'category', 'allocated', 'clockUs'])

/** A device as it is sent: what the worker keeps is copied, the clock is left for the page to derive again. */
export function outgoingDevice(d: DeviceData): { value: DeviceData; transfer: ArrayBuffer[] } {
  const value: Record<string, unknown> = {}
  for (const [name, part] of Object.entries(d)) {
    if (name === 'clockUs') value[name] = null
    else if (name === 'timeUs') value[name] = part === d.clockUs ? copied(part) : part
    else value[name] = KEPT.has(name) ? copied(part) : part
  }
  return { value: value as unknown as DeviceData, transfer: buffersOf(value) }
}

export function outgoingMesh(mesh: TileMesh): { value: TileMesh; transfer: ArrayBuffer[] } {
  return { value: mesh, transfer: buffersOf(mesh) }
}

function copied(part: unknown): unknown {
  return ArrayBuffer.isView(part) ? (part as Float64Array).slice() : part
}

/** Every buffer of the arrays in an object and the objects directly in it. */
function buffersOf(value: object): ArrayBuffer[] {
  const buffers = new Set<ArrayBuffer>()
  for (const part of Object.values(value)) {
    if (ArrayBuffer.isView(part)) buffers.add(part.buffer as ArrayBuffer)
    else if (part && typeof part === 'object' && !Array.isArray(part)) {
      for (const inner of Object.values(part)) if (ArrayBuffer.isView(inner)) buffers.add(inner.buffer as ArrayBuffer)
    }
  }
  return [...buffers]
}
