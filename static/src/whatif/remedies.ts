// Remedies replayed together: what they leave of each allocation, and of the peak. The twin of `sizes` in
// snapreport/forecast/remedies.py. And sizes at another batch.

import type { OomEntry } from '../data/contracts'

/** What a remedy takes: see SavingRow in snapreport/findings/saving.py. */
export interface Remedy {
  /** 1 per allocation that changes. */
  mask: Uint8Array
  /** Of each one's bytes that goes. */
  fraction: number
  /** It makes every tensor smaller: it takes its part of what others leave. */
  isProportional: boolean
  /** Failed requests that change. */
  failedEvents: ReadonlySet<number>
}

/** Bytes by allocation that the remedies leave. One in several masks loses the largest fraction, once. */
export function sizesLeft(size: Float64Array, remedies: readonly Remedy[]): Float64Array {
  const gone = new Float64Array(size.length)
  const left = new Float64Array(size.length).fill(1)
  for (const { mask, fraction, isProportional } of remedies)
    for (let id = 0; id < size.length; id++) {
      if (!mask[id]) continue
      if (isProportional) left[id] *= 1 - fraction
      else if (fraction > gone[id]) gone[id] = fraction
    }
  return size.map((bytes, id) => bytesLeft(bytes, gone[id], left[id]))
}

function bytesLeft(bytes: number, gone: number, left: number): number {
  return bytes - Math.floor(bytes * (1 - (1 - gone) * left))
}

/** What grows with the batch: 1 per allocation that does, and that may (snapreport/forecast/batch_growth.py). */
export interface BatchGrowth {
  growing: Uint8Array
  unsure: Uint8Array
}

/**
 * Bytes by allocation at `factor` times the recorded batch. What may grow is taken as needs more; with `least`, less.
 */
export function sizesAt(size: Float64Array, factor: number, growth: BatchGrowth, least = false): Float64Array {
  const { growing, unsure } = growth
  const other = doubtful(factor, least)
  return size.map((bytes, id) =>
    growing[id] ? Math.round(bytes * factor) : unsure[id] ? Math.round(bytes * other) : bytes,
  )
}

/** The factor of what may grow or not. */
export function doubtful(factor: number, least: boolean): number {
  return least ? Math.min(1, factor) : Math.max(1, factor)
}

/** Requests that failed by event, with what the remedies leave of each. `counted`: those that the program needed. */
export function requestsLeft(
  ooms: readonly OomEntry[],
  counted: ReadonlySet<number>,
  remedies: readonly Remedy[],
): Map<number, number> {
  const found = ooms.filter(({ event }) => counted.has(event))
  const size = Float64Array.from(found, ({ requested }) => requested)
  const masks = remedies.map((remedy) => ({
    ...remedy,
    mask: Uint8Array.from(found, ({ event }) => Number(remedy.failedEvents.has(event))),
  }))
  const left = sizesLeft(size, masks)
  return new Map(found.map(({ event }, i) => [event, left[i]]))
}

/** The highest allocated (bytes by position), where each failed request counts at its event. */
export function peakOf(allocated: Float64Array, requests: ReadonlyMap<number, number>): number {
  let most = 0
  for (const bytes of allocated) if (bytes > most) most = bytes
  for (const [event, bytes] of requests) most = Math.max(most, allocated[event + 1] + bytes)
  return most
}
