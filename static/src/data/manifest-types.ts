// What a report says of itself before any column is decoded: its snapshots, devices, failures and comparisons.

import type {
  Annotation,
  BrokenAnnotations,
  Frame,
  JobManifest,
  Opening,
  PageStats,
  RawActivities,
  RawSpans,
  RawSteps,
  SeriesDevice,
  SnapshotFile,
} from './contracts'

export type { Frame as FrameJson } from './contracts'

/** What `window.snapreport` gives per device: stacks have their `frames`, too. */
export interface StatsJson extends PageStats {
  top_stacks_at_peak: { bytes: number; count: number; stack: number; frames?: Frame[] }[]
}

export interface Manifest {
  format: number
  title: string
  snapshots: SnapshotFile[]
  devices: DeviceInfo[]
  /** section name → name of the blob that holds it */
  sections: Record<string, string>
  annotations: Annotation[]
  /** What the report opens on: the failure that its headline is about. Null: the first device with a timeline. */
  opening: Opening | null
  /** What is compared with what; null in a report that compares nothing. */
  diff: DiffInfo | null
  /** All ranks of a job; null in every other report. */
  job: JobManifest | null
}

/** The comparison of two snapshots of the report. */
export interface DiffInfo {
  devices: DiffDevice[]
  onlyBefore: number[]
  onlyAfter: number[]
  /** Growth over more than two snapshots, per device. */
  series: SeriesDevice[]
}

/** One device of both. `before`, `after`: DeviceInfo.index. */
export interface DiffDevice {
  device: number
  before: number
  after: number
  /** Moments that belong together: events, -1 for before the first. */
  moments: { name: string; before: number; after: number }[]
}

/** An out-of-memory event. */
export interface OomEvent {
  event: number
  /** Bytes of the request as the allocator rounded it. */
  requested: number
  /** Null for the failures after the first 32, whose segments were not replayed. */
  figures: OomFigures | null
}

/** The bytes around a failure; see snapreport/findings/oom.py, which computes them. */
export interface OomFigures {
  verdict: 'demand' | 'fragmentation' | 'pool-locked' | 'mixed' | 'limit' | 'unclear'
  /** What the allocator would have taken from the device; null: as much as was requested. */
  segment: number | null
  /** Free on the device; null where it was not recorded. */
  deviceFree: number | null
  reserved: number
  allocated: number
  rounding: number
  /** Of blocks whose free waits for another stream. */
  pending: number
  /** Cached in blocks that the request could use, and in those it could not. */
  usable: number
  otherStream: number
  otherPool: number
  otherSize: number
  largestUsable: number
  largestFree: number
  /** What was missing even with all free, cached and pending bytes together. */
  shortfall: number
}

/** A device as the manifest describes it, before any of its columns is decoded. */
export interface DeviceInfo {
  /** The page's key: index into the manifest's list. */
  index: number
  /** The recorder's number; not unique when a report holds several files. */
  device: number
  /** "cuda", "host", "xpu", … */
  kind: string
  snapshot: number
  section: string
  events: number
  allocations: number
  ghosts: number
  freed: number
  startReserved: number
  peakBytes: number
  /** Event of the peak; -1 when the state before the first event is the greatest. */
  peakEvent: number
  /** Bytes at the peak whose category is known. */
  namedBytes: number
  /** What torch.cuda.max_memory_allocated() would report; null where it is not known. */
  countedBytes: number | null
  /** µs of event 0 on the snapshot's clock; null when the snapshot has no times. */
  time0: number | null
  actions: string[]
  streams: string[]
  pools: string[]
  categories: string[]
  /** Where a category can come from. */
  categorySources: string[]
  contexts: string[]
  metadata: string[]
  /** Names of modules, shapes, dtypes, and of the `grad_fn` that saved something; the first is empty. */
  modules: string[]
  shapes: string[]
  dtypes: string[]
  gradFns: string[]
  /** Whether the metadata are the names that a recorder gave to tensors, and the program set none of its own. */
  namesOnly?: boolean
  completionsDiffer?: boolean
  /** Whether this is a profiler's trace, which has allocations and frees and nothing of the allocator. */
  profiled?: boolean
  /** Whether PyTorch 2.12 or newer read the allocator's settings, or one before 2.10; null: not known. */
  settingsSince212?: boolean | null
  stats: StatsJson
  /** Out-of-memory events, in order. */
  ooms: readonly OomEvent[]
  /** Columns that a size limit (--max-size) kept out of the report: their values read as 0. */
  leftOut: string[]
  /** Training steps and annotated spans, where there are any; read by the room `steps`. */
  steps?: RawSteps | null
  spans?: RawSpans | null
  /** Rows of a profiler's trace, which the section `activities` has. */
  activities?: RawActivities | null
  broken?: BrokenAnnotations | null
}
