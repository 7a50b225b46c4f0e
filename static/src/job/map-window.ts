// Which cells the map shows: its window in places and columns, zoomed, scrolled and moved. No DOM.

import type { HeatWindow } from '../gl/heat-raster'
import type { JobModel } from './job-model'
import { type MapGeometry, reveal, shiftInside, zoomRange } from './map-geometry'

/** The closest zoom, in cells. */
const MIN_ROWS = 4
const MIN_COLUMNS = 2

export class MapWindow {
  /** x in columns, y in places. */
  shown: HeatWindow = { x0: 0, x1: 1, y0: 0, y1: 1 }
  /** Places and columns that there are. */
  size: [places: number, columns: number] = [1, 1]

  /** Everything. */
  fit(): void {
    this.shown = this.whole()
  }

  get isZoomed(): boolean {
    const whole = this.whole()
    return (['x0', 'x1', 'y0', 'y1'] as const).some((side) => this.shown[side] !== whole[side])
  }

  /** Zooms to the brushed cells, as far as their rows are neighbours. */
  zoomToBrush({ state: { rows, columns }, place }: JobModel): void {
    const places = rows ? [...rows].map((row) => place[row]) : null
    const [x0, x1] = columns ? [columns[0], columns[1] + 1] : [this.shown.x0, this.shown.x1]
    const [y0, y1] = places ? [Math.min(...places), Math.max(...places) + 1] : [this.shown.y0, this.shown.y1]
    this.shown = { x0, x1, y0, y1 }
  }

  /** Brings a place into view, and with a column that cell. */
  reveal(place: number, column = Math.floor((this.shown.x0 + this.shown.x1) / 2)): void {
    this.shown = reveal(this.shown, place, column, ...this.size)
  }

  /** Zooms about a pixel of the map's element, which keeps its place. Factors below 1 zoom in. */
  zoom(geometry: MapGeometry, at: { x: number; y: number }, factorX: number, factorY: number): void {
    const { shown } = this
    const [places, columns] = this.size
    const across = (at.x - geometry.left) / (geometry.right - geometry.left)
    const down = (at.y - geometry.top) / (geometry.bottom - geometry.top)
    const column = shown.x0 + Math.min(1, Math.max(0, across)) * (shown.x1 - shown.x0)
    const place = shown.y0 + Math.min(1, Math.max(0, down)) * (shown.y1 - shown.y0)
    const [x0, x1] = zoomRange(shown.x0, shown.x1, column, factorX, columns, MIN_COLUMNS)
    const [y0, y1] = zoomRange(shown.y0, shown.y1, place, factorY, places, MIN_ROWS)
    this.shown = { x0, x1, y0, y1 }
  }

  /** Scrolls by pixels. */
  scroll(geometry: MapGeometry, dx: number, dy: number): void {
    const { shown } = this
    const [places, columns] = this.size
    const perPixelX = (shown.x1 - shown.x0) / (geometry.right - geometry.left)
    const perPixelY = (shown.y1 - shown.y0) / (geometry.bottom - geometry.top)
    const [x0, x1] = shiftInside(shown.x0 + dx * perPixelX, shown.x1 - shown.x0, columns)
    const [y0, y1] = shiftInside(shown.y0 + dy * perPixelY, shown.y1 - shown.y0, places)
    this.shown = { x0, x1, y0, y1 }
  }

  private whole(): HeatWindow {
    const [places, columns] = this.size
    return { x0: 0, x1: columns, y0: 0, y1: places }
  }
}
