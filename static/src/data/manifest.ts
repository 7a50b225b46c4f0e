// The manifest in the header of blob "main" → what the page knows before it decodes any column.

import type { DecodedBlob } from './columns'
import type { Annotation, DeviceInfo, DiffInfo, Manifest, SnapshotInfo, StatsJson } from './model'

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
  steps?: DeviceInfo['steps']
  spans?: DeviceInfo['spans']
  broken_annotations?: DeviceInfo['broken']
}

interface RawManifest {
  format: number
  title: string
  snapshots: SnapshotInfo[]
  sections: Record<string, string>
  devices: RawDevice[]
  annotations?: Annotation[]
  diff?: RawDiff
}

interface RawDiff {
  devices: [device: number, before: number, after: number, moments: [name: string, before: number, after: number][]][]
  only_before: number[]
  only_after: number[]
  series: DiffInfo['series']
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
    diff: raw.diff ? diffInfo(raw.diff) : null,
  }
}

function diffInfo(raw: RawDiff): DiffInfo {
  return {
    devices: raw.devices.map(([device, before, after, moments]) => ({
      device,
      before,
      after,
      moments: moments.map(([name, b, a]) => ({ name, before: b, after: a })),
    })),
    onlyBefore: raw.only_before,
    onlyAfter: raw.only_after,
    series: raw.series,
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
    steps: raw.steps ?? null,
    spans: raw.spans ?? null,
    broken: raw.broken_annotations ?? null,
  }
}
