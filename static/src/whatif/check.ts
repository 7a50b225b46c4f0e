// The self-check: a trace replayed under its own settings must give what was recorded. The twin of
// snapreport/allocator/check.py.

import { RecordedMemory } from './placement'
import { type Outcome, replayTrace } from './replay'
import type { AllocatorSettings } from './settings'
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
  if (trace.refused) return refused(trace)
  let best: Check | null = null
  for (const recordedRetries of [true, false]) {
    if (!recordedRetries && trace.capacity === Infinity) break
    for (const oldestFirst of [trace.isNew, !trace.isNew]) {
      const settings = { ...trace.settings, oldestFirst }
      const memory = new RecordedMemory(recordedRetries ? Infinity : trace.capacity, segmentsAt(trace))
      const done = yield* replayTrace(trace, settings, memory, { fromRecorded: true, recordedRetries })
      const check = compare(trace, settings, done, recordedRetries)
      if (check.exact) return check
      if (!best || check.curveError < best.curveError) best = check
    }
  }
  return best!
}

function refused(trace: Trace): Check {
  const counts = { allocations: 0, sameAllocations: 0, segmentEvents: 0, sameSegmentEvents: 0 }
  return { exact: false, settings: trace.settings, ...counts, curveError: 1, reason: trace.refused }
}

function segmentsAt(trace: Trace): Map<number, [number, number][]> {
  const at = new Map<number, [number, number][]>()
  trace.segmentOwner.forEach((owner, row) => {
    const action = trace.segmentAction[row]
    if (action !== 0 && action !== 2) return
    const entry: [number, number] = [trace.segmentAddress[row], action === 2 ? 0 : trace.segmentBytes[row]]
    const entries = at.get(owner)
    if (entries) entries.push(entry)
    else at.set(owner, [entry])
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
  const share = (100 * (allocations - sameAllocations)) / Math.max(allocations, 1)
  const reason = exact ? '' : reasonOf(trace, done, share)
  return { exact, settings, allocations, sameAllocations, segmentEvents, sameSegmentEvents, curveError, reason }
}

/** The likeliest cause, the most specific first. */
function reasonOf(trace: Trace, done: Outcome, share: number): string {
  if (trace.contradictory) return 'trace and final state of this file contradict each other'
  if (done.contradictions) return 'the state at the start of the trace cannot be reconstructed'
  if (trace.mixed) return 'expandable and other segments are mixed'
  if (trace.settings.threshold) return 'garbage collection was on, and its memory limit was not recorded'
  if (trace.pool.some((pool) => pool !== 0)) return 'private pools, whose release is not recorded'
  if (trace.overflowed) return 'the trace lost events (it overflowed)'
  return `${share.toFixed(1)}% of the allocations are at other addresses in the replay`
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
  return (
    worst /
    Math.max(
      trace.reserved.reduce((most, bytes) => Math.max(most, bytes), 0),
      1,
    )
  )
}
