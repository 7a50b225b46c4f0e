// The manifest of a job report: sentences and lists; numbers per rank are in the sections "job" and "job.heat".
// Written by snapreport/job/document.py. A row is one recording of a rank, ascending by rank number.

export interface JobManifest {
  schema: string
  /** Number of rows. */
  ranks: number
  world_size: number | null
  /** Rank numbers of the world that no file has. */
  missing: number[]
  failed: { rank: number | null; source: string; error: string }[]
  /** Sentences in order, and what each is about. */
  headline: JobSentence[]
  clock: { comparable: boolean; sentence: string }
  imbalance: { sentence: string } | null
  hosts: string[]
  /** File of each row. */
  sources: string[]
  /** Relative address of each row's own report; "": none was written. */
  links: string[]
  kinds: string[]
  rank_sources: string[]
  categories: string[]
  groups: JobGroup[]
  outliers: JobOutlier[]
  /** The first out-of-memory error of each row that had any, the job's first first. */
  ooms: { row: number; step: number | null; time_us: number | null; event: number; tried_bytes: number | null }[]
  findings: JobFinding[]
  axes: JobAxis[]
  metrics: string[]
  /** Rows whose snapshots the report holds whole. `device`: DeviceInfo.index. */
  detail: { row: number; snapshot: number; device: number; why: string }[]
  stack_names: { function: string; file: string; line: number; name: string; frames: string[] }[]
  /** Bytes of one level of the maps. */
  heat_scale: number
  /** By row: what its recording cannot show. */
  doubts?: Record<string, string[]>
}

/** A sentence: text, and parts that refer to something (snapreport/sentence.py). */
export type Parts = (string | SentencePart)[]

/** `number`: of a stack, device, rank or event, or of bytes; `file`, `line`: of a place. */
export interface SentencePart {
  kind: 'code' | 'stack' | 'place' | 'device' | 'rank' | 'event' | 'bytes'
  text: string
  number?: number
  file?: string
  line?: number
}

export interface JobSentence {
  text: Parts
  rows: number[]
  stack: number | null
}

export interface JobGroup {
  name: string
  rows: number[]
  /** What they hold, in a line. */
  holds: string
  median_bytes: number
  min_bytes: number
  max_bytes: number
  slope_bytes_per_rank: number | null
  stacks: [stack: number, medianBytes: number][]
}

export interface JobOutlier {
  row: number
  rank: number
  group: number
  bytes_above: number
  sentence: Parts
  stacks: [stack: number, bytesAbove: number, bytes: number, expectedBytes: number][]
}

export interface JobFinding {
  kind: string
  severity: 'error' | 'warning' | 'info'
  title: Parts
  detail: Parts[]
  count: number
  rows: number[]
  /** The row that title and detail are about; null where it is equally large on all of them. */
  row?: number | null
  bytes: number | null
  /** "on 61 of 64 ranks" */
  where?: string
  /** "sure", "likely" */
  confidence?: string
}

export type JobAxisKey = 'step' | 'time' | 'event'

export interface JobAxis {
  key: JobAxisKey
  label: string
  columns: number
  first: number[]
  last: number[]
  unit: 'step' | 'us' | 'share'
  note: string
}
