// What a report says of itself before any column is decoded, as the manifest has it and with what it leaves out filled in.
// Names of JSON stay as they are; contracts.ts describes them.

import type { Frame, JobManifest, OomEntry, PageStats, RawDevice, RawManifest, SeriesDevice } from './contracts'

export type { Frame as FrameJson } from './contracts'

/** What `window.snapreport` gives per device: stacks have their `frames`, too. */
export interface StatsJson extends PageStats {
  top_stacks_at_peak: { bytes: number; count: number; stack: number; frames?: Frame[] }[]
}

export interface Manifest extends Omit<RawManifest, 'devices' | 'diff' | 'job'> {
  devices: DeviceInfo[]
  /** What is compared with what; null in a report that compares nothing. */
  diff: DiffInfo | null
  /** All ranks of a job; null in every other report. */
  job: JobManifest | null
}

/** The comparison of two snapshots of the report. */
export interface DiffInfo {
  devices: DiffDevice[]
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

/** The bytes around an out-of-memory event; see snapreport/findings/oom.py, which computes them. */
export type OomFigures = Required<OomEntry>

/** A device as the manifest describes it, before any of its columns is decoded. */
export interface DeviceInfo extends RawDevice {
  /** The page's key: index into the manifest's list. */
  index: number
  stats: StatsJson
  /** Names of modules, shapes, dtypes, and of the `grad_fn` that saved something; the first is empty. */
  modules: string[]
  shapes: string[]
  dtypes: string[]
  grad_fns: string[]
  /** Out-of-memory events, in order. */
  ooms: OomEntry[]
  left_out: string[]
}
