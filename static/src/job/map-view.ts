// The heat map: rows of ranks, columns of steps, time or events. Draws what the state says and turns input into new states.

import type { HeatCells, HeatWindow } from '../gl/heat-raster'
import { h } from '../ui/dom'
import { CanvasView } from '../views/shared/canvas-view'
import { cssOfLevel } from './colour-scale'
import { againstGroups, type HeatScale, heatCells, levelOf, MIDDLE_LEVEL, scaleOf } from './heat-cells'
import { heatPalette } from './heat-colours'
import { HeatStage } from './heat-stage'
import type { HeatMatrix } from './job-data'
import type { JobModel } from './job-model'
import type { JobActions } from './job-state'
import { describeCell, describeColumn, describeRow } from './map-describe'
import {
  columnToX,
  layOutMap,
  type MapGeometry,
  placeToY,
  reveal,
  shiftInside,
  type Zone,
  zoomRange,
} from './map-geometry'
import { drawAround, labelWidth } from './map-labels'
import { type Cell, MapPointer } from './map-pointer'
import { brushedRows, type ColumnRange } from './selection'
import { type Spread, spreadOf } from './statistics'

/** The closest zoom, in cells. */
const LEAST_ROWS = 4
const LEAST_COLUMNS = 2
/** Rows that page keys move by. */
const PAGE_ROWS = 10

interface Heat {
  key: string
  matrix: HeatMatrix
  scale: HeatScale
  cells: HeatCells
  /** Of the brushed rows, by column. */
  spreads: (Spread | null)[]
}

export class MapView extends CanvasView {
  private readonly stage = new HeatStage()
  private readonly brushBox = h('div', { class: 'job-brush', hidden: true })
  private readonly cursorBox = h('div', { class: 'job-cursor', hidden: true })
  private readonly pointer: MapPointer
  private model: JobModel | null = null
  private geometry: MapGeometry = layOutMap(100, 100, 30)
  private window: HeatWindow = { x0: 0, x1: 1, y0: 0, y1: 1 }
  private sized = ''
  private heat: Heat | null = null
  private absolute: { key: string; matrix: HeatMatrix } | null = null
  private palette: { key: string; rgba: Uint8Array } | null = null
  private cursor: Cell | null = null

  constructor(private readonly actions: JobActions) {
    super(
      {
        class: 'job-map',
        'aria-roledescription': 'heat map',
        'aria-label': 'Heat map of ranks. Arrow keys move the cell, Enter picks its rank, Shift and arrows select.',
      },
      null,
    )
    this.canvas.className = 'job-around'
    this.plot.append(this.stage.canvas, this.canvas, this.brushBox, this.cursorBox, this.tooltip.element)
    this.pointer = new MapPointer(this.element, {
      geometry: () => this.geometry,
      window: () => this.window,
      size: () => this.size(),
      point: (cell, x, y, zone) => this.point(cell, x, y, zone),
      pick: (cell, zone) => this.pick(cell, zone),
      brush: (from, to, zone, isDone) => this.brush(from, to, zone, isDone),
      cancel: () => this.placeBrush(),
      zoom: (at, factorX, factorY) => this.zoom(at, factorX, factorY),
      scroll: (dx, dy) => this.scroll(dx, dy),
    })
    this.element.addEventListener('dblclick', () => this.fit())
    this.element.addEventListener('blur', () => this.showCursor(null))
    new ResizeObserver(() => this.model && this.show(this.model)).observe(this.element)
  }

  /** Bytes at both ends of the colours. */
  get scale(): HeatScale | null {
    return this.heat?.scale ?? null
  }

  get colours(): Uint8Array | null {
    return this.palette?.rgba ?? null
  }

  get isWebGl(): boolean {
    return this.stage.isWebGl
  }

  show(model: JobModel): void {
    this.model = model
    const sized = `${model.state.axis.key}/${model.data.rows}`
    if (sized !== this.sized) {
      this.sized = sized
      this.window = this.whole()
      this.cursor = null
    }
    this.prepare(model)
    this.draw()
  }

  /** Everything again. */
  fit(): void {
    this.window = this.whole()
    this.frame.request()
  }

  /** What is brushed fills the map, as far as its rows are neighbours. */
  zoomToBrush(): void {
    const { model } = this
    if (!model) return
    const { rows, columns } = model.state
    const places = rows ? [...rows].map((row) => model.place[row]) : null
    const [x0, x1] = columns ? [columns[0], columns[1] + 1] : [this.window.x0, this.window.x1]
    const [y0, y1] = places ? [Math.min(...places), Math.max(...places) + 1] : [this.window.y0, this.window.y1]
    this.window = { x0, x1, y0, y1 }
    this.frame.request()
  }

  get isZoomed(): boolean {
    const fullWindow = this.whole()
    return (['x0', 'x1', 'y0', 'y1'] as const).some((side) => this.window[side] !== fullWindow[side])
  }

  /** Brings a row into view. */
  reveal(row: number): void {
    const { model } = this
    if (!model) return
    const [places, columns] = this.size()
    const column = Math.floor((this.window.x0 + this.window.x1) / 2)
    this.window = reveal(this.window, model.place[row], column, places, columns)
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

  /** The map as it is on screen. */
  override picture(): HTMLCanvasElement {
    const { canvas, geometry } = this
    this.draw()
    const out = h('canvas')
    out.width = canvas.width
    out.height = canvas.height
    const ctx = out.getContext('2d')!
    ctx.fillStyle = getComputedStyle(this.element).getPropertyValue('--panel')
    ctx.fillRect(0, 0, out.width, out.height)
    const ratio = out.width / geometry.width
    const { left, top, right, bottom } = geometry
    ctx.imageSmoothingEnabled = false
    ctx.drawImage(this.stage.canvas, left * ratio, top * ratio, (right - left) * ratio, (bottom - top) * ratio)
    ctx.drawImage(canvas, 0, 0)
    return out
  }

  testContextLoss(): void {
    this.stage.testContextLoss()
  }

  debug(): unknown {
    const { geometry, window, heat } = this
    return { geometry, window, scale: heat?.scale, cursor: this.cursor, isWebGl: this.isWebGl }
  }

  // Drawing

  private size(): [number, number] {
    return this.model ? [this.model.order.length, this.model.state.axis.columns] : [1, 1]
  }

  private whole(): HeatWindow {
    const [places, columns] = this.size()
    return { x0: 0, x1: columns, y0: 0, y1: places }
  }

  /** Values, levels and colours of what is shown, each made again only when it differs. */
  private prepare({ data, state, order, rows: counted, dark, inks }: JobModel): void {
    const { axis, metric, isAgainst, rows, columns } = state
    const shown = `${axis.key}/${metric}/${isAgainst}`
    if (this.absolute?.key !== shown) {
      const plain = data.matrix(axis.key, metric)
      this.absolute = {
        key: shown,
        matrix: isAgainst ? againstGroups(plain, data.expected(axis.key, metric)) : plain,
      }
    }
    const { matrix } = this.absolute
    const key = [shown, order.join(), rows && [...rows].join(), columns?.join('-')].join('/')
    if (this.heat?.key !== key) {
      const scale = scaleOf(matrix, metric, isAgainst)
      const spreads = Array.from({ length: matrix.columns }, (_, column) =>
        spreadOf(counted.map((row) => matrix.bytes[row * matrix.columns + column])),
      )
      this.heat = { key, matrix, scale, cells: heatCells(matrix, order, scale, rows, columns), spreads }
    }
    const paletteKey = `${isAgainst}/${dark}/${inks.panel}`
    if (this.palette?.key !== paletteKey)
      this.palette = { key: paletteKey, rgba: heatPalette(isAgainst, dark, inks.panel, inks.ink) }
  }

  protected draw(): void {
    const { model, heat, palette } = this
    const { clientWidth: width, clientHeight: height } = this.element
    if (!model || !heat || !palette || width < 60 || height < 60) return
    const ctx = this.begin(this.canvas)
    this.geometry = layOutMap(width, height, labelWidth(ctx, model, width))
    const { left, top, right, bottom } = this.geometry
    const style = {
      palette: palette.rgba,
      background: model.inks.panel,
      centre: model.state.isAgainst ? MIDDLE_LEVEL : 0,
    }
    this.stage.draw(heat.cells, this.window, style, right - left, bottom - top)
    this.stage.canvas.style.transform = `translate(${left}px, ${top}px)`
    drawAround(ctx, model, this.geometry, this.window, heat.spreads)
    this.placeBrush()
    this.placeCursor()
  }

  private placeBrush(from?: Cell, to?: Cell, zone: Zone = 'cells'): void {
    const { model } = this
    if (!model) return
    const { columns, rows } = model.state
    const [places] = this.size()
    if (from && to) {
      const isRows = zone !== 'columns'
      const isColumns = zone !== 'rows'
      this.placeBox(
        this.brushBox,
        isColumns ? Math.min(from.column, to.column) : 0,
        isColumns ? Math.max(from.column, to.column) + 1 : model.state.axis.columns,
        isRows ? Math.min(from.place, to.place) : 0,
        isRows ? Math.max(from.place, to.place) + 1 : places,
      )
    } else if (columns) {
      // Selected rows need not be neighbours: colours mark them, and an outline marks the columns.
      const all = rows ? [...rows].map((row) => model.place[row]) : [0, places - 1]
      this.placeBox(this.brushBox, columns[0], columns[1] + 1, Math.min(...all), Math.max(...all) + 1)
    } else this.brushBox.hidden = true
  }

  private placeCursor(): void {
    const { cursor } = this
    if (!cursor) this.cursorBox.hidden = true
    else this.placeBox(this.cursorBox, cursor.column, cursor.column + 1, cursor.place, cursor.place + 1)
  }

  private placeBox(box: HTMLElement, column0: number, column1: number, place0: number, place1: number): void {
    const { geometry, window } = this
    const clampX = (x: number): number => Math.min(geometry.right, Math.max(geometry.left, x))
    const clampY = (y: number): number => Math.min(geometry.bottom, Math.max(geometry.top, y))
    const [left, right] = [column0, column1].map((column) => clampX(columnToX(geometry, window, column)))
    const [top, bottom] = [place0, place1].map((place) => clampY(placeToY(geometry, window, place)))
    box.hidden = right <= left || bottom <= top
    box.style.transform = `translate(${left}px, ${top}px)`
    box.style.width = `${Math.max(3, right - left)}px`
    box.style.height = `${Math.max(3, bottom - top)}px`
  }

  // Input

  private point(cell: Cell | null, x: number, y: number, zone: Zone): void {
    const { model, heat } = this
    if (!cell || !model || !heat) return this.tooltip.hide()
    const row = model.order[cell.place]
    if (zone === 'rows') this.tooltip.show(describeRow(model, row), x, y, null)
    else if (zone === 'columns') this.tooltip.show(describeColumn(model, heat.matrix, cell.column), x, y, null)
    else {
      const level = levelOf(heat.matrix.bytes[row * heat.matrix.columns + cell.column], heat.scale)
      this.tooltip.show(describeCell(model, row, cell.column), x, y, cssOfLevel(this.palette!.rgba, level))
    }
  }

  private pick({ place, column }: Cell, zone: Zone): void {
    const { model } = this
    if (!model) return
    this.cursor = { place, column }
    if (zone === 'columns') this.actions.brush(model.state.rows && [...model.state.rows], [column, column])
    else this.actions.pickRow(model.order[place], zone === 'cells' ? column : null)
  }

  private brush(from: Cell, to: Cell, zone: Zone, isDone: boolean): void {
    const { model } = this
    if (!model) return
    this.tooltip.hide()
    this.placeBrush(from, to, zone)
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
    const [places, columns] = this.size()
    const { state } = model
    const from = this.cursor ?? {
      place: state.row === null ? Math.floor(this.window.y0) : model.place[state.row],
      column: state.column ?? Math.floor(this.window.x0),
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
    this.window = reveal(this.window, to.place, to.column, places, columns)
    this.draw()
    this.showCursor(to)
  }

  private showCursor(cell: Cell | null): void {
    this.cursor = cell
    this.placeCursor()
    const { model } = this
    if (!cell || !model) return this.tooltip.hide()
    const lines = describeCell(model, model.order[cell.place], cell.column)
    const x = columnToX(this.geometry, this.window, cell.column + 1)
    const y = placeToY(this.geometry, this.window, cell.place + 1)
    this.tooltip.show(lines, x, y, null)
    this.actions.announce(lines.map(({ text }) => text).join('. '))
  }

  private zoomAtCursor(factor: number, isAcross: boolean): void {
    const { cursor, geometry, window } = this
    const x = cursor ? columnToX(geometry, window, cursor.column + 0.5) : (geometry.left + geometry.right) / 2
    const y = cursor ? placeToY(geometry, window, cursor.place + 0.5) : (geometry.top + geometry.bottom) / 2
    this.zoom({ x, y }, isAcross ? factor : 1, isAcross ? 1 : factor)
  }

  private zoom(at: { x: number; y: number }, factorX: number, factorY: number): void {
    const { geometry, window } = this
    const [places, columns] = this.size()
    const across = (at.x - geometry.left) / (geometry.right - geometry.left)
    const down = (at.y - geometry.top) / (geometry.bottom - geometry.top)
    const column = window.x0 + Math.min(1, Math.max(0, across)) * (window.x1 - window.x0)
    const place = window.y0 + Math.min(1, Math.max(0, down)) * (window.y1 - window.y0)
    const [x0, x1] = zoomRange(window.x0, window.x1, column, factorX, columns, LEAST_COLUMNS)
    const [y0, y1] = zoomRange(window.y0, window.y1, place, factorY, places, LEAST_ROWS)
    this.window = { x0, x1, y0, y1 }
    this.frame.request()
  }

  private scroll(dx: number, dy: number): void {
    const { geometry, window } = this
    const [places, columns] = this.size()
    const perPixelX = (window.x1 - window.x0) / (geometry.right - geometry.left)
    const perPixelY = (window.y1 - window.y0) / (geometry.bottom - geometry.top)
    const [x0, x1] = shiftInside(window.x0 + dx * perPixelX, window.x1 - window.x0, columns)
    const [y0, y1] = shiftInside(window.y0 + dy * perPixelY, window.y1 - window.y0, places)
    this.window = { x0, x1, y0, y1 }
    this.frame.request()
  }
}
