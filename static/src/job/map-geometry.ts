// Where the parts of the map lie, in CSS pixels of its element, and what of the job its window shows. No DOM.

import type { HeatWindow } from '../gl/heat-raster'

export interface MapGeometry {
  width: number
  height: number
  /** The cells. */
  left: number
  top: number
  right: number
  bottom: number
  /** Left edge of the strip of bars behind the cells; there is none where it is `width`. */
  strip: number
}

export type Zone = 'cells' | 'rows' | 'columns' | 'none'

const GROUP_STRIP = 7
export const AXIS_HEIGHT = 24
const NARROW = 560

export function layOutMap(width: number, height: number, labels: number): MapGeometry {
  const bars = width < NARROW ? 0 : Math.min(150, Math.round(width * 0.12))
  const top = height < 220 ? 8 : 66
  const right = width - bars - (bars ? 12 : 8)
  return {
    width,
    height,
    left: labels + GROUP_STRIP,
    top,
    right: Math.max(labels + GROUP_STRIP + 20, right),
    bottom: Math.max(top + 20, height - AXIS_HEIGHT),
    strip: bars ? right + 8 : width,
  }
}

/** Left edge of the strip that has the colours of the groups. */
export function groupStrip({ left }: MapGeometry): [number, number] {
  return [left - GROUP_STRIP, left - 2]
}

export function zoneAt({ left, top, right, bottom, width, height }: MapGeometry, x: number, y: number): Zone {
  if (x < 0 || y < 0 || x > width || y > height) return 'none'
  if (x >= left && x < right) return y >= top && y < bottom ? 'cells' : 'columns'
  return y >= top && y < bottom ? 'rows' : 'none'
}

/** Place and column under a pixel, clamped to those that there are. */
export function cellAt(
  geometry: MapGeometry,
  window: HeatWindow,
  x: number,
  y: number,
  places: number,
  columns: number,
): { place: number; column: number } {
  const across = (x - geometry.left) / (geometry.right - geometry.left)
  const down = (y - geometry.top) / (geometry.bottom - geometry.top)
  const clamp = (value: number, count: number): number => Math.max(0, Math.min(count - 1, Math.floor(value)))
  return {
    column: clamp(window.x0 + across * (window.x1 - window.x0), columns),
    place: clamp(window.y0 + down * (window.y1 - window.y0), places),
  }
}

export function columnToX({ left, right }: MapGeometry, { x0, x1 }: HeatWindow, column: number): number {
  return left + ((column - x0) / (x1 - x0)) * (right - left)
}

export function placeToY({ top, bottom }: MapGeometry, { y0, y1 }: HeatWindow, place: number): number {
  return top + ((place - y0) / (y1 - y0)) * (bottom - top)
}

/** Zooms one direction about a point that keeps its place; never closer than `least` cells nor beyond all of them. */
export function zoomRange(
  from: number,
  to: number,
  at: number,
  factor: number,
  count: number,
  least: number,
): [number, number] {
  const span = Math.max(Math.min(least, count), Math.min(count, (to - from) * factor))
  const start = at - ((at - from) / (to - from)) * span
  return shiftInside(start, span, count)
}

export function shiftInside(start: number, span: number, count: number): [number, number] {
  const first = Math.max(0, Math.min(count - span, start))
  return [first, first + span]
}

/** The window, moved as little as needed to contain a cell. */
export function reveal(window: HeatWindow, place: number, column: number, places: number, columns: number): HeatWindow {
  const into = (from: number, to: number, cell: number, count: number): [number, number] => {
    const span = to - from
    if (cell < from) return shiftInside(cell, span, count)
    if (cell + 1 > to) return shiftInside(cell + 1 - span, span, count)
    return [from, to]
  }
  const [x0, x1] = into(window.x0, window.x1, column, columns)
  const [y0, y1] = into(window.y0, window.y1, place, places)
  return { x0, x1, y0, y1 }
}

/** The smallest of 1, 2, 5, 10, 20 … that is at least this. */
export function labelStep(atLeast: number): number {
  for (let power = 1; ; power *= 10)
    for (const factor of [1, 2, 5]) if (factor * power >= atLeast) return factor * power
}
