// Paints the map over time: axes around the picture, and over it the moment, the selection and the allocation under the pointer.

import type { Rect } from '../../layout/viewport'
import type { Places } from './time-layout'
import type { Replay } from '../../allocator/replay'
import { formatCount } from '../../layout/format'
import { axisClock } from '../../layout/gaps'
import { type Colouring, rgbOf } from '../colouring'
import type { Point } from '../shared/event-plot'
import { css, type Inks, mix, type Rgb, word } from '../shared/inks'
import { drawMoment } from '../shared/plot-frame'
import { type AxisScale, xOfPosition } from '../shared/x-window'
import { idAt, rectOf, ticksOf, type TimeScene, yToPixel } from './time-layout'

/** Pixels between two addresses. */
const ADDRESS_ROOM = 18

/** Returns how many rectangles were in sight. */
export function paintBlocks(words: Uint32Array, width: number, height: number, scene: TimeScene): number {
  const { replay, inks, places } = scene
  const { colouring, matches } = scene.context
  const { scale, x0, x1 } = scene.window
  const [y0, y1] = scene.y
  const plot = { scale, x0, x1, y0, y1, width, height }
  return paintTime(words, replay, places, plot, {
    keys: colouring.keys,
    words: wordsOf(colouring, null),
    dim: matches ? wordsOf(colouring, inks) : new Uint32Array(0),
    mask: matches?.mask ?? null,
    pending: word(inks.pending),
    free: inks.split,
  })
}

/** Where stretches of addresses begin, from the lowest up, each that has room. */
export function drawAddresses(ctx: CanvasRenderingContext2D, scene: TimeScene): void {
  const { axis, y, box, inks, replay } = scene
  const bottom = box.top + box.height
  ctx.textAlign = 'right'
  ctx.textBaseline = 'middle'
  ctx.fillStyle = css(inks.soft)
  for (const { place, address } of ticksOf(axis, y, (ADDRESS_ROOM / box.height) * (y[1] - y[0]))) {
    const pixel = Math.round(yToPixel(scene, place))
    ctx.fillRect(box.left - 5, Math.min(bottom - 1, pixel), 4, 1)
    ctx.fillText(replay.space.text(address), box.left - 9, Math.min(bottom - 5, pixel))
  }
  ctx.textAlign = 'left'
}

export function drawMarks(ctx: CanvasRenderingContext2D, scene: TimeScene, pointer: Point | null): void {
  const { replay, inks, window, box } = scene
  const { data, state, position } = scene.context
  if (data.n > 0) {
    const label = position === 0 ? 'start' : `event ${formatCount(position - 1)}`
    drawMoment(ctx, box, window, xOfPosition(data, window.scale, position), css(inks.accent), label)
  }
  ctx.save()
  ctx.beginPath()
  ctx.rect(box.left, box.top, box.width, box.height)
  ctx.clip()
  const outline = (id: number, colour: string, width: number): void => {
    const { x0, x1, y0, y1 } = rectOf(scene, id)
    ctx.strokeStyle = colour
    ctx.lineWidth = width
    ctx.strokeRect(x0 - 0.5, y0 - 0.5, Math.max(3, x1 - x0) + 1, Math.max(3, y1 - y0) + 1)
  }
  if (state.select !== null && state.select < replay.data.N) outline(state.select, css(inks.accent), 2.5)
  const pointed = pointer ? idAt(scene, pointer) : -1
  if (pointed >= 0) outline(pointed, css(inks.ink), 1)
  ctx.restore()
}

/** Words by key; faded into the panel where `inks` are given. */
function wordsOf(colouring: Colouring, inks: Inks | null): Uint32Array {
  const words = new Uint32Array(colouring.count)
  for (let key = 0; key < words.length; key++) {
    const own = rgbOf(colouring, key)
    words[key] = word(inks ? mix(own, inks.panel, 0.78) : own)
  }
  return words
}

/** x in axis units, y in bytes of the address axis. */
interface TimePlot extends Rect {
  scale: AxisScale
  /** Device pixels. */
  width: number
  height: number
}

interface TimeColours {
  /** Word by key of `keys`; a second set, `dim`, for what a query does not match. */
  words: Uint32Array
  dim: Uint32Array
  keys: Uint32Array
  mask: Uint8Array | null
  pending: number
  free: Rgb
}

/** The picture: a word by pixel, rows from the top, and which pixels an allocation of at least a pixel has. */
interface Raster {
  words: Uint32Array
  taken: Uint8Array
  width: number
  height: number
}

/**
 * Returns how many rectangles were in sight. They are in pixels of the raster, x1 and y1 excluded; what reaches beyond it is
 * cut off when it is drawn. Rows of `out` run from the top, which is y1.
 */
function paintTime(out: Uint32Array, replay: Replay, places: Places, plot: TimePlot, colours: TimeColours): number {
  const { data, block, segments } = replay
  const { start, end, N, freeRequestedEvent, P } = data
  const { width, height, x0, x1, y0, y1, scale } = plot
  const clock = scale.axis === 'time' && data.clockUs ? axisClock(data.clockUs).us : null
  const perX = width / (x1 - x0)
  const perY = height / (y1 - y0)
  const xOf = (s: number): number =>
    ((s <= 0 ? scale.x0 : s >= P ? scale.x1 : clock ? clock[s - 1] : s - 1) - x0) * perX
  const raster: Raster = { words: out, taken: new Uint8Array(width * height), width, height }
  // One object for all: there may be a million.
  const rect: Rect = { x0: 0, x1: 0, y0: 0, y1: 0 }
  const free = word(colours.free)
  for (let row = 0; row < segments.count; row++) {
    rect.x0 = xOf(segments.from[row])
    rect.x1 = xOf(segments.to[row])
    rect.y0 = height - (places.segment[row] + segments.end[row] - segments.start[row] - y0) * perY
    rect.y1 = height - (places.segment[row] - y0) * perY
    fillRect(out, raster, pixelsOf(raster, rect), free)
  }
  const thin: number[] = []
  let seen = 0
  for (let id = 0; id < N; id++) {
    const bottom = (places.allocation[id] - y0) * perY
    const tall = block[id] * perY
    if (bottom >= height || bottom + tall <= 0) continue
    const left = xOf(start[id])
    if (left >= width) continue
    const right = xOf(end[id])
    if (right <= 0) continue
    seen++
    if (tall < 1 || right - left < 1) {
      thin.push(id)
      continue
    }
    rect.x0 = left
    rect.x1 = right
    rect.y0 = height - bottom - tall
    rect.y1 = height - bottom
    paintRect(raster, rect, inkOf(colours, id))
    const requestEvent = freeRequestedEvent[id]
    if (requestEvent >= 0 && requestEvent + 1 < end[id]) {
      rect.x0 = Math.max(left, xOf(requestEvent + 1))
      if (right - rect.x0 >= 2) hatch(raster, rect, colours.pending)
    }
  }
  for (const id of thin) {
    rect.x0 = xOf(start[id])
    rect.x1 = xOf(end[id])
    rect.y1 = height - (places.allocation[id] - y0) * perY
    rect.y0 = rect.y1 - block[id] * perY
    paintThin(raster, rect, inkOf(colours, id))
  }
  return seen
}

function inkOf({ words, dim, keys, mask }: TimeColours, id: number): number {
  return mask && !mask[id] ? dim[keys[id]] : words[keys[id]]
}

/** The whole pixels nearest to a rectangle, at least one each way before what is outside is cut off. */
function pixelsOf({ width, height }: Raster, { x0, x1, y0, y1 }: Rect): Rect {
  return {
    x0: Math.max(0, Math.round(x0)),
    x1: Math.min(width, Math.max(Math.round(x1), Math.round(x0) + 1)),
    y0: Math.max(0, Math.round(y0)),
    y1: Math.min(height, Math.max(Math.round(y1), Math.round(y0) + 1)),
  }
}

function fillRect(values: Uint32Array | Uint8Array, { width }: Raster, { x0, x1, y0, y1 }: Rect, value: number): void {
  if (x1 <= x0) return
  for (let y = y0; y < y1; y++) values.fill(value, y * width + x0, y * width + x1)
}

/** A rectangle with a darker edge at its birth and its top, where it is large enough, so that neighbours of one colour stay two. */
function paintRect(raster: Raster, rect: Rect, ink: number): void {
  const { words, taken, width } = raster
  const pixels = pixelsOf(raster, rect)
  const { x0, x1, y0, y1 } = pixels
  if (x1 <= x0) return
  fillRect(words, raster, pixels, ink)
  fillRect(taken, raster, pixels, 1)
  const edge = darker(ink)
  if (rect.y1 - rect.y0 >= 4 && rect.y0 >= 0) words.fill(edge, y0 * width + x0, y0 * width + x1)
  if (rect.x1 - rect.x0 >= 4 && rect.x0 >= 0) for (let y = y0; y < y1; y++) words[y * width + x0] = edge
}

/** At least one pixel, and only pixels that nothing wider has. */
function paintThin({ words, taken, width, height }: Raster, { x0, x1, y0, y1 }: Rect, ink: number): void {
  const left = Math.max(0, Math.floor(x0))
  const right = Math.min(width, Math.max(Math.round(x1), Math.floor(x0) + 1))
  const top = Math.max(0, Math.floor(y0))
  const bottom = Math.min(height, Math.max(Math.round(y1), Math.floor(y0) + 1))
  for (let y = top; y < bottom; y++) {
    for (let at = y * width + left; at < y * width + right; at++) if (taken[at] === 0) words[at] = ink
  }
}

function hatch({ words, width, height }: Raster, { x0, x1, y0, y1 }: Rect, ink: number): void {
  const right = Math.min(width, Math.round(x1))
  const bottom = Math.min(height, Math.round(y1))
  for (let y = Math.max(0, Math.round(y0)); y < bottom; y++) {
    for (let x = Math.max(0, Math.round(x0)); x < right; x++) if ((x + y) % 5 < 2) words[y * width + x] = ink
  }
}

function darker(ink: number): number {
  const r = ((ink & 255) * 0.78) | 0
  const g = (((ink >>> 8) & 255) * 0.78) | 0
  const b = (((ink >>> 16) & 255) * 0.78) | 0
  return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0
}
