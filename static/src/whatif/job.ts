// What the page asks of the worker: several replays of one trace, after its self-check. The twin of
// snapreport/allocator/whatif.py.

import { facts, sentence } from '../allocator/facts'
import { type Check, selfCheck } from './check'
import { leastMemory, type Minimum } from './minimum'
import { DeviceMemory, placements } from './placement'
import { type Outcome, replayTrace } from './replay'
import { type AllocatorSettings, bothReadings, sameSettings } from './settings'
import { EMPTY_CACHE, type Trace } from './trace'

/** The settings that are tried where the user names none. */
export const STANDARD: readonly string[] = facts.tried_settings
/** The name of the run that all others are compared with. */
export const OWN = facts.notes.own

export interface WhatIfQuestion {
  /** In PYTORCH_CUDA_ALLOC_CONF's syntax, on top of the recorded ones. */
  settings: readonly string[]
  /** 1 per allocation that never happens; null: all happen. */
  without: Uint8Array | null
  /** Bytes for the allocator; null: as in the trace. */
  memory: number | null
  /** Continue from the recorded state; else start with an empty allocator. */
  fromRecorded: boolean
}

/** Other sizes and settings, replayed together from an empty allocator. */
export interface ChangeQuestion {
  /** In PYTORCH_CUDA_ALLOC_CONF's syntax, on top of the recorded ones. */
  settings: string
  /** Bytes by allocation, 0 for one that never happens; null: as recorded. */
  size: Float64Array | null
  /** Bytes of the requests that failed, by event. */
  requests: ReadonlyMap<number, number>
  /** Bytes for the allocator; null: as in the trace. */
  memory: number | null
}

export interface ChangeAnswer {
  check: Check
  /** On unlimited memory: bytes, and the curve, a row per change. Null where the check is not exact. */
  unlimited: Pick<Outcome, 'peakReserved' | 'events' | 'reserved'> | null
  /** The first event whose request fails on the memory of the question, -1 for the start; null: none. */
  failedEvent: number | null
  /** Bytes for the allocator in the question; Infinity: unlimited. */
  capacity: number
}

export interface WhatIfRun {
  /** The settings as requested; OWN for the recorded ones. */
  settings: string
  /** Whether the allocations of the question are left out. */
  without: boolean
  /** Bytes; null where a request failed that did not fail in the recording. `low` and `high` are the error bar. */
  peakReserved: number | null
  low: number | null
  high: number | null
  retries: number
  oomEvent: number | null
  avoided: number[]
  /** Why there is no result, or only part of one; empty where there is one. */
  note: string
  /** The curve: a row per change, the first at event -1. */
  events: Int32Array
  reserved: Float64Array
}

export interface WhatIfAnswer {
  check: Check
  /** Bytes for the allocator; Infinity: unlimited. */
  capacity: number
  startsEmpty: boolean
  /** How many placements of new segments were tried. */
  placements: number
  /** Error of the replay under the recorded settings in bytes: part of every error bar. */
  residual: number
  /** The limits of the replay of this trace, a sentence each. */
  limits: string[]
  /** The recorded settings, the same without what is left out, then the others; none where the check is not exact. */
  runs: WhatIfRun[]
}

export interface MinimumQuestion {
  /** On top of the recorded ones; '' are the recorded ones. Expandable segments are searched as well. */
  settings: string
  without: Uint8Array | null
  /** Bytes of the allocations that happen, at most. */
  peakAllocated: number
}

/** What can be asked of a trace. */
export interface Replays {
  /** Under other settings of the allocator. */
  whatIf: { question: WhatIfQuestion; answer: WhatIfAnswer }
  /** With other sizes and settings together. */
  change: { question: ChangeQuestion; answer: ChangeAnswer }
  /** The minimum memory on which it runs, for a trace that replays exactly. */
  leastMemory: { question: MinimumQuestion; answer: Minimum[] }
}

/** Replays by placement of new segments, and the peak at the lower end of a capacity that is a range; null: it fails. */
interface Spread {
  placed: readonly Outcome[]
  smallest: { capacity: number; peak: number | null } | null
}

/** Yields its progress, 0 to 1. */
export function* answerWhatIf(
  trace: Trace,
  known: Check | null,
  question: WhatIfQuestion,
): Generator<number, WhatIfAnswer> {
  const { settings: texts, fromRecorded } = question
  const { placements: usual, placements_of_long_traces: fewer, long_trace: long } = facts.replays
  const count = trace.kind.length > long ? fewer : usual
  const lowest = question.memory === null ? trace.lowestCapacity : null
  const total = (texts.length + (question.without ? 2 : 1)) * (count + (lowest === null ? 0 : 1)) + (known ? 0 : 1)
  let done = 0
  function* part<T>(work: Generator<number, T>): Generator<number, T> {
    let step = work.next()
    while (!step.done) {
      yield Math.min(1, (done + step.value) / total)
      step = work.next()
    }
    done++
    return step.value
  }
  function* spread(settings: AllocatorSettings, without: Uint8Array | null): Generator<number, Spread> {
    const placed: Outcome[] = []
    for (const memory of placements(capacity, count)) placed.push(yield* part(replayOn(settings, memory, without)))
    if (lowest === null || placed[0].oomEvent !== null) return { placed, smallest: null }
    const { oomEvent, peakReserved } = yield* part(replayOn(settings, new DeviceMemory(lowest), without))
    return { placed, smallest: { capacity: lowest, peak: oomEvent === null ? peakReserved : null } }
  }
  const replayOn = (settings: AllocatorSettings, memory: DeviceMemory, without: Uint8Array | null) =>
    replayTrace(trace, settings, memory, { fromRecorded, without: without ?? undefined })
  const check = known ?? (yield* part(selfCheck(trace)))
  const capacity = question.memory ?? trace.capacity
  const startsEmpty = trace.reserved[0] === 0
  const runs: WhatIfRun[] = []
  const limits = limitsOf(trace, fromRecorded, lowest !== null)
  const answer = { check, capacity, startsEmpty, placements: count, residual: 0, limits, runs }
  if (!check.exact) return answer
  const baseline = runOf(OWN, false, yield* spread(check.settings, null), 0)
  runs.push(baseline)
  let residual = 0
  if (startsEmpty || fromRecorded) {
    const peak = trace.reserved.reduce((most, bytes) => Math.max(most, bytes), 0)
    const own =
      question.memory === null
        ? (baseline.peakReserved ?? 0)
        : (yield* replayOn(check.settings, placements(trace.capacity, 1)[0], null)).peakReserved
    residual = Math.abs(own - peak)
    answer.residual = residual
  }
  const isChanged = question.without !== null
  if (isChanged) runs.push(runOf(OWN, true, yield* spread(check.settings, question.without), residual))
  for (const [text, read] of texts.flatMap((text) => readings(text, check.settings))) {
    let settings = read
    let name = text
    if (STANDARD.includes(text) && sameSettings(settings, check.settings)) continue
    if (settings.threshold && settings.fraction === null) {
      if (capacity === Infinity) {
        runs.push(unknown(text, isChanged, sentence('notes', 'needs_memory', { option: 'a memory' })))
        continue
      }
      settings = { ...settings, fraction: 1 }
      name += ',per_process_memory_fraction:1'
    }
    runs.push(runOf(name, isChanged, yield* spread(settings, question.without), residual))
  }
  return answer
}

/** Yields its progress, 0 to 1. */
export function* answerChange(
  recorded: Trace,
  known: Check | null,
  { settings, size, requests, memory }: ChangeQuestion,
): Generator<number, ChangeAnswer> {
  const check = known ?? (yield* selfCheck(recorded))
  const capacity = memory ?? recorded.capacity
  if (!check.exact) return { check, unlimited: null, failedEvent: null, capacity }
  const failed = recorded.failed.map((one) => ({ ...one, size: requests.get(one.event) ?? one.size }))
  const trace = { ...recorded, failed, size: size ?? recorded.size }
  const options = { fromRecorded: false, without: size?.includes(0) ? Uint8Array.from(size, isNothing) : undefined }
  const [[, read]] = bothReadings(settings, check.settings)
  const { peakReserved, events, reserved } = yield* replayTrace(trace, read, new DeviceMemory(Infinity), options)
  const unlimited = { peakReserved, events, reserved }
  if (capacity >= peakReserved && failed.length === 0) return { check, unlimited, failedEvent: null, capacity }
  const limited = yield* replayTrace(trace, read, new DeviceMemory(capacity), options)
  return { check, unlimited, failedEvent: limited.oomEvent ?? limited.failed[0] ?? null, capacity }
}

function isNothing(bytes: number): number {
  return Number(bytes === 0)
}

/** The settings in a text by their name: two where the PyTorch that recorded is not known and would read it otherwise. */
function readings(text: string, own: AllocatorSettings): [name: string, AllocatorSettings][] {
  return bothReadings(text, own).map(([note, settings]) => [
    note ? sentence('notes', note, { settings: text }) : text,
    settings,
  ])
}

/** The twin of `limits` of snapreport/allocator/document.py. */
function limitsOf(trace: Trace, fromRecorded: boolean, isRange: boolean): string[] {
  const found: (keyof typeof facts.limits)[] = []
  if (trace.reserved[0] !== 0) found.push(fromRecorded ? 'recorded' : 'fresh')
  if (isRange) found.push('capacity_range')
  if (trace.pool.some((pool) => pool !== 0)) found.push('pools', 'pool_retries')
  if (trace.delayed) found.push('pending_frees')
  if (trace.failed.length) found.push('failures')
  if (trace.kind.includes(EMPTY_CACHE)) found.push('unseen_calls')
  return found.map((key) => facts.limits[key])
}

/** The minimum memory under the settings, and under expandable segments where the settings have none. */
export function* answerMinimum(
  trace: Trace,
  check: Check | null,
  question: MinimumQuestion,
): Generator<number, Minimum[]> {
  if (!check?.exact) throw new Error('a trace is replayed under its own settings first')
  const chosen = readings(question.settings, check.settings)
  const searched = chosen.map(([name, settings]): [AllocatorSettings, string] => [settings, name || OWN])
  for (const [name, settings] of chosen)
    if (!settings.expandable)
      searched.push([{ ...settings, expandable: true }, [name, 'expandable_segments:True'].filter(Boolean).join(',')])
  const found: Minimum[] = []
  for (const [settings, text] of searched) {
    const work = leastMemory(trace, settings, text, question.without ?? undefined, question.peakAllocated)
    let step = work.next()
    for (; !step.done; step = work.next()) yield (found.length + step.value) / searched.length
    found.push(step.value)
  }
  return found
}

function unknown(settings: string, without: boolean, note: string): WhatIfRun {
  const nothing = { peakReserved: null, low: null, high: null, retries: 0, oomEvent: null, avoided: [] }
  return { settings, without, ...nothing, note, events: new Int32Array(0), reserved: new Float64Array(0) }
}

function runOf(settings: string, without: boolean, spread: Spread, residual: number): WhatIfRun {
  const { placed, smallest } = spread
  const [first] = placed
  const { peakReserved: peak, retries, avoided, events, reserved } = first
  const isKnown = first.oomEvent === null
  const ran = placed.filter((outcome) => outcome.oomEvent === null)
  const peaks = ran.map((outcome) => outcome.peakReserved)
  const failed = placed.length - ran.length
  const notes = failed ? [sentence('notes', 'placements', { failed, tried: placed.length })] : []
  if (smallest) {
    peaks.push(smallest.peak ?? smallest.capacity)
    if (smallest.peak === null) notes.push(sentence('notes', 'lowest_capacity'))
  }
  return {
    settings,
    without,
    peakReserved: isKnown ? peak : null,
    low: isKnown ? Math.min(...peaks, peak - residual) : null,
    high: isKnown ? Math.max(...peaks, peak + residual) : null,
    retries,
    oomEvent: first.oomEvent ?? first.failed[0] ?? null,
    avoided,
    note: isKnown ? notes.join('; ') : '',
    events,
    reserved,
  }
}

/** A replayed curve by position: after its last event it stays as it is. */
export function byPosition({ events, reserved }: Pick<WhatIfRun, 'events' | 'reserved'>, P: number): Float64Array {
  const curve = new Float64Array(P)
  let row = 0
  for (let position = 0; position < P; position++) {
    while (row + 1 < events.length && events[row + 1] < position) row++
    curve[position] = reserved[row]
  }
  return curve
}
