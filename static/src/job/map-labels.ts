// What surrounds the cells: names of rows, colours of groups, bars of the strip, the curves above and the axis below.

import type { JobAxis } from '../data/contracts'
import { lowerBound } from '../layout/binary-search'
import { formatBytes, formatCount } from '../layout/format'
import { decimalStep, eventTicks, timeTicks } from '../layout/ticks'
import { fitted } from '../views/shared/canvas-view'
import { css, groupColour, mix, textOn } from '../views/shared/inks'
import type { JobModel } from './job-model'
import { columnToX, groupStrip, type MapGeometry, type Placed, placeToY } from './map-geometry'
import { type Heat, levelOf, textOf } from './map-heat'
import { clippedEnd, type Spread } from './statistics'

/** Least distance of two names of rows. */
const LABEL_PIXELS = 13
/** Room for "1,023 MiB" with its sign. */
const VALUE_WIDTH = 76

interface MapFrame extends Placed {
  ctx: CanvasRenderingContext2D
  model: JobModel
  heat: Heat
}

export function drawAround(frame: MapFrame): void {
  const { geometry } = frame
  drawValues(frame)
  drawRows(frame)
  if (geometry.strip < geometry.width) drawStrip(frame)
  if (geometry.top > 20) drawCurves(frame)
  drawAxis(frame)
  drawFailures(frame)
}

/** The bytes in each cell, where all cells of the window have room for them. */
function drawValues(frame: MapFrame): void {
  const { ctx, geometry, window } = frame
  const { order, state } = frame.model
  const { matrix, scale, palette } = frame.heat
  const width = (geometry.right - geometry.left) / (window.x1 - window.x0)
  const height = (geometry.bottom - geometry.top) / (window.y1 - window.y0)
  if (width < VALUE_WIDTH || height < LABEL_PIXELS + 3) return
  ctx.textAlign = 'center'
  ctx.textBaseline = 'middle'
  for (let place = Math.ceil(window.y0); place + 1 <= Math.min(order.length, window.y1); place++) {
    const row = order[place]
    if (state.rows !== null && !state.rows.has(row)) continue
    for (let column = Math.ceil(window.x0); column + 1 <= Math.min(matrix.columns, window.x1); column++) {
      const bytes = matrix.bytes[row * matrix.columns + column]
      if (Number.isNaN(bytes)) continue
      const level = levelOf(bytes, scale)
      ctx.fillStyle = textOn([palette[4 * level], palette[4 * level + 1], palette[4 * level + 2]])
      const x = columnToX(frame, column + 0.5)
      ctx.fillText(textOf(Math.round(bytes), scale.isDiverging), x, placeToY(frame, place + 0.5))
    }
  }
}

/** The name of a row beside the map. */
function rowLabel({ data, state }: JobModel, row: number): string {
  const key = data.rank[row] < 0 ? '?' : data.keyOf(row)
  return state.sort === 'host' && data.hostOf(row) ? `${data.hostOf(row)} ${key}` : key
}

/** Room for the longest name. */
export function labelWidth(ctx: CanvasRenderingContext2D, model: JobModel, width: number): number {
  let longest = ''
  for (let row = 0; row < model.data.rows; row++) {
    const text = rowLabel(model, row)
    if (text.length > longest.length) longest = text
  }
  return Math.round(Math.min(Math.max(34, ctx.measureText(longest).width + 22), width * 0.3))
}

function drawRows(frame: MapFrame): void {
  const { ctx, model, geometry, window } = frame
  const { data, order, inks, dark, state } = model
  const perRow = (geometry.bottom - geometry.top) / (window.y1 - window.y0)
  const step = Math.max(1, decimalStep(LABEL_PIXELS / perRow))
  const [stripLeft, stripRight] = groupStrip(geometry)
  ctx.textAlign = 'right'
  ctx.textBaseline = 'middle'
  for (let place = Math.floor(window.y0); place < Math.min(order.length, window.y1); place++) {
    const row = order[place]
    const [top, bottom] = [placeToY(frame, place), placeToY(frame, place + 1)]
    const [from, to] = [Math.max(top, geometry.top), Math.min(bottom, geometry.bottom)]
    if (data.group[row] >= 0) {
      ctx.fillStyle = css(groupColour(data.group[row], dark))
      ctx.fillRect(stripLeft, from, stripRight - stripLeft, Math.max(0.5, to - from - (perRow > 4 ? 1 : 0)))
    }
    // Errors and outliers must stand out: their marks are never thinner than three pixels.
    if (data.ooms[row] > 0 || data.bytesAbove[row] > 0) {
      ctx.fillStyle = css(data.ooms[row] > 0 ? inks.oom : inks.peak)
      const height = Math.max(3, Math.min(11, to - from - 2))
      ctx.fillRect(2, (from + to - height) / 2, 4, height)
    }
    const middle = (top + bottom) / 2
    if (place % step !== 0 || row === state.row || middle < geometry.top + 4 || middle > geometry.bottom - 4) continue
    const isDim = model.state.rows !== null && !model.state.rows.has(row)
    ctx.fillStyle = css(row >= data.recorded ? inks.oom : inks.soft, isDim ? 0.5 : 1)
    ctx.fillText(rowLabel(model, row), stripLeft - 5, middle)
  }
  ctx.fillStyle = css(inks.soft)
  ctx.textBaseline = 'alphabetic'
  if (geometry.top > 20) ctx.fillText('rank', stripLeft - 5, geometry.top - 5)
  ctx.textBaseline = 'middle'
  if (state.row !== null) drawPicked(frame, state.row)
}

/** The name of the picked row, also where others are left out; on a plate, since it may lie on neighbours. */
function drawPicked(frame: MapFrame, row: number): void {
  const { ctx, model, geometry, window } = frame
  const place = model.place[row]
  if (place < window.y0 - 0.5 || place > window.y1 - 0.5) return
  const y = Math.min(Math.max(placeToY(frame, place + 0.5), geometry.top + 7), geometry.bottom - 7)
  const [right] = groupStrip(geometry)
  const text = rowLabel(model, row)
  const width = ctx.measureText(text).width
  ctx.fillStyle = css(model.inks.accent)
  ctx.fillRect(right - width - 9, y - 8, width + 8, 16)
  ctx.fillStyle = css(model.inks.panel)
  ctx.fillText(text, right - 5, y)
}

function drawStrip(frame: MapFrame): void {
  const { ctx, model, geometry, window } = frame
  const { data, order, shown, inks, shownName } = model
  const width = geometry.width - geometry.strip - 6
  const end = Math.max(1, clippedEnd(shown))
  const isClipped = shown.some((value) => value > end)
  const perRow = (geometry.bottom - geometry.top) / (window.y1 - window.y0)
  for (let place = Math.floor(window.y0); place < Math.min(order.length, window.y1); place++) {
    const row = order[place]
    const from = Math.max(geometry.top, placeToY(frame, place))
    const to = Math.min(geometry.bottom, placeToY(frame, place + 1))
    const isDim = model.state.rows !== null && !model.state.rows.has(row)
    if (row >= data.recorded && perRow >= LABEL_PIXELS) {
      ctx.fillStyle = css(inks.oom)
      ctx.textAlign = 'left'
      ctx.textBaseline = 'middle'
      ctx.fillText(fitted(ctx, data.status[row], width), geometry.strip, (from + to) / 2)
    }
    const isMarked = data.bytesAbove[row] > 0 || data.ooms[row] > 0
    ctx.fillStyle = css(data.ooms[row] > 0 ? inks.oom : isMarked ? inks.peak : inks.allocated, isDim ? 0.25 : 1)
    const height = Math.max(isMarked ? 1.5 : 0.5, to - from - (perRow > 4 ? 1 : 0))
    ctx.fillRect(geometry.strip, from, Math.min(1, shown[row] / end) * width, height)
    // A bar that goes on beyond the scale is broken before its end.
    if (shown[row] > end) ctx.clearRect(geometry.strip + width - 8, from, 3, height)
  }
  if (geometry.top <= 20) return
  const last = `to ${formatBytes(Math.round(end))}${isClipped ? '+' : ''}`
  drawStripLabel(ctx, geometry, shownName, geometry.top - 18, css(inks.soft), css(inks.panel))
  drawStripLabel(ctx, geometry, last, geometry.top - 4, css(inks.soft), css(inks.panel))
}

/** Over the strip; a text wider than it goes on to the left, over the end of the curves. */
function drawStripLabel(
  ctx: CanvasRenderingContext2D,
  { strip, left, width }: MapGeometry,
  text: string,
  y: number,
  ink: string,
  back: string,
): void {
  const shown = fitted(ctx, text, (width - left) / 2)
  const length = ctx.measureText(shown).width
  const x = Math.min(strip, width - 6 - length)
  ctx.fillStyle = back
  if (x < strip) ctx.fillRect(x - 4, y - 14, length + 6, 15)
  ctx.fillStyle = ink
  ctx.textAlign = 'left'
  ctx.textBaseline = 'bottom'
  ctx.fillText(shown, x, y)
}

/** Where the curves end, so that one extreme rank does not press the median to the bottom: well above three in four ranks. */
function curveEnd(spreads: readonly (Spread | null)[], isCommon: readonly boolean[]): number {
  const usual = Math.max(0, ...spreads.map((spread, i) => (isCommon[i] ? (spread?.[3] ?? 0) : 0)))
  const most = Math.max(0, ...spreads.map((spread) => spread?.[4] ?? 0))
  return usual > 0 && most > 2 * usual ? 1.25 * usual : most
}

/** Median and spread of the brushed rows in each column. */
function drawCurves(frame: MapFrame): void {
  const { ctx, geometry, window, heat } = frame
  const { inks } = frame.model
  const [top, bottom] = [16, geometry.top - 5]
  const first = Math.floor(window.x0)
  const past = Math.ceil(window.x1)
  const [spreads, isCommon] = [heat.spreads.slice(first, past), heat.isCommon.slice(first, past)]
  const highest = Math.max(1, ...spreads.map((spread) => spread?.[4] ?? 0))
  const most = Math.max(1, curveEnd(spreads, isCommon))
  const lowest = Math.min(0, ...spreads.map((spread) => spread?.[0] ?? 0))
  const y = (bytes: number): number => bottom - ((Math.min(bytes, most) - lowest) / (most - lowest)) * (bottom - top)
  ctx.save()
  ctx.beginPath()
  ctx.rect(geometry.left, 0, geometry.right - geometry.left, geometry.top)
  ctx.clip()
  ctx.strokeStyle = css(inks.ink)
  ctx.lineWidth = 1.25
  ctx.beginPath()
  spreads.forEach((spread, i) => {
    if (!spread) return
    const [from, to] = [columnToX(frame, first + i), columnToX(frame, first + i + 1)]
    ctx.fillStyle = css(inks.allocated, 0.32)
    ctx.fillRect(from, y(spread[4]), to - from, Math.max(1, y(spread[0]) - y(spread[4])))
    if (!isCommon[i]) return
    if (!(spreads[i - 1] && isCommon[i - 1])) ctx.moveTo(from, y(spread[2]))
    ctx.lineTo(from, y(spread[2]))
    ctx.lineTo(to, y(spread[2]))
  })
  ctx.stroke()
  ctx.restore()
  ctx.fillStyle = css(inks.line)
  ctx.fillRect(geometry.left, y(0), geometry.right - geometry.left, 1)
  ctx.fillStyle = css(inks.soft)
  ctx.textAlign = 'left'
  ctx.textBaseline = 'top'
  const beyond = highest > most ? ` (highest: ${formatBytes(Math.round(highest))})` : ''
  const text = `median and range, up to ${formatBytes(Math.round(most))}${beyond}`
  ctx.fillStyle = css(inks.panel, 0.75)
  ctx.fillRect(geometry.left, 0, ctx.measureText(text).width + 8, 15)
  ctx.fillStyle = css(inks.soft)
  ctx.fillText(text, geometry.left + 4, 2)
}

function drawAxis(frame: MapFrame): void {
  const { ctx, model, geometry, window } = frame
  const { inks } = model
  const { axis } = model.state
  ctx.textAlign = 'center'
  ctx.textBaseline = 'top'
  let free = geometry.left
  for (const { at, label } of axisMarks(axis, window.x0, window.x1, (geometry.right - geometry.left) / 84)) {
    if (at < window.x0 || at > window.x1) continue
    const x = columnToX(frame, at)
    ctx.fillStyle = css(mix(inks.panel, inks.ink, 0.4))
    ctx.fillRect(Math.round(x), geometry.bottom + 1, 1, 4)
    const half = ctx.measureText(label).width / 2
    const middle = Math.min(Math.max(x, geometry.left + half), geometry.right - half)
    if (middle - half < free) continue
    ctx.fillStyle = css(inks.soft)
    ctx.fillText(label, middle, geometry.bottom + 7)
    free = middle + half + 10
  }
  ctx.fillStyle = css(inks.soft)
  ctx.textAlign = 'right'
  ctx.fillText(axis.label, geometry.left - 8, geometry.bottom + 7)
}

/** Where each row ran out of memory, on the axis of steps. */
function drawFailures(frame: MapFrame): void {
  const { ctx, model, geometry } = frame
  const { data, state, inks } = model
  if (state.axis.unit !== 'step') return
  for (const { row, step } of data.manifest.ooms) {
    if (step === null) continue
    const x = columnToX(frame, columnOf(state.axis, step) + 1)
    const y = placeToY(frame, model.place[row] + 0.5)
    if (x < geometry.left || x > geometry.right || y < geometry.top || y > geometry.bottom) continue
    const size = Math.min(4, Math.max(2, (placeToY(frame, 1) - placeToY(frame, 0)) / 3))
    for (const [colour, width] of [
      [css(inks.panel), 4],
      [css(inks.oom), 2],
    ] as const) {
      ctx.strokeStyle = colour
      ctx.lineWidth = width
      ctx.beginPath()
      ctx.moveTo(x - size, y - size)
      ctx.lineTo(x + size, y + size)
      ctx.moveTo(x + size, y - size)
      ctx.lineTo(x - size, y + size)
      ctx.stroke()
    }
  }
}

interface AxisMark {
  /** In columns, fractions allowed. */
  at: number
  label: string
}

/** Marks between two places in columns, about so many. */
export function axisMarks(axis: JobAxis, x0: number, x1: number, target: number): AxisMark[] {
  const [from, to] = [valueAt(axis, x0), valueAt(axis, x1)]
  if (axis.unit === 'us') {
    return timeTicks(from, to, target).map(({ value, label }) => ({ at: placeOf(axis, value), label }))
  }
  const ticks = eventTicks(from, to, target)
  if (axis.unit === 'share')
    return ticks.map(({ value }) => ({ at: placeOf(axis, value), label: `${formatCount(value / 10)}%` }))
  return ticks
    .filter(({ value }) => value >= axis.first[0] && value <= axis.last[axis.columns - 1])
    .map(({ value, label }) => ({ at: columnOf(axis, value) + 0.5, label }))
}

/** The column that a value falls into; the nearest of those where it falls between two. */
export function columnOf(axis: JobAxis, value: number): number {
  return lowerBound(axis.last, value, 0, axis.columns - 1)
}

function valueAt(axis: JobAxis, place: number): number {
  const column = Math.max(0, Math.min(axis.columns - 1, Math.floor(place)))
  // Steps are whole: a column of one step begins and ends with it.
  const width = axis.unit === 'step' ? 0 : axis.last[column] - axis.first[column]
  return place >= axis.columns ? axis.last[column] : axis.first[column] + (place - column) * width
}

function placeOf(axis: JobAxis, value: number): number {
  const column = columnOf(axis, value)
  const width = axis.last[column] - axis.first[column]
  return column + (width > 0 ? Math.min(1, Math.max(0, (value - axis.first[column]) / width)) : 0)
}
