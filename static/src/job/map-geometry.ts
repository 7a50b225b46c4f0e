// Where the parts of the map lie, in CSS pixels of its element, and what of the job its window shows. No DOM.

import { clamp, type Limits, pan, type Rect, zoomWithin } from '../layout/viewport'
import type { JobModel } from './job-model'

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

/** Where the map lies, and the cells in sight: x in columns, y in places. */
export interface Placed {
  geometry: MapGeometry
  window: Rect
}

export interface Cell {
  place: number
  column: number
}

export type Zone = 'cells' | 'rows' | 'columns' | 'none'

const GROUP_STRIP = 7
const AXIS_HEIGHT = 24
const NARROW = 560

/** Few ranks do not fill the height: a row is not taller than this. */
const MOST_ROW = 44

export function layOutMap(width: number, height: number, labels: number, rows: number): MapGeometry {
  const bars = width < NARROW ? 0 : Math.min(150, Math.round(width * 0.12))
  const top = height < 220 ? 8 : 66
  const right = width - bars - (bars ? 12 : 8)
  return {
    width,
    height,
    left: labels + GROUP_STRIP,
    top,
    right: Math.max(labels + GROUP_STRIP + 20, right),
    bottom: Math.max(top + 20, Math.min(height - AXIS_HEIGHT, top + rows * MOST_ROW)),
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
export function cellAt({ geometry, window }: Placed, x: number, y: number, places: number, columns: number): Cell {
  const across = (x - geometry.left) / (geometry.right - geometry.left)
  const down = (y - geometry.top) / (geometry.bottom - geometry.top)
  const clamp = (value: number, count: number): number => Math.max(0, Math.min(count - 1, Math.floor(value)))
  return {
    column: clamp(window.x0 + across * (window.x1 - window.x0), columns),
    place: clamp(window.y0 + down * (window.y1 - window.y0), places),
  }
}

export function columnToX({ geometry: { left, right }, window: { x0, x1 } }: Placed, column: number): number {
  return left + ((column - x0) / (x1 - x0)) * (right - left)
}

export function placeToY({ geometry: { top, bottom }, window: { y0, y1 } }: Placed, place: number): number {
  return top + ((place - y0) / (y1 - y0)) * (bottom - top)
}

/** The closest zoom, in cells. */
const MIN_ROWS = 4
const MIN_COLUMNS = 2

export class MapWindow {
  /** x in columns, y in places. */
  shown: Rect = { x0: 0, x1: 1, y0: 0, y1: 1 }
  /** Places and columns that there are. */
  size: [places: number, columns: number] = [1, 1]

  /** Everything. */
  fit(): void {
    this.shown = this.whole()
  }

  /** Zooms to the brushed cells, as far as their rows are neighbours. */
  zoomToBrush({ state: { rows, columns }, place }: JobModel): void {
    const places = rows ? [...rows].map((row) => place[row]) : null
    const [x0, x1] = columns ? [columns[0], columns[1] + 1] : [this.shown.x0, this.shown.x1]
    const [y0, y1] = places ? [Math.min(...places), Math.max(...places) + 1] : [this.shown.y0, this.shown.y1]
    this.shown = { x0, x1, y0, y1 }
  }

  /** Moves as little as needed to contain a cell. */
  reveal(place: number, column: number): void {
    const { shown } = this
    const by = (from: number, to: number, cell: number): number => Math.min(0, cell - from) + Math.max(0, cell + 1 - to)
    this.shown = clamp(pan(shown, by(shown.x0, shown.x1, column), by(shown.y0, shown.y1, place)), this.limits)
  }

  /** Zooms about a pixel of the map's element, which keeps its place. Factors below 1 zoom in. */
  zoom(
    { left, right, top, bottom }: MapGeometry,
    at: { x: number; y: number },
    factorX: number,
    factorY: number,
  ): void {
    const { x0, x1, y0, y1 } = this.shown
    const share = (value: number, from: number, to: number): number =>
      Math.min(1, Math.max(0, (value - from) / (to - from)))
    const column = x0 + share(at.x, left, right) * (x1 - x0)
    const place = y0 + share(at.y, top, bottom) * (y1 - y0)
    this.shown = zoomWithin(this.shown, this.limits, column, place, factorX, factorY)
  }

  /** Scrolls by pixels. */
  scroll({ left, right, top, bottom }: MapGeometry, dx: number, dy: number): void {
    const { x0, x1, y0, y1 } = this.shown
    const moved = pan(this.shown, (dx * (x1 - x0)) / (right - left), (dy * (y1 - y0)) / (bottom - top))
    this.shown = clamp(moved, this.limits)
  }

  private whole(): Rect {
    const [places, columns] = this.size
    return { x0: 0, x1: columns, y0: 0, y1: places }
  }

  private get limits(): Limits {
    return { bounds: this.whole(), minXSpan: MIN_COLUMNS, minYSpan: MIN_ROWS }
  }
}
