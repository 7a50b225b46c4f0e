// The axis of time with its idle stretches shortened: a pause of minutes between two bursts of milliseconds would leave both
// thinner than a pixel.

import type { Times } from '../data/model'
import { remembered } from '../data/remembered'

export interface Gap {
  /** µs of the clock at its ends. */
  from: number
  to: number
  /** Where it lies on the axis, which is µs less what was left out. */
  x0: number
  x1: number
}

export interface AxisClock {
  /** Where each event lies on the axis. */
  us: Times
  /** In order. */
  gaps: readonly Gap[]
}

/** A stretch without events is shortened from this share of the trace on … */
const LEAST_SHARE = 0.05
/** … where it is also so many times as long as the median between two events. */
const LEAST_MEDIANS = 20
/** What is left of one, of the time that is not idle. */
const WIDTH = 0.02
/** Differences that the median is taken of. */
const SAMPLES = 4096

const known = new WeakMap<Times, AxisClock>()

/** `clockUs` must not descend. The same object for the same array. */
export function axisClock(clockUs: Times): AxisClock {
  return remembered(known, clockUs, () => makeClock(clockUs))
}

function makeClock(clockUs: Times): AxisClock {
  const n = clockUs.length
  const span = n > 1 ? clockUs[n - 1] - clockUs[0] : 0
  const ends: number[] = []
  for (let event = 1; event < n; event++) if (clockUs[event] - clockUs[event - 1] > LEAST_SHARE * span) ends.push(event)
  const limit = ends.length ? LEAST_MEDIANS * medianStep(clockUs) : 0
  const idle = ends.filter((event) => clockUs[event] - clockUs[event - 1] > limit)
  if (idle.length === 0) return { us: clockUs, gaps: [] }
  const active = idle.reduce((left, event) => left - (clockUs[event] - clockUs[event - 1]), span)
  // Whole µs, so that columns of one µs stay exact.
  const width = Math.max(1, Math.round(WIDTH * active))
  const us = Float64Array.from(clockUs)
  const gaps: Gap[] = []
  let left = 0 // µs left out so far
  for (let i = 0; i < idle.length; i++) {
    const [from, to] = [clockUs[idle[i] - 1], clockUs[idle[i]]]
    const shortened = Math.min(width, to - from)
    gaps.push({ from, to, x0: from - left, x1: from - left + shortened })
    left += to - from - shortened
    const stop = i + 1 < idle.length ? idle[i + 1] : n
    for (let event = idle[i]; event < stop; event++) us[event] = clockUs[event] - left
  }
  return { us, gaps }
}

function medianStep(clockUs: Times): number {
  const stride = Math.max(1, Math.floor(clockUs.length / SAMPLES))
  const steps: number[] = []
  for (let event = stride; event < clockUs.length; event += stride) steps.push(clockUs[event] - clockUs[event - 1])
  steps.sort((a, b) => a - b)
  return steps[steps.length >> 1]
}
