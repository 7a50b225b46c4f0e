// The input of every drawing routine of the timeline: the plot's place, what it shows, and the colours.
//
// Inside the plot everything is a rectangle for the GL canvas, in CSS pixels from the plot's upper left corner, y down.
// Text is drawn around it on three strips of 2D canvas, in the same coordinates.

import type { Axis, ViewWindow } from '../../data/model'
import type { Colour, RectList } from '../../gl/rects'
import type { AxisScale } from '../shared/scale'
import type { Scene } from '../shared/scene'

/** The plot inside the element, in CSS pixels. */
export interface Plot {
  left: number
  top: number
  width: number
  height: number
}

export type InkName =
  | 'panel'
  | 'ink'
  | 'ink-soft'
  | 'grid'
  | 'reserved'
  | 'peak'
  | 'oom'
  | 'snapshot'
  | 'accent'
  | 'selection'
  | 'halo'

export interface Ink {
  css: string
  rgba: Colour
}

export type Inks = Record<InkName, Ink>

export interface Strips {
  left: CanvasRenderingContext2D
  top: CanvasRenderingContext2D
  bottom: CanvasRenderingContext2D
}

export interface Frame {
  rects: RectList
  strips: Strips
  scene: Scene
  axis: Axis
  scale: AxisScale
  window: ViewWindow
  plot: Plot
  inks: Inks
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
export function layOut(width: number, height: number): Plot {
  const left = width < 560 ? 66 : 78
  const right = width < 560 ? 8 : 16
  return {
    left,
    top: TOP_STRIP,
    width: Math.max(1, width - left - right),
    height: Math.max(1, height - TOP_STRIP - BOTTOM_STRIP),
  }
}

const INK_NAMES: readonly InkName[] = [
  'panel',
  'ink',
  'ink-soft',
  'grid',
  'reserved',
  'peak',
  'oom',
  'snapshot',
  'accent',
  'selection',
  'halo',
]

/** Colours from the style sheet's custom properties, which are all written #rrggbb or #rrggbbaa. */
export function readInks(element: Element): Inks {
  const style = getComputedStyle(element)
  return Object.fromEntries(
    INK_NAMES.map((name) => {
      const css = style.getPropertyValue(`--${name}`).trim()
      return [name, { css, rgba: parseHex(css) }]
    }),
  ) as Inks
}

function parseHex(css: string): Colour {
  const match = /^#([0-9a-f]{6})([0-9a-f]{2})?$/i.exec(css)
  if (!match) return [128, 128, 128, 255]
  const bits = parseInt(match[1], 16)
  return [bits >> 16, (bits >> 8) & 255, bits & 255, match[2] ? parseInt(match[2], 16) : 255]
}
