// What the manifest holds of a device's steps and annotated spans (written by snapreport/report/span_columns.py).

/** A device's entry "steps" in the manifest; absent where no step is known. */
export interface RawSteps {
  /** What they were recognised from: "annotation", "metadata", "optimizer" or "stack". */
  source: string
  names: string[]
  numbers: number[]
  /** First event, as the difference to the step before. */
  first: number[]
  /** How many events. */
  events: number[]
}

/** A device's entry "spans" in the manifest; absent where there are none. Outer spans come before those inside them. */
export interface RawSpans {
  names: string[]
  /** Index into names. */
  name: number[]
  /** First event, as the difference to the span before. */
  first: number[]
  /** How many events; 0 where nothing happened inside. */
  events: number[]
  /** Row among the spans, 0 the outermost: spans of a row do not overlap. */
  depth: number[]
  /** RAGGED_START + RAGGED_END where the other half of a pair is missing; absent where all are whole. */
  ragged?: number[]
  /** µs since time0 of the start, as the difference to the span before, and of its length; absent without times. */
  start_us?: number[]
  us?: number[]
}

/** What could not be paired. */
export interface BrokenAnnotations {
  unpaired_starts?: number
  unpaired_ends?: number
  /** Without a time, so at no known event. */
  untimed?: number
  /** With a stage that is neither START nor END. */
  unknown_stage?: number
  /** Ended before the trace began, or began after it ended. */
  outside?: number
  /** An `annotate` event at an address with no live allocation. */
  without_allocation?: number
}

export const RAGGED_START = 1
export const RAGGED_END = 2
