// Generated from snapreport/contracts: `python -m snapreport.schemas` writes this file again.

/** `sections`: name of a section → the blob that has it; `opening`: null: the first device with a timeline. */
export interface RawManifest {
  format: number
  title: string
  snapshots: SnapshotFile[]
  sections: Record<string, string>
  annotations: Annotation[]
  devices: RawDevice[]
  opening: Opening | null
  left_out?: LeftOutParts
  job?: JobManifest
  diff?: RawDiff
}

/** A snapshot file. `settings`: of the allocator; `notes`: what was unusual in the file. */
export interface SnapshotFile {
  file: string
  bytes: number
  settings: Record<string, unknown>
  notes: Record<string, unknown>
}

/** `time_us`: µs of the snapshot's own clock; `snapshot`: index into the manifest's list. */
export type Annotation = [device: number, name: string, stage: string, time_us: number | null, snapshot: number]

/**
 * A device of a snapshot. `device`: the recorder's number, not unique where a report has several files; `peak_event`:
 * -1 before the first event; `time0`: µs of event 0 on the snapshot's clock; `named_bytes`: of the peak, those of a
 * known category; `counted_bytes`: what `torch.cuda.max_memory_allocated()` would report, where it is known;
 * `lost_peak_bytes`: the peak that PyTorch counted, where the trace lost it; `names_only`: whether `metadata` are names
 * of tensors alone; `completions_differ`: whether completions of frees have stacks other than those of their requests;
 * `settings_since_2_10`: whether PyTorch 2.10 or newer read the allocator's settings; `left_out`: columns and sections
 * that a size limit kept out, whose values read as 0.
 */
export interface RawDevice {
  snapshot: number
  device: number
  kind: string
  section: string
  events: number
  allocations: number
  start_reserved: number
  peak_bytes: number
  peak_event: number
  named_bytes: number
  ghosts: number
  freed: number
  time0: number | null
  actions: string[]
  categories: string[]
  category_sources: string[]
  streams: string[]
  pools: string[]
  contexts: string[]
  metadata: string[]
  stats: PageStats
  modules?: string[]
  shapes?: string[]
  dtypes?: string[]
  grad_fns?: string[]
  ooms?: OomEntry[]
  steps?: RawSteps
  spans?: RawSpans
  activities?: RawActivities | null
  broken_annotations?: BrokenAnnotations
  counted_bytes?: number
  lost_peak_bytes?: number
  names_only?: boolean
  profiled?: boolean
  settings_since_2_10?: boolean
  completions_differ?: boolean
  left_out?: string[]
}

/** What the report opens on. `device`: index into the manifest's list. */
export interface Opening {
  device: number
  event: number
}

/** What a size limit kept out of the report. */
export interface LeftOutParts {
  limit: number
  full_bytes: number
  words: string[]
}

/**
 * All ranks of a job. `ranks`: number of rows; `missing`: rank numbers that no file has; `ooms`: the job's first first;
 * `sources`: file of each row; `states`: what each row's rank was doing, "" where no digest is of a running program;
 * `links`: relative address of each row's own report, or ""; `heat_scale`: bytes of one level of the maps; `origin_us`:
 * µs since the epoch of the time axis' 0.
 */
export interface JobManifest {
  schema: string
  world_size: number | null
  missing: number[]
  failed: FailedFile[]
  left_out: string[]
  headline: JobSentence[]
  clock: Clock
  imbalance: JobImbalance | null
  groups: JobGroup[]
  outliers: JobOutlier[]
  ooms: JobOom[]
  findings: JobFinding[]
  ranks: number
  hosts: string[]
  kinds: string[]
  sources: string[]
  states: string[]
  links: string[]
  rank_sources: string[]
  categories: string[]
  axes: JobAxis[]
  metrics: string[]
  heat_scale: number
  origin_us: number | null
  detail: JobDetail[]
  stack_names: JobStackName[]
}

/** The comparison of the first snapshot with the last. */
export interface RawDiff {
  before: number
  after: number
  devices: RawDiffDevice[]
  only_before: number[]
  only_after: number[]
  /** growth over more than two snapshots */
  series: SeriesDevice[]
}

/** The numbers of `snapreport stats --json`; stacks by their number. */
export interface PageStats {
  /** -1: pinned host memory */
  device: number
  kind: string
  events: number
  allocations: number
  preexisting_allocations: number
  live_at_end: number
  segments: number
  start_allocated_bytes: number
  end_allocated_bytes: number
  peak_allocated_bytes: number
  /** the state after this event; -1: before the first */
  peak_event: number
  max_memory_allocated_bytes: number
  trace_overflowed: boolean | null
  /** bytes, less than 0 for a decrease */
  reconciliation_bytes: number
  /** bytes, less than 0 for a decrease */
  start_reserved_bytes: number
  /** bytes, less than 0 for a decrease */
  end_reserved_bytes: number
  /** bytes, less than 0 for a decrease */
  peak_reserved_bytes: number
  oom_events: number[]
  top_stacks_at_peak: StackBytes[]
  modules?: ModuleMemory[]
  modules_source?: 'inferred' | 'recorded'
  device_use?: DeviceUse
}

/**
 * An out-of-memory event, in bytes; only `event` and `requested` after the first 32, whose segments are not replayed.
 * `segment`: what the allocator would have taken from the device, null: as much as was requested; `device_free`: null
 * where it was not recorded; `pending`: of blocks whose free waits for another stream; `usable` and `other_…`: cached
 * in blocks that the request could use, and in those it could not; `shortfall`: missing even with all free, cached and
 * pending bytes together.
 */
export interface OomEntry {
  event: number
  requested: number
  verdict?: 'demand' | 'fragmentation' | 'limit' | 'mixed' | 'pool-locked' | 'unclear'
  segment?: number | null
  device_free?: number | null
  reserved?: number
  allocated?: number
  rounding?: number
  pending?: number
  usable?: number
  other_stream?: number
  other_pool?: number
  other_size?: number
  largest_usable?: number
  largest_free?: number
  shortfall?: number
}

/**
 * Training steps. `source`: what they were recognised from; `first`: the first event, as the difference to the step
 * before; `events`: how many.
 */
export interface RawSteps {
  source: string
  names: string[]
  numbers: number[]
  first: number[]
  events: number[]
}

/**
 * Annotated spans; outer ones come before those inside them. `name`: index into `names`; `first`: the first event, as
 * the difference to the span before; `events`: how many; `depth`: row among the spans, 0 the outermost; `ragged`: which
 * halves of pairs are missing; `start_us`: since time0, as the difference to the span before; `us`: length.
 */
export interface RawSpans {
  names: string[]
  name: number[]
  first: number[]
  events: number[]
  depth: number[]
  ragged?: number[]
  start_us?: number[]
  us?: number[]
}

/** What a profiler's trace of the run has, in the section `activities`. `rows`: the kind of each row. */
export interface RawActivities {
  trace: string
  rows: ('cost' | 'kernel' | 'operator')[]
}

/**
 * How many annotations are broken. `untimed`: at no known event; `unknown_stage`: neither START nor END; `outside`: of
 * the trace; `without_allocation`: at an address with no live allocation.
 */
export interface BrokenAnnotations {
  unpaired_starts?: number
  unpaired_ends?: number
  untimed?: number
  unknown_stage?: number
  outside?: number
  without_allocation?: number
}

/** A file that could not be read. */
export interface FailedFile {
  rank: number | null
  source: string
  error: string
}

/** A sentence of the headline, and what it is about. */
export interface JobSentence {
  text: (string | SentencePart)[]
  rows: number[]
  stack: number | null
}

/** Whether times of different hosts can be compared, and why. */
export interface Clock {
  comparable: boolean
  sentence: string
}

/** The highest peak and the median of all, in bytes. */
export interface JobImbalance {
  worst_row: number
  worst_bytes: number
  median_bytes: number
  share: number
  unused_bytes: number
  sentence: string
}

/** Rows with the same memory. `memory`: their largest categories, in a line. */
export interface JobGroup {
  name: string
  kind: string
  rows: number[]
  memory: string
  median_bytes: number
  min_bytes: number
  max_bytes: number
  slope_bytes_per_rank: number | null
  stacks: JobGroupStack[]
}

/** A row with more memory than its group. `cause`: null where the ratios of its stacks prove none. */
export interface JobOutlier {
  row: number
  rank: number
  group: number
  bytes_above: number
  cause: JobCause | null
  sentence: (string | SentencePart)[]
  stacks: JobOutlierStack[]
}

/** The first failed request of a row. `time_us`: since the job's first event. */
export interface JobOom {
  row: number
  step: number | null
  time_us: number | null
  event: number
  tried_bytes: number | null
}

/**
 * A finding of some rows. `where`: "on 61 of 64 ranks"; `row`: the one that title and detail are about, null where it
 * is equally large on all of them or there is one row.
 */
export interface JobFinding {
  kind: string
  severity: 'error' | 'info' | 'warning'
  title: (string | SentencePart)[]
  detail: (string | SentencePart)[][]
  confidence: 'estimate' | 'inferred' | 'measured'
  where: string
  count: number
  rows: number[]
  row: number | null
  bytes: number | null
}

/** The columns of a map: the first and last value of each, in `unit`. */
export interface JobAxis {
  key: 'event' | 'step' | 'time'
  label: string
  unit: 'share' | 'step' | 'us'
  note: string
  columns: number
  first: number[]
  last: number[]
}

/** A row whose snapshot the report has in full. `snapshot`, `device`: indices into the manifest's lists. */
export interface JobDetail {
  row: number
  snapshot: number
  device: number
  why: string
}

/** A stack of the job. `frames`: the program's outer lines. */
export interface JobStackName {
  function: string
  file: string
  line: number
  name: string
  frames: string[]
}

/** One device of both snapshots. `before`, `after`: indices into the manifest's devices. */
export type RawDiffDevice = [device: number, before: number, after: number, moments: RawMoment[]]

/**
 * One device through a series; lists have an entry for each snapshot. `devices`: its numbers; `order`: what the files
 * are ordered by. `growth`: the median change from one snapshot to the next of what is allocated at the end; `slope`:
 * the same by Theil-Sen. `stacks`: growing ones first, the fastest of each first.
 */
export interface SeriesDevice {
  device: number
  devices: number[]
  kind: string
  files: string[]
  order: string
  peak_allocated_bytes: number[]
  end_allocated_bytes: number[]
  peak_reserved_bytes: number[]
  end_reserved_bytes: number[]
  /** bytes, less than 0 for a decrease */
  growth: number
  /** bytes, less than 0 for a decrease */
  slope: number
  /** bytes, less than 0 for a decrease */
  leak_bytes_per_snapshot: number
  stacks: SeriesStack[]
}

/** The bytes of a stack at the peak. */
export interface StackBytes {
  bytes: number
  count: number
  stack: number
}

/**
 * A module and all below it: the bytes of its allocations that are live at the peak, by category, and how many
 * allocations it made at all. `module`: its path, where inferred of lines and numbers ("dit:249.3"); `kind`: its class;
 * `like`: the first of its siblings that is built alike, null for that one itself.
 */
export interface ModuleMemory {
  module: string
  kind: string | null
  like: string | null
  allocations: number
  peak_bytes: number
  parameter_bytes: number
  gradient_bytes: number
  optimizer_state_bytes: number
  activation_bytes: number
  temporary_bytes: number
  other_bytes: number
}

/**
 * The memory in use on the whole device when it was most, as samples show it. `samples`: that differ from the one
 * before; `peak_event`: the last event before it; `reserved_bytes`: by PyTorch at that time; `outside_bytes`: by the
 * process, but not by PyTorch's allocator, and by other processes too where they are not told apart;
 * `other_processes_bytes`: null there.
 */
export interface DeviceUse {
  source: 'mem_get_info' | 'nvml'
  samples: number
  total_bytes: number
  peak_used_bytes: number
  /** the state after this event; -1: before the first */
  peak_event: number
  reserved_bytes: number
  outside_bytes: number
  other_processes_bytes: number | null
  /** largest first */
  changes: DeviceUseChange[]
}

/**
 * A part of a sentence that refers to something. `number`: of a stack, device, rank or event, or of bytes; `file`,
 * `line`: of a place.
 */
export interface SentencePart {
  kind: 'bytes' | 'code' | 'device' | 'event' | 'place' | 'rank' | 'stack'
  text: string
  number?: number
  file?: string
  line?: number
}

/** The median bytes of a stack. */
export type JobGroupStack = [stack: number, median_bytes: number]

/**
 * Why a rank has more than its group, where the ratios of its stacks prove it. `factor`: how many times as large its
 * activations are, or how many times as many layers, experts or models it has; null for a leak; `count`: of layers,
 * experts or models more, null if unknown.
 */
export interface JobCause {
  kind: 'batch' | 'batch or sequence' | 'experts' | 'layers' | 'leak' | 'model' | 'sequence'
  factor: number | null
  count: number | null
  sentence: string
}

/** A stack of an outlier, and the bytes expected from its group. */
export type JobOutlierStack = [stack: number, bytes_above: number, bytes: number, expected_bytes: number]

/** A pair of events that belong together, -1 for before the first. */
export type RawMoment = [name: string, before: number, after: number]

/**
 * A stack through a series: bytes and allocations at the end of each snapshot. `stack`: its number in the last one;
 * `bytes_per_snapshot`: Theil-Sen slope; `grows`: whether that is growth and not noise.
 */
export interface SeriesStack {
  place: string
  bytes: number[]
  counts: number[]
  /** bytes, less than 0 for a decrease */
  bytes_per_snapshot: number
  grows: boolean
  stack: number
  /** innermost first */
  frames?: Frame[]
}

/**
 * A change of the memory in use outside PyTorch's allocator. `event`: the last one before the sample that shows it;
 * `cause`: what took or freed it; `line`: what the program ran then, null if unknown.
 */
export interface DeviceUseChange {
  /** the state after this event; -1: before the first */
  event: number
  /** bytes, less than 0 for a decrease */
  bytes: number
  cause: 'CUDA context' | 'CUDA graphs' | 'NCCL' | 'cuBLAS' | 'kernels and libraries' | 'other processes'
  line: string | null
}

/** A frame of a stack trace. */
export interface Frame {
  filename: string
  line: number
  name: string
}
