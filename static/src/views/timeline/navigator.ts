// Moves of the window: each makes a new window from the one in the state and stores it.

import { clamp, type Limits as ViewLimits, pan, zoomWithin, type Rect } from '../../layout/viewport'
import type { Range, State, Store } from '../../ui/state'
import type { Box } from '../shared/plot-frame'
import type { AxisScale } from '../shared/x-window'
import { pixelToX, pixelToY } from './frame'

export class Navigator {
  constructor(
    private readonly store: Store,
    private readonly limits: () => Limits | null,
    private readonly plot: () => Box | null,
  ) {}

  /** The window in axis units and bytes; null until the axis has its data. */
  window(): Rect | null {
    const limits = this.limits()
    return limits && resolveWindow(this.store.state, limits)
  }

  /** Everything. */
  fit(): void {
    this.store.set({ x: null, y: null })
  }

  /** By shares of the window's width and height. */
  panBy(shareX: number, shareY: number): void {
    this.change((w) => pan(w, (w.x1 - w.x0) * shareX, (w.y1 - w.y0) * shareY))
  }

  /** The picture follows the pointer by so many CSS pixels. */
  panPixels(dx: number, dy: number): void {
    const plot = this.plot()
    if (plot) this.panBy(-dx / plot.width, dy / plot.height)
  }

  /** About a place of the canvas in CSS pixels, which keeps its content. */
  zoomAt(x: number, y: number, factorX: number, factorY: number): void {
    const plot = this.plot()
    if (!plot) return
    this.change((window, limits) => {
      const here = { window, plot }
      return zoomWithin(window, limits, pixelToX(here, x), pixelToY(here, y), factorX, factorY)
    })
  }

  zoomToBox(box: Rect): void {
    const plot = this.plot()
    if (!plot) return
    this.change((window) => {
      const here = { window, plot }
      // A flat or a narrow box means one axis: nobody draws a line on purpose to see nothing.
      const wide = Math.abs(box.x1 - box.x0) >= 4
      const tall = Math.abs(box.y1 - box.y0) >= 4
      return {
        x0: wide ? pixelToX(here, Math.min(box.x0, box.x1)) : window.x0,
        x1: wide ? pixelToX(here, Math.max(box.x0, box.x1)) : window.x1,
        y0: tall ? pixelToY(here, Math.max(box.y0, box.y1)) : window.y0,
        y1: tall ? pixelToY(here, Math.min(box.y0, box.y1)) : window.y1,
      }
    })
  }

  showX(x0: number, x1: number): void {
    this.change((w) => ({ ...w, x0, x1 }))
  }

  /** An event in the middle, over the whole height; a window over everything becomes a twentieth of it. */
  centreOn(event: number): void {
    this.store.jumps++
    this.change((w, { scale, bounds, yBottom }) => {
      const x = scale.toAxis(event)
      const span = this.store.state.x === null ? (bounds.x1 - bounds.x0) / 20 : w.x1 - w.x0
      return { x0: x - span / 2, x1: x + span / 2, y0: yBottom, y1: bounds.y1 }
    })
  }

  private change(next: (window: Rect, limits: Limits) => Rect): void {
    const limits = this.limits()
    if (limits) this.store.set(windowPatch(next(resolveWindow(this.store.state, limits), limits), limits))
  }
}

export interface Limits extends ViewLimits {
  scale: AxisScale
  /** Bytes at which the view that shows everything begins; 0 unless what never changes is folded away. */
  yBottom: number
}

/** Below this a band of one byte would be taller than most screens. */
const MIN_BYTES = 64

export function limitsOf(scale: AxisScale, yTop: number, yBottom = 0): Limits {
  return { scale, bounds: { x0: scale.x0, x1: scale.x1, y0: 0, y1: yTop }, yBottom, minXSpan: 1, minYSpan: MIN_BYTES }
}

export function resolveWindow(state: State, limits: Limits): Rect {
  const { scale, bounds, yBottom } = limits
  const x: Range = state.x ? [scale.toAxis(state.x[0]), scale.toAxis(state.x[1])] : [bounds.x0, bounds.x1]
  const y: Range = state.y ?? [yBottom, bounds.y1]
  return clamp({ x0: x[0], x1: x[1], y0: y[0], y1: y[1] }, limits)
}

/** The part of the state that shows a window. The full range is null, so that it stays full on the other axis too. */
function windowPatch(window: Rect, limits: Limits): { x: Range | null; y: Range | null } {
  const { scale, bounds, yBottom } = limits
  const { x0, x1, y0, y1 } = clamp(window, limits)
  const height = bounds.y1 - bounds.y0
  const slack = (bounds.x1 - bounds.x0) * 1e-9
  return {
    x: x0 <= bounds.x0 + slack && x1 >= bounds.x1 - slack ? null : [scale.toEvent(x0), scale.toEvent(x1)],
    y: Math.abs(y0 - yBottom) <= height * 1e-9 && y1 >= bounds.y1 - height * 1e-9 ? null : [y0, y1],
  }
}
