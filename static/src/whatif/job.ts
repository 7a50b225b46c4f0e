// What the page asks of the worker: several replays of one trace, after its self-check.

import { type Check, selfCheck } from './check'
import { DeviceMemory } from './placement'
import { type Outcome, replayTrace } from './replay'
import { type AllocatorSettings, parseSettings } from './settings'
import type { Trace } from './trace'

export interface WhatIfQuestion {
  /** In PYTORCH_CUDA_ALLOC_CONF's syntax, on top of the recorded ones; '' are the recorded ones. */
  settings: string[]
  /** 1 per allocation that never happens; null: all happen. */
  without: Uint8Array | null
  /** Bytes for the allocator; null: what the trace says. */
  memory: number | null
  /** Go on from the recorded state; else start afresh. */
  fromRecorded: boolean
}

export interface WhatIfRun {
  /** As it was asked for. */
  settings: string
  /** Bytes; null where a request failed that did not fail in the recording. `low` and `high` are the error bar. */
  peakReserved: number | null
  low: number | null
  high: number | null
  retries: number
  oomEvent: number | null
  avoided: number[]
  /** Why there is no result; empty where there is one. */
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
  /** Of each settings of the question; none where the check is not exact. */
  runs: WhatIfRun[]
}

/** Yields the share that is done. */
export function* answerWhatIf(
  trace: Trace,
  known: Check | null,
  question: WhatIfQuestion,
): Generator<number, WhatIfAnswer> {
  const total = question.settings.length * 2 + 2
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
  const check = known ?? (yield* part(selfCheck(trace)))
  const capacity = question.memory ?? trace.capacity
  const startsEmpty = trace.reserved[0] === 0
  const runs: WhatIfRun[] = []
  if (!check.exact) return { check, capacity, startsEmpty, runs }
  const options = { fromRecorded: question.fromRecorded, without: question.without ?? undefined }
  let residual = 0
  if (startsEmpty || question.fromRecorded) {
    const own = yield* part(
      replayTrace(trace, check.settings, new DeviceMemory(trace.capacity), { ...options, without: undefined }),
    )
    residual = Math.abs(own.peakReserved - trace.reserved.reduce((most, bytes) => Math.max(most, bytes), 0))
  }
  for (const text of question.settings) {
    let settings = parseSettings(text, check.settings)
    if (settings.threshold && settings.fraction === null) {
      if (capacity === Infinity) {
        runs.push(unknown(text, 'does nothing without a memory fraction, whose size needs the memory of the device'))
        continue
      }
      settings = { ...settings, fraction: 1 }
    }
    const first = yield* part(replayTrace(trace, settings, new DeviceMemory(capacity), options))
    const second = yield* part(replayTrace(trace, settings, new DeviceMemory(capacity, true), options))
    runs.push(runOf(text, settings, first, second, residual))
  }
  return { check, capacity, startsEmpty, runs }
}

function unknown(settings: string, note: string): WhatIfRun {
  const nothing = { peakReserved: null, low: null, high: null, retries: 0, oomEvent: null, avoided: [] }
  return { settings, ...nothing, note, events: new Int32Array(0), reserved: new Float64Array(0) }
}

function runOf(
  text: string,
  _settings: AllocatorSettings,
  first: Outcome,
  second: Outcome,
  residual: number,
): WhatIfRun {
  const { peakReserved: peak, retries, avoided, events, reserved } = first
  const failed = first.oomEvent ?? first.failed[0] ?? null
  const known = first.oomEvent === null
  const other = second.oomEvent === null ? second.peakReserved : peak
  return {
    settings: text,
    peakReserved: known ? peak : null,
    low: known ? Math.min(peak - residual, other) : null,
    high: known ? Math.max(peak + residual, other) : null,
    retries,
    oomEvent: failed,
    avoided,
    note: '',
    events,
    reserved,
  }
}
