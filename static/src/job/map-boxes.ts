// The outlines over the map: what is brushed, and the cell that the keyboard is on.

import { h } from '../ui/dom'
import type { JobModel } from './job-model'
import { type Cell, columnToX, type Placed, placeToY, type Zone } from './map-geometry'

/** Cells from the first to before the second, of columns and of places. */
type CellRange = [columns: [number, number], places: [number, number]]

/** A box is at least this wide and high, in CSS pixels. */
const MIN_PIXELS = 3

export class MapBoxes {
  readonly brush = h('div.corner.job-brush', { hidden: true })
  readonly cursor = h('div.corner.job-cursor', { hidden: true })

  /** Outlines a drag from one cell to another. */
  placeDrag(placed: Placed, model: JobModel, from: Cell, to: Cell, zone: Zone): void {
    const columns: [number, number] =
      zone === 'rows'
        ? [0, model.state.axis.columns]
        : [Math.min(from.column, to.column), Math.max(from.column, to.column) + 1]
    const places: [number, number] =
      zone === 'columns'
        ? [0, model.order.length]
        : [Math.min(from.place, to.place), Math.max(from.place, to.place) + 1]
    place(this.brush, placed, [columns, places])
  }

  /** Outlines the columns that the state selects. Selected rows need not be neighbours: colours mark them. */
  placeBrush(placed: Placed, model: JobModel): void {
    const { columns, rows } = model.state
    const places = rows ? [...rows].map((row) => model.place[row]) : [0, model.order.length - 1]
    if (!columns) this.brush.hidden = true
    else
      place(this.brush, placed, [
        [columns[0], columns[1] + 1],
        [Math.min(...places), Math.max(...places) + 1],
      ])
  }

  placeCursor(placed: Placed, cell: Cell | null): void {
    if (!cell) this.cursor.hidden = true
    else
      place(this.cursor, placed, [
        [cell.column, cell.column + 1],
        [cell.place, cell.place + 1],
      ])
  }
}

function place(box: HTMLElement, placed: Placed, [columns, places]: CellRange): void {
  const clampX = (x: number): number => Math.min(placed.geometry.right, Math.max(placed.geometry.left, x))
  const clampY = (y: number): number => Math.min(placed.geometry.bottom, Math.max(placed.geometry.top, y))
  const [left, right] = columns.map((column) => clampX(columnToX(placed, column)))
  const [top, bottom] = places.map((row) => clampY(placeToY(placed, row)))
  box.hidden = right <= left || bottom <= top
  box.style.transform = `translate(${left}px, ${top}px)`
  box.style.width = `${Math.max(MIN_PIXELS, right - left)}px`
  box.style.height = `${Math.max(MIN_PIXELS, bottom - top)}px`
}
