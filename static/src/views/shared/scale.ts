// The x axis: the state stores events, an axis is how they are shown. Time is a monotone map of the event index.

import type { Axis, DeviceData, DeviceInfo } from '../../data/model'
import { eventGrid, type Grid, gridOf } from '../../layout/grid'
import { eventToUs, usToEvent } from '../../layout/time'

export interface AxisScale {
  readonly axis: Axis
  readonly grid: Grid
  /** Everything there is, in axis units. */
  readonly x0: number
  readonly x1: number
  /** Axis units of a moment in events; -1 is the state before the first event, n the end. */
  toAxis(event: number): number
  toEvent(x: number): number
}

export function eventScale(info: DeviceInfo): AxisScale {
  const same = (x: number): number => x
  return { axis: 'event', ...extentOf(eventGrid(info)), toAxis: same, toEvent: same }
}

/** µs since the first event. Null where the snapshot has no times, and until they are read. */
export function timeScale(data: DeviceData): AxisScale | null {
  const clock = data.clockUs
  if (!clock || data.n === 0) return null
  const extent = extentOf(gridOf(data, 'time'))
  return {
    axis: 'time',
    ...extent,
    toAxis: (event) => Math.min(extent.x1, Math.max(extent.x0, eventToUs(clock, event))),
    toEvent: (x) => usToEvent(clock, x),
  }
}

/** A scale whose axis continues after the last event, by a share of its length, so that the end is not drawn on the edge. */
export function withRoom(scale: AxisScale, events: number, share: number): AxisScale {
  const end = scale.x1
  const room = share * (end - scale.x0)
  // On the time axis an event after the last has no time of its own: the room is the same share of both axes.
  const perEvent = room / (share * (events + 1))
  return {
    ...scale,
    x1: end + room,
    toAxis: (event) =>
      event <= events ? scale.toAxis(event) : Math.min(end + room, end + (event - events) * perEvent),
    toEvent: (x) => (x <= end ? scale.toEvent(x) : events + (x - end) / perEvent),
  }
}

function extentOf(grid: Grid): { grid: Grid; x0: number; x1: number } {
  return { grid, x0: grid.origin, x1: grid.origin + grid.extent }
}
