// The view is one rectangle; every function here makes a new one from an old one.
//
// viewSpace is axis units (events, or µs since the first event) by bytes, y upwards; a name says when a number is in it.

export interface Rect {
  x0: number
  x1: number
  y0: number
  y1: number
}

export interface Limits {
  /** The view stays within these. */
  bounds: Rect
  /** The closest zoom. */
  minXSpan: number
  minYSpan: number
}

/** The nearest window inside the limits; spans are kept where they can be. */
export function clamp(view: Rect, limits: Limits): Rect {
  const { bounds } = limits
  const [x0, x1] = clampRange(view.x0, view.x1, bounds.x0, bounds.x1, limits.minXSpan)
  const [y0, y1] = clampRange(view.y0, view.y1, bounds.y0, bounds.y1, limits.minYSpan)
  return { x0, x1, y0, y1 }
}

function clampRange(a: number, b: number, low: number, high: number, minSpan: number): [number, number] {
  const whole = high - low
  const span = Math.min(whole, Math.max(Math.min(minSpan, whole), b - a))
  // A window that is too narrow grows around its middle, not from one edge.
  const middle = (a + b) / 2
  const start = b - a === span ? a : middle - span / 2
  const from = Math.min(high - span, Math.max(low, start))
  return [from, from + span]
}

/** Drag: the content moves with the pointer, so the window moves against it. */
export function pan(view: Rect, dxViewSpace: number, dyViewSpace: number): Rect {
  return { x0: view.x0 + dxViewSpace, x1: view.x1 + dxViewSpace, y0: view.y0 + dyViewSpace, y1: view.y1 + dyViewSpace }
}

/** Zooms about a point, which keeps its place; factors below 1 zoom in. */
export function zoomAt(view: Rect, xViewSpace: number, yViewSpace: number, xFactor: number, yFactor: number): Rect {
  return {
    x0: xViewSpace + (view.x0 - xViewSpace) * xFactor,
    x1: xViewSpace + (view.x1 - xViewSpace) * xFactor,
    y0: yViewSpace + (view.y0 - yViewSpace) * yFactor,
    y1: yViewSpace + (view.y1 - yViewSpace) * yFactor,
  }
}

/** Zoom within limits. Factors are cut before zooming, so that the point under the cursor stays put at the closest zoom too. */
export function zoomWithin(
  view: Rect,
  limits: Limits,
  xViewSpace: number,
  yViewSpace: number,
  xFactor: number,
  yFactor: number,
): Rect {
  const { bounds } = limits
  const factor = (wanted: number, span: number, min: number, max: number) =>
    Math.min(max / span, Math.max(Math.min(min, max) / span, wanted))
  return clamp(
    zoomAt(
      view,
      xViewSpace,
      yViewSpace,
      factor(xFactor, view.x1 - view.x0, limits.minXSpan, bounds.x1 - bounds.x0),
      factor(yFactor, view.y1 - view.y0, limits.minYSpan, bounds.y1 - bounds.y0),
    ),
    limits,
  )
}
