// The manifest in the header of blob "main" → what the page knows before it decodes any column.

import type { DecodedBlob } from './columns'
import type { Annotation, DeviceInfo, DiffInfo, Manifest, OomEvent, OomFigures, SnapshotInfo, StatsJson } from './model'

/** The format this page reads; a report carries its own page, so another number means a damaged or hand-made file. */
export const FORMAT = 2

interface RawOom {
  event: number
  requested: number
  verdict?: OomFigures['verdict']
  segment: number | null
  device_free: number | null
  reserved: number
  allocated: number
  rounding: number
  pending: number
  usable: number
  other_stream: number
  other_pool: number
  other_size: number
  largest_usable: number
  largest_free: number
  shortfall: number
}

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
  category_sources: string[]
  contexts: string[]
  metadata: string[]
  /** Whether these are names of tensors alone. */
  names_only?: boolean
  /** Whether completions of frees have stacks other than those of their requests, which alone are stored. */
  completions_differ?: boolean
  profiled?: boolean
  settings_since_2_12?: boolean
  stats: StatsJson
  ooms?: RawOom[]
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
  opening?: Manifest['opening']
  diff?: RawDiff
  job?: Manifest['job']
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
    opening: raw.opening ?? null,
    diff: raw.diff ? diffInfo(raw.diff) : null,
    job: raw.job ?? null,
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
    categorySources: raw.category_sources,
    contexts: raw.contexts,
    metadata: raw.metadata,
    namesOnly: raw.names_only ?? false,
    completionsDiffer: raw.completions_differ ?? false,
    profiled: raw.profiled ?? false,
    settingsSince212: raw.settings_since_2_12 ?? null,
    stats: raw.stats,
    ooms: (raw.ooms ?? []).map(oomEvent),
    leftOut: raw.left_out ?? [],
    steps: raw.steps ?? null,
    spans: raw.spans ?? null,
    broken: raw.broken_annotations ?? null,
  }
}

function oomEvent(raw: RawOom): OomEvent {
  const { event, requested, verdict } = raw
  if (!verdict) return { event, requested, figures: null }
  return {
    event,
    requested,
    figures: {
      verdict,
      segment: raw.segment,
      deviceFree: raw.device_free,
      reserved: raw.reserved,
      allocated: raw.allocated,
      rounding: raw.rounding,
      pending: raw.pending,
      usable: raw.usable,
      otherStream: raw.other_stream,
      otherPool: raw.other_pool,
      otherSize: raw.other_size,
      largestUsable: raw.largest_usable,
      largestFree: raw.largest_free,
      shortfall: raw.shortfall,
    },
  }
}
