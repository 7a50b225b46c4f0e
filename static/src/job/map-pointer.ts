// Mouse, pen and touch on the map: pointing, picking, brushing, zooming.

import type { HeatWindow } from '../gl/heat-raster'
import { cellAt, type MapGeometry, type Zone, zoneAt } from './map-geometry'

export interface Cell {
  place: number
  column: number
}

export interface MapPointerActions {
  geometry(): MapGeometry
  window(): HeatWindow
  /** Places and columns that there are. */
  size(): [places: number, columns: number]
  point(cell: Cell | null, x: number, y: number, zone: Zone): void
  pick(cell: Cell, zone: Zone): void
  /** While a drag goes on, and when it ends. */
  brush(from: Cell, to: Cell, zone: Zone, isDone: boolean): void
  /** The drag was cancelled. */
  cancel(): void
  /** Factors below 1 zoom in. */
  zoom(cell: { x: number; y: number }, factorX: number, factorY: number): void
  scroll(dx: number, dy: number): void
}

/** A press that moves less is a click. */
const CLICK_PIXELS = 4
const ZOOM_PER_PIXEL = 0.0022

export class MapPointer {
  private start: { cell: Cell; zone: Zone; x: number; y: number; isDrag: boolean } | null = null

  constructor(
    private readonly element: HTMLElement,
    private readonly actions: MapPointerActions,
  ) {
    element.addEventListener('pointerdown', (event) => this.down(event))
    element.addEventListener('pointermove', (event) => this.move(event))
    element.addEventListener('pointerup', (event) => this.up(event))
    element.addEventListener('pointercancel', () => this.cancelDrag())
    element.addEventListener('pointerleave', () => {
      if (!this.start) actions.point(null, 0, 0, 'none')
    })
    element.addEventListener('wheel', (event) => this.wheel(event), { passive: false })
  }

  /** Cancels a drag; true when there was one. */
  cancelDrag(): boolean {
    const had = this.start !== null
    this.start = null
    if (had) this.actions.cancel()
    return had
  }

  private at(event: MouseEvent): { x: number; y: number; cell: Cell; zone: Zone } {
    const bounds = this.element.getBoundingClientRect()
    const [x, y] = [event.clientX - bounds.left, event.clientY - bounds.top]
    const geometry = this.actions.geometry()
    const [places, columns] = this.actions.size()
    return {
      x,
      y,
      cell: cellAt(geometry, this.actions.window(), x, y, places, columns),
      zone: zoneAt(geometry, x, y),
    }
  }

  private down(event: PointerEvent): void {
    if (event.pointerType === 'mouse' && event.button !== 0) return
    const { x, y, cell, zone } = this.at(event)
    if (zone === 'none') return
    this.element.setPointerCapture(event.pointerId)
    this.start = { cell, zone, x, y, isDrag: false }
  }

  private move(event: PointerEvent): void {
    const { x, y, cell, zone } = this.at(event)
    const { start } = this
    if (!start) {
      this.actions.point(zone === 'none' ? null : cell, x, y, zone)
      return
    }
    start.isDrag ||= Math.hypot(x - start.x, y - start.y) >= CLICK_PIXELS
    if (start.isDrag) this.actions.brush(start.cell, cell, start.zone, false)
  }

  private up(event: PointerEvent): void {
    const { start } = this
    if (!start) return
    this.start = null
    const { cell } = this.at(event)
    if (start.isDrag) this.actions.brush(start.cell, cell, start.zone, true)
    else this.actions.pick(start.cell, start.zone)
  }

  private wheel(event: WheelEvent): void {
    const { x, y, zone } = this.at(event)
    if (zone === 'none') return
    event.preventDefault()
    const unit = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? 400 : 1
    const [dx, dy] = [event.deltaX * unit, event.deltaY * unit]
    if (!event.ctrlKey && Math.abs(dx) > Math.abs(dy) && !event.shiftKey) return this.actions.scroll(dx, 0)
    if (zone === 'rows' && !event.ctrlKey) return this.actions.scroll(0, dy)
    const factor = Math.exp(Math.max(-300, Math.min(300, dy || dx)) * ZOOM_PER_PIXEL)
    // The direction that has more cells than pixels needs the zoom; with shift, or over the axis, it is the columns'.
    const isAcross = event.shiftKey || zone === 'columns'
    this.actions.zoom({ x, y }, isAcross ? factor : 1, isAcross ? 1 : factor)
  }
}
