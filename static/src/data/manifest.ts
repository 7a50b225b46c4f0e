// The manifest in the header of blob "main" → what the page knows before it decodes any column.

import type { DecodedBlob } from './columns'
import type { OomEntry, RawDevice, RawDiff, RawManifest } from './contracts'
import type { DeviceInfo, DiffInfo, Manifest, OomEvent } from './model'

/** The format this page reads; a report carries its own page, so another number means a damaged or hand-made file. */
export const FORMAT = 3

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
    namedBytes: raw.named_bytes ?? 0,
    countedBytes: raw.counted_bytes ?? null,
    time0: raw.time0,
    actions: raw.actions,
    streams: raw.streams,
    pools: raw.pools,
    categories: raw.categories,
    categorySources: raw.category_sources,
    contexts: raw.contexts,
    metadata: raw.metadata,
    modules: raw.modules ?? [''],
    shapes: raw.shapes ?? [''],
    dtypes: raw.dtypes ?? [''],
    gradFns: raw.grad_fns ?? [''],
    namesOnly: raw.names_only ?? false,
    completionsDiffer: raw.completions_differ ?? false,
    profiled: raw.profiled ?? false,
    settingsSince212: raw.settings_since_2_10 ?? null,
    stats: raw.stats,
    ooms: (raw.ooms ?? []).map(oomEvent),
    leftOut: raw.left_out ?? [],
    steps: raw.steps ?? null,
    spans: raw.spans ?? null,
    activities: raw.activities ?? null,
    broken: raw.broken_annotations ?? null,
  }
}

function oomEvent(raw: OomEntry): OomEvent {
  const { event, requested, verdict } = raw
  if (!verdict) return { event, requested, figures: null }
  const of = raw as Required<OomEntry> // all figures are there, or none
  return {
    event,
    requested,
    figures: {
      verdict,
      segment: of.segment,
      deviceFree: of.device_free,
      reserved: of.reserved,
      allocated: of.allocated,
      rounding: of.rounding,
      pending: of.pending,
      usable: of.usable,
      otherStream: of.other_stream,
      otherPool: of.other_pool,
      otherSize: of.other_size,
      largestUsable: of.largest_usable,
      largestFree: of.largest_free,
      shortfall: of.shortfall,
    },
  }
}
