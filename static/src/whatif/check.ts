// The self-check: a trace replayed under its own settings must give what was recorded. The twin of
// snapreport/allocator/check.py.

import { sentence } from '../allocator/facts'
import { remembered } from '../data/remembered'
import { formatShare } from '../layout/format'
import { OverlapError } from './blocks'
import { RecordedMemory } from './placement'
import { type Outcome, replayTrace } from './replay'
import { type AllocatorSettings, TIE_BREAKS } from './settings'
import { ALLOC, EMPTY_CACHE, OOM, RETRY, type Trace } from './trace'

export interface Check {
  exact: boolean
  /** The doubts of the trace, and those from the comparison. */
  settings: AllocatorSettings
  allocations: number
  sameAllocations: number
  segmentEvents: number
  sameSegmentEvents: number
  /** Greatest difference of reserved memory, as a share of its peak. */
  curveError: number
  reason: string
}

export function* selfCheck(trace: Trace): Generator<number, Check> {
  if (trace.refused) return refused(trace, trace.settings, trace.refused)
  let best: Check | null = null
  for (const recordedRetries of [true, false]) {
    if (!recordedRetries && trace.capacity === Infinity) break
    for (const tieBreak of trace.isNew ? [...TIE_BREAKS].reverse() : TIE_BREAKS) {
      const settings = { ...trace.settings, tieBreak }
      const memory = new RecordedMemory(recordedRetries ? Infinity : trace.capacity, segmentsAt(trace))
      const check = yield* checkOf(trace, settings, memory, recordedRetries)
      if (check.exact) return check
      if (!best || isCloser(check, best)) best = check
    }
  }
  return best!
}

function isCloser(one: Check, other: Check): boolean {
  return one.curveError !== other.curveError
    ? one.curveError < other.curveError
    : one.sameAllocations > other.sameAllocations
}

function refused(trace: Trace, settings: AllocatorSettings, reason: string): Check {
  const allocations = trace.kind.reduce((count, kind) => count + Number(kind === ALLOC), 0)
  const counts = { allocations, sameAllocations: 0, segmentEvents: 0, sameSegmentEvents: 0 }
  return { exact: false, settings, ...counts, curveError: 1, reason }
}

function* checkOf(
  trace: Trace,
  settings: AllocatorSettings,
  memory: RecordedMemory,
  recordedRetries: boolean,
): Generator<number, Check> {
  try {
    const done = yield* replayTrace(trace, settings, memory, { fromRecorded: true, recordedRetries })
    return compare(trace, settings, done, recordedRetries)
  } catch (error) {
    if (error instanceof OverlapError) return refused(trace, settings, sentence('refusals', 'overlap'))
    throw error
  }
}

function segmentsAt(trace: Trace): Map<number, [number, number][]> {
  const at = new Map<number, [number, number][]>()
  trace.segmentOwner.forEach((owner, row) => {
    const action = trace.segmentAction[row]
    if (action !== 0 && action !== 2) return
    const entry: [number, number] = [trace.segmentAddress[row], action === 2 ? 0 : trace.segmentBytes[row]]
    remembered(at, owner, () => []).push(entry)
  })
  return at
}

function compare(trace: Trace, settings: AllocatorSettings, done: Outcome, recordedRetries: boolean): Check {
  let allocations = 0
  let sameAllocations = 0
  for (let at = 0; at < trace.kind.length; at++) {
    if (trace.kind[at] !== ALLOC) continue
    allocations++
    if (done.addresses[trace.item[at]] === trace.address[trace.item[at]]) sameAllocations++
  }
  const want = recordedSegmentEvents(trace, recordedRetries)
  let sameSegmentEvents = 0
  for (const { event, action, size } of done.segmentEvents) {
    const key = `${event} ${action} ${size}`
    const left = want.get(key) ?? 0
    if (left > 0) sameSegmentEvents++
    want.set(key, left - 1)
  }
  const segmentEvents = trace.segmentEvent.length
  const curveError = curveErrorOf(trace, done, recordedRetries)
  const exact =
    sameAllocations === allocations &&
    sameSegmentEvents === segmentEvents &&
    segmentEvents === done.segmentEvents.length &&
    curveError === 0
  const reason = exact ? '' : reasonOf(trace, done, formatShare(allocations - sameAllocations, allocations))
  return { exact, settings, allocations, sameAllocations, segmentEvents, sameSegmentEvents, curveError, reason }
}

/** The likeliest cause, the most specific first. */
function reasonOf(trace: Trace, done: Outcome, share: string): string {
  if (trace.contradictory) return sentence('refusals', 'contradictory')
  if (done.contradictions) return sentence('refusals', 'start')
  if (trace.mixed) return sentence('refusals', 'mixed')
  if (trace.settings.threshold) return sentence('refusals', 'collected')
  if (trace.pool.some((pool) => pool !== 0)) return sentence('refusals', 'pools')
  if (trace.overflowed) return sentence('refusals', 'overflowed')
  return sentence('refusals', 'elsewhere', { share })
}

/** Counts under the event that the replay gives them: of a growth or a retry the request, of empty_cache() its first. */
function recordedSegmentEvents(trace: Trace, recordedRetries: boolean): Map<string, number> {
  const bursts: [number, number][] = []
  for (let at = 0; at < trace.kind.length; at++) {
    if (trace.kind[at] === EMPTY_CACHE || (trace.kind[at] === RETRY && recordedRetries))
      bursts.push([trace.event[at], trace.item[at]])
  }
  const counts = new Map<string, number>()
  let burst = 0
  trace.segmentEvent.forEach((event, row) => {
    while (burst < bursts.length && bursts[burst][1] < event) burst++
    const isInside = burst < bursts.length && bursts[burst][0] <= event
    const owner = isInside ? bursts[burst][0] : trace.segmentOwner[row]
    const key = `${owner} ${trace.segmentAction[row]} ${trace.segmentBytes[row]}`
    counts.set(key, (counts.get(key) ?? 0) + 1)
  })
  return counts
}

function curveErrorOf(trace: Trace, done: Outcome, recordedRetries: boolean): number {
  if (done.oomEvent !== null) return 1
  const decided = recordedRetries ? RETRY : OOM
  let row = 0
  let worst = 0
  for (let at = 0; at < trace.kind.length; at++) {
    const kind = trace.kind[at]
    if (kind !== ALLOC && kind !== EMPTY_CACHE && kind !== decided) continue
    const event = trace.event[at]
    while (row + 1 < done.events.length && done.events[row + 1] <= event) row++
    const position = (kind === ALLOC || kind === OOM ? event : trace.item[at]) + 1
    worst = Math.max(worst, Math.abs(done.reserved[row] - trace.reserved[position]))
  }
  return worst / trace.reserved.reduce((most, bytes) => Math.max(most, bytes), 1)
}
