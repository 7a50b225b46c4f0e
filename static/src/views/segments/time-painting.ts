// Paints the map over time: axes around the picture, and over it the moment, the selection and the allocation under the pointer.

import { formatCount } from '../../layout/format'
import type { Point } from '../shared/event-plot'
import { css, type Inks, mix, word } from '../shared/inks'
import { drawMoment } from '../shared/plot-frame'
import { xOfPosition } from '../shared/x-window'
import { ticksOf } from './address-axis'
import { idAt, rectOf, type TimeScene, yToPixel } from './time-layout'
import { paintTime } from './time-raster'

/** Pixels between two addresses. */
const ADDRESS_ROOM = 18

/** Returns how many rectangles were in sight. */
export function paintBlocks(words: Uint32Array, width: number, height: number, scene: TimeScene): number {
  const {
    context: { colouring, matches },
    replay,
    inks,
    places,
    window: { scale, x0, x1 },
    y: [y0, y1],
  } = scene
  const plot = { scale, x0, x1, y0, y1, width, height }
  return paintTime(words, replay, places, plot, {
    keys: colouring.keys,
    words: wordsOf(colouring.rgba, colouring.count, null),
    dim: matches ? wordsOf(colouring.rgba, colouring.count, inks) : new Uint32Array(0),
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
  const {
    context: { data, state, position },
    replay,
    inks,
    window,
    box,
  } = scene
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
function wordsOf(rgba: Uint8Array, count: number, inks: Inks | null): Uint32Array {
  const words = new Uint32Array(count)
  for (let key = 0; key < count; key++) {
    const own = [rgba[4 * key], rgba[4 * key + 1], rgba[4 * key + 2]] as const
    words[key] = word(inks ? mix(own, inks.panel, 0.78) : own)
  }
  return words
}
