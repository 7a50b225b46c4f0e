// What every drawing routine of the timeline's overlay gets: where the plot lies, what it shows, in which colours.

import type { Axis, ViewWindow } from '../../data/model'
import type { AxisScale } from './scale'
import type { Scene } from './scene'

/** The plot inside the canvas, in CSS pixels; y down. */
export interface Plot {
  left: number
  top: number
  width: number
  height: number
}

export interface Inks {
  panel: string
  ink: string
  soft: string
  grid: string
  reserved: string
  peak: string
  oom: string
  snapshot: string
  accent: string
  selection: string
  halo: string
}

export interface Frame {
  ctx: CanvasRenderingContext2D
  scene: Scene
  axis: Axis
  scale: AxisScale
  window: ViewWindow
  plot: Plot
  inks: Inks
  font: string
}

export function xToPixel({ window, plot }: Pick<Frame, 'window' | 'plot'>, x: number): number {
  return plot.left + ((x - window.x0) / (window.x1 - window.x0)) * plot.width
}

export function yToPixel({ window, plot }: Pick<Frame, 'window' | 'plot'>, bytes: number): number {
  return plot.top + plot.height - ((bytes - window.y0) / (window.y1 - window.y0)) * plot.height
}

export function pixelToX({ window, plot }: Pick<Frame, 'window' | 'plot'>, pixel: number): number {
  return window.x0 + ((pixel - plot.left) / plot.width) * (window.x1 - window.x0)
}

export function pixelToY({ window, plot }: Pick<Frame, 'window' | 'plot'>, pixel: number): number {
  return window.y0 + ((plot.top + plot.height - pixel) / plot.height) * (window.y1 - window.y0)
}

/** Room for labels around the plot; less of it where there is little to give. */
export function layOut(width: number, height: number): Plot {
  const left = width < 560 ? 58 : 76
  const right = width < 560 ? 8 : 14
  return { left, top: 22, width: Math.max(1, width - left - right), height: Math.max(1, height - 22 - 26) }
}

/** Colours from the style sheet's custom properties. */
export function readInks(element: Element): Inks {
  const style = getComputedStyle(element)
  const read = (name: string): string => style.getPropertyValue(`--${name}`).trim() || '#888'
  return {
    panel: read('panel'),
    ink: read('ink'),
    soft: read('ink-soft'),
    grid: read('grid'),
    reserved: read('reserved'),
    peak: read('peak'),
    oom: read('oom'),
    snapshot: read('snapshot'),
    accent: read('accent'),
    selection: read('selection'),
    halo: read('halo'),
  }
}
