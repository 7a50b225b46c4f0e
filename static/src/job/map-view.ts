// The heat map: rows of ranks, columns of steps, time or events. Draws what the state says and turns input into new states.

import type { Rect } from '../layout/viewport'
import { CanvasView } from '../views/shared/canvas-view'
import { PointerInput } from '../views/shared/pointer'
import { cssOfLevel, type Heat, type HeatScale, levelOf, MapHeat, MIDDLE_LEVEL } from './map-heat'
import { paintHeat } from './heat-pixels'
import type { JobModel } from './job-model'
import { brushedRows, type ColumnRange, type JobActions } from './job-state'
import { MapBoxes } from './map-boxes'
import {
  type Cell,
  cellAt,
  columnToX,
  layOutMap,
  type MapGeometry,
  MapWindow,
  type Placed,
  placeToY,
  type Zone,
  zoneAt,
} from './map-geometry'
import { describeCell, describeColumn, describeRow } from './map-describe'
import { drawAround, labelWidth } from './map-labels'

/** Rows that page keys move by. */
const PAGE_ROWS = 10

export class MapView extends CanvasView {
  private readonly boxes = new MapBoxes()
  private readonly heats = new MapHeat()
  private readonly window = new MapWindow()
  private readonly pointer: PointerInput
  private model: JobModel | null = null
  private geometry: MapGeometry = layOutMap(100, 100, 30, 1)
  private sized = ''
  private heat: Heat | null = null
  private cursor: Cell | null = null

  constructor(private readonly actions: JobActions) {
    super(
      {
        class: 'job-map surface',
        'aria-roledescription': 'heat map',
        'aria-label': 'Heat map of ranks. Arrow keys move the cell, Enter picks its rank, Shift and arrows select.',
      },
      null,
    )
    this.plot.append(this.canvas, this.boxes.brush, this.boxes.cursor, this.tooltip.element)
    this.pointer = new PointerInput(this.element, {
      pan: (dx, dy) => this.scroll(-dx, -dy),
      zoom: (x, y, plain, shifted) => {
        // The direction that has more cells than pixels needs the zoom; with shift, or over the axis, it is the columns'.
        if (zoneAt(this.geometry, x, y) === 'columns') this.zoom(x, y, plain * shifted, 1)
        else this.zoom(x, y, shifted, plain)
      },
      pinch: (x, y, factorX, factorY) => this.zoom(x, y, factorX, factorY),
      wheel: (x, y, dy, { ctrlKey }) => {
        const isOnNames = zoneAt(this.geometry, x, y) === 'rows' && !ctrlKey
        if (isOnNames) this.scroll(0, dy)
        return isOnNames
      },
      box: (box) => (box ? this.brush(box, false) : this.placeBrush()),
      zoomToBox: (box) => this.brush(box, true),
      hover: (x, y) => this.point(x, y),
      leave: () => this.tooltip.hide(),
      click: (x, y) => this.pick(this.cellAt(x, y), zoneAt(this.geometry, x, y)),
      fit: () => this.fit(),
      origin: () => ({ left: 0, top: 0 }),
      boxMode: () => true,
    })
    this.element.addEventListener('blur', () => this.showCursor(null))
    new ResizeObserver(() => this.model && this.show(this.model)).observe(this.element)
  }

  /** Bytes at both ends of the colours. */
  get scale(): HeatScale | null {
    return this.heat?.scale ?? null
  }

  get colours(): Uint8Array | null {
    return this.heat?.palette ?? null
  }

  show(model: JobModel): void {
    this.model = model
    const sized = `${model.state.axis.key}/${model.data.rows}`
    this.window.size = [model.order.length, model.state.axis.columns]
    if (sized !== this.sized) {
      this.sized = sized
      this.window.fit()
      this.cursor = null
    }
    this.heat = this.heats.of(model)
    this.draw()
  }

  /** Shows everything. */
  fit(): void {
    this.window.fit()
    this.frame.request()
  }

  /** Zooms to the brushed cells, as far as their rows are neighbours. */
  zoomToBrush(): void {
    if (!this.model) return
    this.window.zoomToBrush(this.model)
    this.frame.request()
  }

  /** Keys while the map has the focus; true when used. */
  key(event: KeyboardEvent): boolean {
    const moves: Record<string, [number, number]> = {
      ArrowUp: [-1, 0],
      ArrowDown: [1, 0],
      ArrowLeft: [0, -1],
      ArrowRight: [0, 1],
      PageUp: [-PAGE_ROWS, 0],
      PageDown: [PAGE_ROWS, 0],
      Home: [0, -Infinity],
      End: [0, Infinity],
    }
    const move = moves[event.key]
    if (move) return (this.move(...move, event.shiftKey), true)
    switch (event.key) {
      case 'Enter':
      case ' ':
        if (this.cursor) this.pick(this.cursor, 'cells')
        return true
      case '+':
      case '=':
        return (this.zoomAtCursor(0.7, event.shiftKey), true)
      case '-':
      case '_':
        return (this.zoomAtCursor(1 / 0.7, event.shiftKey), true)
      case '0':
        return (this.fit(), true)
      case 'z':
        return (this.zoomToBrush(), true)
      default:
        return false
    }
  }

  cancelDrag(): boolean {
    return this.pointer.cancelDrag()
  }

  settled(): Promise<void> {
    return new Promise((resolve) => requestAnimationFrame(() => resolve()))
  }

  debug(): unknown {
    const { geometry, window, heat } = this
    return { geometry, window: window.shown, scale: heat?.scale, cursor: this.cursor }
  }

  // Drawing

  protected draw(): void {
    const { model, heat } = this
    const window = this.window.shown
    const { clientWidth: width, clientHeight: height } = this.element
    if (!model || !heat || width < 60 || height < 60) return
    const ctx = this.begin(this.canvas)
    this.geometry = layOutMap(width, height, labelWidth(ctx, model, width), model.order.length)
    const { left, top, right, bottom } = this.geometry
    const style = {
      palette: heat.palette,
      background: model.inks.panel,
      centre: model.state.isAgainst ? MIDDLE_LEVEL : 0,
    }
    const box = { left, top, width: right - left, height: bottom - top }
    ctx.imageSmoothingEnabled = false
    this.paintPixels(ctx, box, model.inks, false, (words, across, down) =>
      paintHeat(words, across, down, heat.cells, window, style),
    )
    drawAround({ ...this.placed, ctx, model, heat })
    this.boxes.placeBrush(this.placed, model)
    this.boxes.placeCursor(this.placed, this.cursor)
  }

  private placeBrush(): void {
    if (this.model) this.boxes.placeBrush(this.placed, this.model)
  }

  private get placed(): Placed {
    return { geometry: this.geometry, window: this.window.shown }
  }

  // Input

  private cellAt(x: number, y: number): Cell {
    return cellAt(this.placed, x, y, ...this.window.size)
  }

  private point(x: number, y: number): void {
    const { model, heat } = this
    const zone = zoneAt(this.geometry, x, y)
    if (zone === 'none' || !model || !heat) return this.tooltip.hide()
    const cell = this.cellAt(x, y)
    const row = model.order[cell.place]
    if (zone === 'rows') this.tooltip.show(describeRow(model, row), x, y, null)
    else if (zone === 'columns') this.tooltip.show(describeColumn(model, heat.matrix, cell.column), x, y, null)
    else {
      const level = levelOf(heat.matrix.bytes[row * heat.matrix.columns + cell.column], heat.scale)
      this.tooltip.show(describeCell(model, row, cell.column), x, y, cssOfLevel(heat.palette, level))
    }
  }

  private pick({ place, column }: Cell, zone: Zone): void {
    const { model } = this
    if (!model || zone === 'none') return
    this.cursor = { place, column }
    if (zone === 'columns') this.actions.brush(model.state.rows && [...model.state.rows], [column, column])
    else this.actions.pickRow(model.order[place], zone === 'cells' ? column : null)
  }

  /** While a drag goes on, and when it ends. */
  private brush({ x0, y0, x1, y1 }: Rect, isDone: boolean): void {
    const { model } = this
    const zone = zoneAt(this.geometry, x0, y0)
    if (!model || zone === 'none') return
    const [from, to] = [this.cellAt(x0, y0), this.cellAt(x1, y1)]
    this.tooltip.hide()
    this.boxes.placeDrag(this.placed, model, from, to, zone)
    if (!isDone) return
    const { rows, columns } = model.state
    const brushed = zone === 'columns' ? rows && [...rows] : brushedRows(model.order, from.place, to.place)
    const range: ColumnRange | null =
      zone === 'rows' ? columns : [Math.min(from.column, to.column), Math.max(from.column, to.column)]
    const isAll = range !== null && range[0] === 0 && range[1] === model.state.axis.columns - 1
    this.actions.brush(brushed, isAll ? null : range)
    this.placeBrush()
  }

  private move(byRows: number, byColumns: number, isBrushing: boolean): void {
    const { model } = this
    if (!model) return
    const [places, columns] = this.window.size
    const { state } = model
    const from = this.cursor ?? {
      place: state.row === null ? Math.floor(this.window.shown.y0) : model.place[state.row],
      column: state.column ?? Math.floor(this.window.shown.x0),
    }
    const clamp = (value: number, count: number): number => Math.max(0, Math.min(count - 1, value))
    const isFirst = this.cursor === null
    const to = isFirst
      ? from
      : { place: clamp(from.place + byRows, places), column: clamp(from.column + byColumns, columns) }
    if (isBrushing) {
      const rows = new Set(state.rows ?? [])
      const range = state.columns
      if (byRows !== 0) for (const row of brushedRows(model.order, from.place, to.place)) rows.add(row)
      this.actions.brush(
        rows.size ? [...rows] : null,
        byColumns === 0
          ? range
          : [
              Math.min(range?.[0] ?? from.column, to.column, from.column),
              Math.max(range?.[1] ?? from.column, to.column, from.column),
            ],
      )
    }
    this.window.reveal(to.place, to.column)
    this.draw()
    this.showCursor(to)
  }

  private showCursor(cell: Cell | null): void {
    this.cursor = cell
    const { model, placed } = this
    this.boxes.placeCursor(placed, cell)
    if (!cell || !model) return this.tooltip.hide()
    const lines = describeCell(model, model.order[cell.place], cell.column)
    const x = columnToX(placed, cell.column + 1)
    const y = placeToY(placed, cell.place + 1)
    this.tooltip.show(lines, x, y, null)
    this.actions.announce(lines.map(({ text }) => text).join('. '))
  }

  private zoomAtCursor(factor: number, isAcross: boolean): void {
    const { cursor, geometry, placed } = this
    const x = cursor ? columnToX(placed, cursor.column + 0.5) : (geometry.left + geometry.right) / 2
    const y = cursor ? placeToY(placed, cursor.place + 0.5) : (geometry.top + geometry.bottom) / 2
    this.zoom(x, y, isAcross ? factor : 1, isAcross ? 1 : factor)
  }

  private zoom(x: number, y: number, factorX: number, factorY: number): void {
    this.window.zoom(this.geometry, { x, y }, factorX, factorY)
    this.frame.request()
  }

  private scroll(dx: number, dy: number): void {
    this.window.scroll(this.geometry, dx, dy)
    this.frame.request()
  }
}
