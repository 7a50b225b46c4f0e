// The minimum memory on which a trace still runs, and the cards that have it. The twin of snapreport/allocator/minimum.py.

import { facts } from '../allocator/facts'
import { CARDS } from './cards'
import { DeviceMemory } from './placement'
import { replayTrace } from './replay'
import type { AllocatorSettings } from './settings'
import type { Trace } from './trace'

const { minimum_step: STEP, steps_around_minimum: AROUND } = facts.replays

export interface Minimum {
  settings: string
  /** Bytes; null where the trace does not even run on unlimited memory. */
  memory: number | null
  retries: number
  /** All steps below fail, all above run. */
  monotone: boolean
  /** Bytes that it reserves where nothing limits it. */
  unlimited: number
  /** By card of CARDS. */
  fits: boolean[]
}

/** Yields its progress, 0 to 1. `peakAllocated`: bytes below which it cannot run. */
export function* leastMemory(
  trace: Trace,
  settings: AllocatorSettings,
  text: string,
  without: Uint8Array | undefined,
  peakAllocated: number,
): Generator<number, Minimum> {
  let replays = 0
  let expected = 1
  const options = { fromRecorded: false, without }

  function* onDevice(memory: number): Generator<number, { retries: number | null; peak: number }> {
    const work = replayTrace(trace, settings, new DeviceMemory(memory), options)
    let step = work.next()
    for (; !step.done; step = work.next()) yield Math.min(1, (replays + step.value) / expected)
    replays++
    const { oomEvent, failed, retries, peakReserved } = step.value
    return { retries: oomEvent === null && failed.length === 0 ? retries : null, peak: peakReserved }
  }

  const free = yield* onDevice(Infinity)
  const none = CARDS.map(() => false)
  if (free.retries === null)
    return { settings: text, memory: null, retries: 0, monotone: true, unlimited: free.peak, fits: none }
  const tried = new Map<number, number | null>()
  function* retriesAt(steps: number): Generator<number, number | null> {
    if (!tried.has(steps)) tried.set(steps, (yield* onDevice(steps * STEP)).retries)
    return tried.get(steps)!
  }
  let high = Math.ceil(free.peak / STEP)
  let low = Math.floor(peakAllocated / STEP) - 1
  expected = 2 + Math.ceil(Math.log2(Math.max(high - low, 1))) + 2 * AROUND
  yield* retriesAt(high)
  while (high - low > 1) {
    const middle = Math.floor((high + low) / 2)
    if ((yield* retriesAt(middle)) !== null) high = middle
    else low = middle
  }
  let monotone = true
  for (let at = high - 1; at > 0 && at >= high - AROUND; at--) {
    if ((yield* retriesAt(at)) === null) continue
    monotone = false
    high = at
  }
  for (let above = high + 1; above <= high + AROUND; above++) {
    if ((yield* retriesAt(above)) === null) monotone = false
  }
  const memory = high * STEP
  const fits: boolean[] = []
  for (const { usable } of CARDS) {
    if (usable < memory) fits.push(false)
    else fits.push(usable >= free.peak || (yield* onDevice(usable)).retries !== null)
  }
  return { settings: text, memory, retries: tried.get(high) ?? 0, monotone, unlimited: free.peak, fits }
}
