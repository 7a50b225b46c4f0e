// The window on the x axis that views over events share: it is in the state, so all of them show the same stretch.

import type { Axis, DeviceData, DeviceInfo } from '../../data/model'
import { lowerBound } from '../../layout/binary-search'
import { axisClock, type Gap } from '../../layout/gaps'
import { eventGrid, type Grid, gridOf } from '../../layout/grid'
import { eventToUs, usToEvent } from '../../layout/ticks'
import { clamp } from '../../layout/viewport'
import type { Range, State } from '../../ui/state'

export interface XWindow {
  scale: AxisScale
  /** Axis units. */
  x0: number
  x1: number
}

/** The state's window on its axis; on the event axis where there are no times (or they are not read yet). */
export function xWindowOf(data: DeviceData, state: State): XWindow {
  const scale = (state.axis === 'time' && timeScale(data)) || eventScale(data.info)
  const from = state.x ? scale.toAxis(state.x[0]) : scale.x0
  // The timeline's window may reach beyond the last event.
  const to = state.x ? Math.min(scale.x1, scale.toAxis(state.x[1])) : scale.x1
  return clamped({ scale, x0: from, x1: to })
}

/** The part of the state that shows a window. */
export function xPatch(window: XWindow): { x: Range | null } {
  const { scale, x0, x1 } = clamped(window)
  const slack = (scale.x1 - scale.x0) * 1e-9
  return { x: x0 <= scale.x0 + slack && x1 >= scale.x1 - slack ? null : [scale.toEvent(x0), scale.toEvent(x1)] }
}

/** Zooms about an axis coordinate, which keeps its place; factors below 1 zoom in. */
export function zoomed(window: XWindow, at: number, factor: number): XWindow {
  const span = window.x1 - window.x0
  const most = Math.max(Math.min(1, window.scale.x1 - window.scale.x0) / span, factor)
  return clamped({ ...window, x0: at + (window.x0 - at) * most, x1: at + (window.x1 - at) * most })
}

export function panned(window: XWindow, by: number): XWindow {
  return clamped({ ...window, x0: window.x0 + by, x1: window.x1 + by })
}

function clamped({ scale, x0, x1 }: XWindow): XWindow {
  const bounds = { x0: scale.x0, x1: scale.x1, y0: 0, y1: 1 }
  const window = clamp({ x0, x1, y0: 0, y1: 1 }, { bounds, minXSpan: 1, minYSpan: 1 })
  return { scale, x0: window.x0, x1: window.x1 }
}

/** Where a position begins on the axis: position s is in force from event s - 1 on. */
export function xOfPosition(data: DeviceData, scale: AxisScale, position: number): number {
  if (position <= 0) return scale.x0
  if (position >= data.P) return scale.x1
  return scale.axis === 'time' && data.clockUs ? axisClock(data.clockUs).us[position - 1] : position - 1
}

export interface AxisScale {
  readonly axis: Axis
  readonly grid: Grid
  /** Everything there is, in axis units. */
  readonly x0: number
  readonly x1: number
  /** Idle stretches that are shortened; none on the event axis. */
  readonly gaps: readonly Gap[]
  /** Axis units of a moment in events; -1 is the state before the first event, n the end. */
  toAxis(event: number): number
  toEvent(x: number): number
  /** Axis units of a time in µs since the first event; null on the event axis. */
  ofTime: ((us: number) => number) | null
}

export function eventScale(info: DeviceInfo): AxisScale {
  const same = (x: number): number => x
  return { axis: 'event', ...extentOf(eventGrid(info)), gaps: [], toAxis: same, toEvent: same, ofTime: null }
}

/** µs since the first event, less what is left out of idle stretches. Null where the snapshot has no times, and until they are read. */
export function timeScale(data: DeviceData): AxisScale | null {
  if (!data.clockUs || data.n === 0) return null
  const { us: clock, gaps } = axisClock(data.clockUs)
  const extent = extentOf(gridOf(data, 'time'))
  const { clockUs } = data
  const toAxis = (event: number): number => Math.min(extent.x1, Math.max(extent.x0, eventToUs(clock, event)))
  return {
    axis: 'time',
    ...extent,
    gaps,
    toAxis,
    toEvent: (x) => usToEvent(clock, x),
    ofTime: (us) => toAxis(usToEvent(clockUs, us)),
  }
}

/**
 * Positions [from, to) of a stretch of the axis: from the state in force at its start to its last event. `P`: positions of the
 * device; `clockUs` is read on the axis of time alone.
 */
export function positionsIn(
  { P, clockUs }: Pick<DeviceData, 'P' | 'clockUs'>,
  { axis }: Pick<AxisScale, 'axis'>,
  x0: number,
  x1: number,
): [number, number] {
  if (axis === 'event' || !clockUs) {
    const from = Math.min(P - 1, Math.max(0, Math.floor(x0 + 1)))
    return [from, Math.min(P, Math.max(from + 1, Math.ceil(x1 + 1)))]
  }
  const { us } = axisClock(clockUs)
  const from = lowerBound(us, x0)
  return [from, Math.max(from, lowerBound(us, x1, from)) + 1]
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
