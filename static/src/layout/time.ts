// The two x axes: event index and µs since the first event. Time is a monotone map of the event index; between two
// events it is taken as linear, so that a window survives a change of axis and back.

import type { Times } from '../data/model'
import { upperBound } from './binary-search'

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
