// The window on the x axis that views over events share: it is in the state, so all of them show the same stretch.

import type { DeviceData } from '../../data/model'
import { lowerBound } from '../../layout/binary-search'
import { clamp } from '../../layout/viewport'
import type { Range, State } from '../../ui/state'
import { type AxisScale, eventScale, timeScale } from './scale'

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

/** Positions [from, to) of a stretch of the axis: from the state in force at its start to its last event. */
export function positionsIn(data: DeviceData, scale: AxisScale, x0: number, x1: number): [number, number] {
  const { P } = data
  if (scale.axis === 'event' || !data.clockUs) {
    const from = Math.min(P - 1, Math.max(0, Math.floor(x0 + 1)))
    return [from, Math.min(P, Math.max(from + 1, Math.ceil(x1 + 1)))]
  }
  const from = lowerBound(data.clockUs, x0)
  return [from, Math.max(from, lowerBound(data.clockUs, x1, from)) + 1]
}

/** Where a position begins on the axis: position s is in force from event s - 1 on. */
export function xOfPosition(data: DeviceData, scale: AxisScale, position: number): number {
  if (position <= 0) return scale.x0
  if (position >= data.P) return scale.x1
  return scale.axis === 'time' && data.clockUs ? data.clockUs[position - 1] : position - 1
}
