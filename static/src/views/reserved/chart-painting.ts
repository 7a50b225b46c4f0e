// Paints the pictures of the reserved view as pixels, and over them the moment, the marks and the pointer's line.

import { css, groupColour, type Inks, word } from '../shared/inks'
import { type Box, drawMoment, xToPixel } from '../shared/plot-frame'
import { xOfPosition } from '../shared/x-window'
import type { Point } from '../shared/event-plot'
import type { ChartScene } from './chart-layout'
import { columnsOf, maxByColumn, stackOf } from './columns'
import { drawCurve, paintSegments, paintStack } from './paint'

/** The parts of reserved memory, or its fragmentation alone. Words of the picture run down the columns. */
export function paintParts(words: Uint32Array, width: number, height: number, scene: ChartScene): Int32Array {
  const { replay, largest, whatIf, use, inks, choice, window, partsTop } = scene
  const { data } = scene.context
  const base = !choice.fragmentationOnly
  const columns = columnsOf(data, window, width, base ? 'reserved' : 'fragmentation')
  const colours = replay
    ? [inks.allocated, inks.rounding, inks.splitArea, inks.wholeArea]
    : [inks.allocated, inks.wholeArea]
  paintStack(words, width, height, stackOf(data, replay, columns, base), partsTop, colours)
  const curve = (bytes: Float64Array, colour: Inks['ink']): void =>
    drawCurve(words, width, height, bytes, partsTop, word(colour))
  // At the moments that the areas show.
  const shown = (of: (s: number) => number): Float64Array => Float64Array.from(columns, of)
  if (base) {
    curve(maxByColumn(data, window, width, data.allocated), inks.ink)
    curve(
      shown((s) => data.reserved[s]),
      inks.reserved,
    )
    if (use) curve(maxByColumn(data, window, width, use.used), inks.deviceUsed)
    if (whatIf) curve(maxByColumn(data, window, width, whatIf), inks.accent)
  } else {
    curve(
      shown((s) => data.reserved[s] - data.allocated[s]),
      inks.reserved,
    )
    // Beside the areas it shows whether free memory is contiguous.
    if (largest)
      curve(
        shown((s) => largest[s]),
        inks.largest,
      )
  }
  return columns
}

/** The segments by pool and stream. `byReserved`: columns of the upper picture, where they are of the same width. */
export function paintPiles(
  words: Uint32Array,
  width: number,
  height: number,
  scene: ChartScene,
  byReserved: Int32Array | null,
): void {
  const { piles, groups, inks, window, segmentsTop } = scene
  const { data, dark } = scene.context
  if (!piles || !groups) return
  const colours = Array.from({ length: groups.count }, (_, group) => groupColour(group, dark))
  const columns = byReserved?.length === width ? byReserved : columnsOf(data, window, width, 'reserved')
  paintSegments(words, width, height, piles, columns, segmentsTop, groups.of, colours)
  drawCurve(words, width, height, maxByColumn(data, window, width, data.allocated), segmentsTop, word(inks.ink))
}

export function drawTitle(ctx: CanvasRenderingContext2D, box: Box, inks: Inks, text: string): void {
  ctx.fillStyle = css(inks.ink)
  ctx.textBaseline = 'alphabetic'
  ctx.textAlign = 'left'
  ctx.fillText(text, box.left, box.top - 8)
}

export function drawMarks(ctx: CanvasRenderingContext2D, scene: ChartScene, pointer: Point | null): void {
  const { inks, window, marks, partsBox, segmentsBox } = scene
  const { data, position } = scene.context
  if (data.n === 0) return
  for (const [index, box] of [partsBox, segmentsBox].filter((box) => box !== null).entries()) {
    for (const mark of marks)
      drawMoment(ctx, box, window, xOfPosition(data, window.scale, mark.position), css(mark.colour), '', [3, 3])
    // On a mark, the moment is the mark's: its line stays in its colour.
    if (!marks.some((mark) => mark.position === position))
      drawMoment(ctx, box, window, xOfPosition(data, window.scale, position), css(inks.accent), '')
    if (index === 0) drawFlags(ctx, scene, box)
    if (pointer && pointer.x >= box.left && pointer.x < box.left + box.width) {
      ctx.fillStyle = css(inks.ink, 0.4)
      ctx.fillRect(pointer.x - 0.5, box.top, 1, box.height)
    }
  }
}

/** Names of the marks just inside the upper picture, each where it does not cover another. */
function drawFlags(ctx: CanvasRenderingContext2D, scene: ChartScene, box: Box): void {
  const { inks, window, marks } = scene
  const { data } = scene.context
  ctx.textBaseline = 'top'
  marks.forEach(({ position, label, colour }, row) => {
    const x = xToPixel(window, box, xOfPosition(data, window.scale, position))
    if (x < box.left || x > box.left + box.width) return
    const width = ctx.measureText(label).width
    const beside = x + 6 + width > box.left + box.width ? x - 6 - width : x + 5
    const left = Math.max(box.left + 4, beside)
    ctx.fillStyle = css(inks.panel, 0.85)
    ctx.fillRect(left - 3, box.top + 3 + row * 17, width + 6, 16)
    ctx.fillStyle = css(colour)
    ctx.fillText(label, left, box.top + 5 + row * 17)
  })
}
