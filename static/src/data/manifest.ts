// The manifest in the header of blob "main" → what the page knows before it decodes any column.

import type { DecodedBlob } from './columns'
import type { Annotation, DeviceInfo, Manifest, SnapshotInfo, StatsJson } from './model'

/** The format this page reads; a report carries its own page, so another number means a damaged or hand-made file. */
export const FORMAT = 1

interface RawDevice {
  snapshot: number
  device: number
  kind: string
  section?: string
  events: number
  allocations: number
  ghosts: number
  freed: number
  start_reserved: number
  time0: number | null
  peak_bytes: number
  peak_event: number
  levels: number[]
  actions: string[]
  streams: string[]
  pools: string[]
  categories: string[]
  contexts: string[]
  metadata: string[]
  stats: StatsJson
  left_out?: string[]
}

interface RawManifest {
  format: number
  title: string
  snapshots: SnapshotInfo[]
  sections: Record<string, string>
  devices: RawDevice[]
  annotations?: Annotation[]
}

export function readManifest(main: DecodedBlob): Manifest {
  const raw = main.header.manifest as RawManifest | undefined
  if (!raw) throw new Error('the report has no manifest')
  if (raw.format !== FORMAT) throw new Error(`the report has format ${raw.format}; this page reads ${FORMAT}`)
  return {
    format: raw.format,
    title: raw.title,
    snapshots: raw.snapshots,
    sections: raw.sections,
    annotations: raw.annotations ?? [],
    devices: raw.devices.map(deviceInfo),
  }
}

function deviceInfo(raw: RawDevice, index: number): DeviceInfo {
  return {
    index,
    device: raw.device,
    kind: raw.kind,
    snapshot: raw.snapshot,
    section: raw.section ?? `d${index}`,
    events: raw.events,
    allocations: raw.allocations,
    ghosts: raw.ghosts,
    freed: raw.freed,
    startReserved: raw.start_reserved,
    peakBytes: raw.peak_bytes,
    peakEvent: raw.peak_event,
    time0: raw.time0,
    levels: raw.levels,
    actions: raw.actions,
    streams: raw.streams,
    pools: raw.pools,
    categories: raw.categories,
    contexts: raw.contexts,
    metadata: raw.metadata,
    stats: raw.stats,
    leftOut: raw.left_out ?? [],
  }
}
