// Between the state (events and bytes, null for everything) and the shown rectangle (axis units and bytes).

import type { ViewWindow } from '../../data/model'
import { clamp, type Limits as ViewLimits } from '../../layout/viewport'
import type { Range, State } from '../../ui/state'
import type { AxisScale } from '../shared/scale'

export interface Limits extends ViewLimits {
  scale: AxisScale
}

/** Below this a band of one byte would be taller than most screens. */
const MIN_BYTES = 64

export function limitsOf(scale: AxisScale, yTop: number): Limits {
  return { scale, bounds: { x0: scale.x0, x1: scale.x1, y0: 0, y1: yTop }, minXSpan: 1, minYSpan: MIN_BYTES }
}

export function resolveWindow(state: State, limits: Limits): ViewWindow {
  const { scale, bounds } = limits
  const x: Range = state.x ? [scale.toAxis(state.x[0]), scale.toAxis(state.x[1])] : [bounds.x0, bounds.x1]
  const y: Range = state.y ?? [bounds.y0, bounds.y1]
  return clamp({ x0: x[0], x1: x[1], y0: y[0], y1: y[1] }, limits)
}

/** The part of the state that shows a window. The full range is null, so that it stays full on the other axis too. */
export function windowPatch(window: ViewWindow, limits: Limits): { x: Range | null; y: Range | null } {
  const { scale, bounds } = limits
  const { x0, x1, y0, y1 } = clamp(window, limits)
  const slack = (bounds.x1 - bounds.x0) * 1e-9
  return {
    x: x0 <= bounds.x0 + slack && x1 >= bounds.x1 - slack ? null : [scale.toEvent(x0), scale.toEvent(x1)],
    y: y0 <= 0 && y1 >= bounds.y1 * (1 - 1e-9) ? null : [y0, y1],
  }
}
