// The input of every drawing routine of the timeline: the plot's place, what it shows, and the colours.
//
// Inside the plot everything is a rectangle for the GL canvas, in CSS pixels from the plot's upper left corner, y down.
// Text is drawn around it on three strips of 2D canvas, in the same coordinates.

import type { RectList } from '../../gl/rects'
import type { Rect } from '../../layout/viewport'
import type { Inks } from '../shared/inks'
import type { Box } from '../shared/plot-frame'
import type { AxisScale } from '../shared/x-window'
import type { Scene } from '../shared/scene'

export interface Strips {
  left: CanvasRenderingContext2D
  top: CanvasRenderingContext2D
  bottom: CanvasRenderingContext2D
}

export interface Frame {
  rects: RectList
  strips: Strips
  scene: Scene
  scale: AxisScale
  /**
   * x in axis units (event axis: position s occupies [s-1, s); time axis: µs since time0), y in bytes from the bottom
   * of the stack.
   */
  window: Rect
  /** Inside the element, in CSS pixels. */
  plot: Box
  inks: Inks
  /** Bytes below which everything is folded away; 0: nothing is. */
  yBottom: number
  /** The moment of the other views, as an event; null: the peak. */
  moment: number | null
}

type Placed = Pick<Frame, 'window' | 'plot'>

export function xToPixel({ window, plot }: Placed, x: number): number {
  return ((x - window.x0) / (window.x1 - window.x0)) * plot.width
}

export function yToPixel({ window, plot }: Placed, bytes: number): number {
  return plot.height - ((bytes - window.y0) / (window.y1 - window.y0)) * plot.height
}

export function pixelToX({ window, plot }: Placed, pixel: number): number {
  return window.x0 + (pixel / plot.width) * (window.x1 - window.x0)
}

export function pixelToY({ window, plot }: Placed, pixel: number): number {
  return window.y0 + ((plot.height - pixel) / plot.height) * (window.y1 - window.y0)
}

export const TOP_STRIP = 24
export const BOTTOM_STRIP = 28

/** Room for labels around the plot; less of it where there is little to give. */
export function layOut(width: number, height: number): Box {
  const left = width < 560 ? 66 : 78
  const right = width < 560 ? 8 : 16
  return {
    left,
    top: TOP_STRIP,
    width: Math.max(1, width - left - right),
    height: Math.max(1, height - TOP_STRIP - BOTTOM_STRIP),
  }
}
