// The ticks of an axis and their labels. Steps follow the zoom; two neighbouring labels are never the same.

import type { Times } from '../data/model'
import { upperBound } from './binary-search'
import { bytesInUnit, formatCount } from './format'
import type { Gap } from './gaps'

export interface Tick {
  /** in axis units */
  value: number
  label: string
}

/** Byte marks at multiples of a power of two. `target`: about how many fit. */
export function byteTicks(y0: number, y1: number, target: number): Tick[] {
  const step = 2 ** Math.max(0, Math.ceil(Math.log2((y1 - y0) / Math.max(1, target))))
  // The largest unit in which a step has at most two decimals (.25, .5, .75): near the bottom of a zoom, labels become
  // "3,328 MiB" rather than ever more digits of a GiB.
  const unit = Math.max(0, Math.min(5, Math.floor((Math.log2(step) + 2) / 10)))
  return marks(y0, y1, step, (value) => (value === 0 ? '0' : bytesInUnit(value, unit, 2)))
}

/** Event marks at multiples of 1, 2 or 5 times a power of ten, never below one event. */
export function eventTicks(x0: number, x1: number, target: number): Tick[] {
  return marks(x0, x1, Math.max(1, decimalStep((x1 - x0) / Math.max(1, target))), formatCount)
}

/** Steps above one second that a clock would have, in µs. */
const CLOCK_STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400].map(
  (s) => s * 1e6,
)

/** Time ticks, labelled by µs since the first event; idle stretches that the axis shortens have none. */
export function timeTicks(x0: number, x1: number, target: number, gaps: readonly Gap[] = []): Tick[] {
  const rough = (x1 - x0) / Math.max(1, target)
  const step =
    rough < 1e6
      ? Math.max(1, decimalStep(rough))
      : (CLOCK_STEPS.find((s) => s >= rough) ?? Math.ceil(rough / 86400e6) * 86400e6)
  const ticks: Tick[] = []
  let begin = -Infinity
  let shift = 0 // what the gaps so far leave out
  for (const gap of [...gaps, { x0: Infinity, x1: Infinity, to: 0 }]) {
    const made = marks(Math.max(x0, begin) + shift, Math.min(x1, gap.x0) + shift, step, (us) => timeLabel(us, step))
    for (const { value, label } of made) ticks.push({ value: value - shift, label })
    begin = gap.x1
    shift = gap.to - gap.x1
  }
  return ticks
}

/** "+1.250 s", "+12:05 min", "+3:07 h": in the unit of its size, with as many decimals as the step needs. */
function timeLabel(us: number, step: number): string {
  if (us === 0) return '0 s'
  const sign = us < 0 ? '−' : '+'
  const t = Math.abs(us)
  if (t < 1e3) return `${sign}${t} µs`
  if (t < 1e6) return `${sign}${fixed(t / 1e3, step / 1e3)} ms`
  if (t < 60e6) return `${sign}${fixed(t / 1e6, step / 1e6)} s`
  const minutes = Math.floor(t / 60e6)
  const seconds = twoDigits(fixed((t - minutes * 60e6) / 1e6, step / 1e6))
  if (minutes < 60) return `${sign}${minutes}:${seconds} min`
  const hours = `${Math.floor(minutes / 60)}:${twoDigits(String(minutes % 60))}`
  return `${sign}${hours}${step < 60e6 ? ':' + seconds : ''} h`
}

/** "5.25" → "05.25" */
function twoDigits(text: string): string {
  return /^\d(?:\.|$)/.test(text) ? '0' + text : text
}

function fixed(value: number, step: number): string {
  return value.toFixed(Math.max(0, -Math.floor(Math.log10(step) + 1e-9)))
}

/** The smallest of 1, 2, 5 times a power of ten that is at least this. */
export function decimalStep(atLeast: number): number {
  const power = 10 ** Math.floor(Math.log10(Math.max(atLeast, Number.MIN_VALUE)))
  for (const factor of [1, 2, 5]) if (factor * power >= atLeast * (1 - 1e-9)) return factor * power
  return 10 * power
}

function marks(from: number, to: number, step: number, label: (value: number) => string): Tick[] {
  const ticks: Tick[] = []
  const first = Math.ceil(from / step)
  const last = Math.floor(to / step)
  // Multiples, not a running sum: no rounding piles up.
  for (let i = first; i <= last; i++) ticks.push({ value: i * step || 0, label: label(i * step || 0) })
  return ticks
}

/** µs of a point on the event axis. Outside the trace an event counts as one µs. `clockUs` must not descend. */
export function eventToUs(clockUs: Times, x: number): number {
  const last = clockUs.length - 1
  if (last < 0) return x
  if (x <= 0) return clockUs[0] + x
  if (x >= last) return clockUs[last] + (x - last)
  const event = Math.floor(x)
  return clockUs[event] + (x - event) * (clockUs[event + 1] - clockUs[event])
}

/** The event axis coordinate of a time; of several events in one µs, the last. */
export function usToEvent(clockUs: Times, us: number): number {
  const last = clockUs.length - 1
  if (last < 0) return us
  if (us < clockUs[0]) return us - clockUs[0]
  if (us >= clockUs[last]) return last + (us - clockUs[last])
  const event = positionAtUs(clockUs, us) - 1
  return event + (us - clockUs[event]) / (clockUs[event + 1] - clockUs[event])
}

/** The position s in force at a time: the state after every event up to and at it. */
export function positionAtUs(clockUs: Times, us: number): number {
  return upperBound(clockUs, us)
}
