// The two pictures of the reserved view, one above the other over the same stretch of events: what reserved memory holds,
// and the segments it is made of.

import type { Replay } from '../../allocator/replay'
import { h } from '../../ui/dom'
import type { Groups } from '../shared/groups'
import { css, groupColour, type Inks, word } from '../shared/inks'
import {
  type Box,
  drawByteAxis,
  drawMoment,
  drawXAxis,
  pictureRatio,
  pixelToX,
  prepareCanvas,
  xToPixel,
} from '../shared/plot-frame'
import { panned, positionsIn, xOfPosition, xPatch, type XWindow, xWindowOf, zoomed } from '../shared/x-window'
import { PointerInput } from '../shared/pointer'
import { Tooltip } from '../shared/tooltip'
import type { ViewContext, ViewParts } from '../view'
import type { Rgb } from '../shared/inks'
import { type Columns, columnsOf, type Extremes, extremesOf, maxByColumn, stackOf } from './columns'
import { drawCurve, paintSegments, paintStack } from './paint'
import { SegmentStack } from './segment-stack'
import { describeMoment } from './reserved-text'

export interface ChartChoice {
  parts: boolean
  segments: boolean
  /** The parts without what is allocated under them. */
  fragmentationOnly: boolean
}

export interface ChartMark {
  position: number
  label: string
  colour: Rgb
}

interface Shown {
  context: ViewContext
  /** Null where addresses were left out: only totals are known. */
  replay: Replay | null
  groups: Groups | null
  piles: SegmentStack | null
  /** Bytes of the largest free range by position; null where it is not shown or not there yet. */
  largest: Float64Array | null
  /** Reserved bytes by position of a replay under other settings; null: none is drawn. */
  whatIf: Float64Array | null
  inks: Inks
  choice: ChartChoice
  marks: ChartMark[]
  window: XWindow
  partsBox: Box | null
  segmentsBox: Box | null
  partsTop: number
  segmentsTop: number
}

const TITLE = 24
const BOTTOM = 28
const BETWEEN = 12

export class ReservedChart {
  readonly element: HTMLElement
  /** A click on a segment at a position. */
  onSegment: (row: number, position: number) => void = () => {}
  private readonly parts: ViewParts
  private readonly canvas = h('canvas', { 'aria-hidden': 'true' })
  private readonly overlay = h('canvas', { 'aria-hidden': 'true' })
  private readonly plot: HTMLElement
  private readonly tooltip = new Tooltip()
  private readonly pixels = document.createElement('canvas')
  private shown: Shown | null = null
  private stack: { groups: Groups; piles: SegmentStack } | null = null
  private extremes: Extremes | null = null
  private drawnKey = ''
  private drawnCurve: Float64Array | null = null
  private hover: { x: number; y: number } | null = null
  private frame = 0
  paintMs = 0
  /** Bytes that the upper and the lower picture need room for. */
  extent: readonly number[] | null = null
  /** Columns of the upper picture as last painted, for tests. */
  columns: Columns | null = null

  constructor(parts: ViewParts) {
    this.parts = parts
    this.plot = h(
      'div',
      {
        class: 'time-plot',
        tabindex: 0,
        role: 'application',
        'aria-roledescription': 'chart',
        'aria-label': 'Reserved memory over events',
      },
      this.canvas,
      this.overlay,
    )
    this.element = h('div', { class: 'time-map' }, this.plot, this.tooltip.element)
    new PointerInput(this.plot, {
      pan: (dx) => this.panPixels(dx),
      zoom: (x, _y, factor, factorY) => this.zoom(x, factor === 1 ? factorY : factor),
      box: () => {},
      zoomToBox: () => {},
      hover: (x, y) => {
        this.hover = { x, y }
        if (this.frame === 0) this.frame = requestAnimationFrame(() => this.afterMove())
      },
      leave: () => {
        this.hover = null
        this.tooltip.hide()
        if (this.shown) this.drawOverlay()
      },
      click: (x, y) => this.click(x, y),
      fit: () => this.parts.store.set({ x: null }),
      origin: () => ({ left: 0, top: 0 }),
      boxMode: () => false,
    })
  }

  show(shown: Pick<Shown, 'context' | 'replay' | 'groups' | 'largest' | 'whatIf' | 'inks' | 'choice' | 'marks'>): void {
    const { context, replay, groups, choice, whatIf } = shown
    const width = this.plot.clientWidth
    const height = this.plot.clientHeight
    if (width === 0) return
    if (replay && groups && this.stack?.groups !== groups)
      this.stack = { groups, piles: new SegmentStack(replay.segments, groups) }
    const { data, state } = context
    const hasSegments = choice.segments && replay !== null && replay.segments.count > 0
    const hasParts = choice.parts || !hasSegments
    const left = width < 560 ? 56 : 74
    const plotWidth = Math.max(1, width - left - (width < 560 ? 8 : 16))
    const both = hasParts && hasSegments
    const room = height - BOTTOM - TITLE - (both ? TITLE + BETWEEN : 0)
    const upper = both ? Math.round(room * 0.52) : room
    const box = (top: number, tall: number): Box => ({ left, top, width: plotWidth, height: Math.max(1, tall) })
    if (this.extremes?.data !== data) this.extremes = extremesOf(data)
    const { mostLost } = this.extremes
    let { most } = this.extremes
    if (whatIf) for (const bytes of whatIf) if (bytes > most) most = bytes
    this.extent = [choice.fragmentationOnly ? mostLost : most, most]
    const [parts, segments] = this.extent.map((bytes, i) => Math.max(bytes, context.extent?.[i] ?? 0))
    this.shown = {
      ...shown,
      piles: hasSegments ? this.stack!.piles : null,
      window: xWindowOf(data, state),
      partsBox: hasParts ? box(TITLE, upper) : null,
      segmentsBox: hasSegments ? box(both ? TITLE + upper + BETWEEN + TITLE : TITLE, both ? room - upper : room) : null,
      partsTop: Math.max(1024, parts * 1.06),
      segmentsTop: Math.max(1024, segments * 1.06),
    }
    this.draw()
  }

  /** W and S zoom, A and D pan, 0 shows everything. */
  key(event: KeyboardEvent): boolean {
    const box = this.shown?.partsBox ?? this.shown?.segmentsBox
    if (!box) return false
    const middle = box.left + box.width / 2
    switch (event.key.length === 1 ? event.key.toLowerCase() : event.key) {
      case 'w':
      case '+':
      case '=':
        return (this.zoom(middle, 0.75), true)
      case 's':
      case '-':
      case '_':
        return (this.zoom(middle, 1 / 0.75), true)
      case 'a':
        return (this.panPixels(box.width * 0.12), true)
      case 'd':
        return (this.panPixels(-box.width * 0.12), true)
      case '0':
      case 'Home':
        return (this.parts.store.set({ x: null }), true)
      default:
        return false
    }
  }

  picture(): HTMLCanvasElement {
    return this.canvas
  }

  /** For tests: where the pictures lie, in CSS pixels of the window. */
  boxes(): { parts: Box | null; segments: Box | null; partsTop: number; segmentsTop: number } | null {
    if (!this.shown) return null
    const { left, top } = this.plot.getBoundingClientRect()
    const { partsBox, segmentsBox, partsTop, segmentsTop } = this.shown
    const placed = (box: Box | null): Box | null => box && { ...box, left: left + box.left, top: top + box.top }
    return { parts: placed(partsBox), segments: placed(segmentsBox), partsTop, segmentsTop }
  }

  private draw(): void {
    const {
      context: { data, dark, state },
      largest,
      whatIf,
      window,
      partsBox,
      segmentsBox,
      choice,
    } = this.shown!
    const key = JSON.stringify([
      data.info.index,
      largest !== null,
      dark,
      state.theme,
      window.scale.axis,
      window.x0,
      window.x1,
      partsBox,
      segmentsBox,
      choice,
      this.shown!.partsTop,
      this.shown!.segmentsTop,
      devicePixelRatio,
    ])
    if (key !== this.drawnKey || whatIf !== this.drawnCurve) this.paint()
    this.drawnCurve = whatIf
    this.drawnKey = key
    this.drawOverlay()
  }

  private paint(): void {
    const {
      context: { data, info, dark },
      replay,
      largest,
      whatIf,
      groups,
      piles,
      inks,
      choice,
      window,
      partsBox,
      segmentsBox,
      partsTop,
      segmentsTop,
    } = this.shown!
    const began = performance.now()
    const ctx = prepareCanvas(this.canvas, this.plot.clientWidth, this.plot.clientHeight)
    ctx.imageSmoothingEnabled = false
    let byReserved: Columns | null = null
    if (partsBox) {
      const base = !choice.fragmentationOnly
      this.picture2d(ctx, partsBox, inks, (pixels, width, height) => {
        this.columns = columnsOf(data, window, width, base ? 'reserved' : 'fragmentation')
        if (base) byReserved = this.columns
        const colours = replay
          ? [inks.allocated, inks.rounding, inks.splitArea, inks.wholeArea]
          : [inks.allocated, inks.wholeArea]
        paintStack(pixels, width, height, stackOf(data, replay, this.columns, base), partsTop, colours)
        if (base) {
          drawCurve(pixels, width, height, this.columns.allocatedMax, partsTop, word(inks.ink))
          drawCurve(pixels, width, height, this.columns.reservedMax, partsTop, word(inks.reserved))
          if (whatIf)
            drawCurve(pixels, width, height, maxByColumn(data, window, width, whatIf), partsTop, word(inks.accent))
        } else {
          drawCurve(pixels, width, height, this.columns.fragmentationMax, partsTop, word(inks.reserved))
          // Of the moments that the areas show: beside them it tells whether what is free is one piece or many.
          if (largest)
            drawCurve(
              pixels,
              width,
              height,
              Float64Array.from(this.columns.position, (s) => largest[s]),
              partsTop,
              word(inks.largest),
            )
        }
      })
      drawTitle(
        ctx,
        partsBox,
        inks,
        base ? 'What reserved memory is used for' : 'Fragmentation: reserved and not allocated',
      )
      drawByteAxis(ctx, partsBox, partsTop, inks)
    }
    if (segmentsBox && replay && groups && piles) {
      const colours = Array.from({ length: groups.count }, (_, group) => groupColour(group, dark))
      this.picture2d(ctx, segmentsBox, inks, (pixels, width, height) => {
        const columns = byReserved?.count === width ? byReserved : columnsOf(data, window, width, 'reserved')
        paintSegments(pixels, width, height, piles, columns, segmentsTop, groups.of, colours)
        drawCurve(pixels, width, height, columns.allocatedMax, segmentsTop, word(inks.ink))
      })
      drawTitle(ctx, segmentsBox, inks, 'Segments by pool and stream')
      drawByteAxis(ctx, segmentsBox, segmentsTop, inks)
    }
    drawXAxis(ctx, (segmentsBox ?? partsBox)!, window, info, inks)
    this.paintMs = performance.now() - began
  }

  private picture2d(
    ctx: CanvasRenderingContext2D,
    box: Box,
    inks: Inks,
    paint: (pixels: Uint32Array, width: number, height: number) => void,
  ): void {
    const ratio = pictureRatio(box.width, box.height)
    const width = Math.max(1, Math.round(box.width * ratio))
    const height = Math.max(1, Math.round(box.height * ratio))
    // The image lies on its side, each column of the picture a row of it, and is drawn with x and y exchanged.
    const image = new ImageData(height, width)
    const pixels = new Uint32Array(image.data.buffer).fill(word(inks.panel))
    paint(pixels, width, height)
    this.pixels.width = height
    this.pixels.height = width
    this.pixels.getContext('2d', { willReadFrequently: true })!.putImageData(image, 0, 0)
    ctx.save()
    ctx.transform(0, box.height / height, box.width / width, 0, box.left, box.top)
    ctx.drawImage(this.pixels, 0, 0)
    ctx.restore()
  }

  private drawOverlay(): void {
    const {
      context: { data, position },
      inks,
      window,
      marks,
      partsBox,
      segmentsBox,
    } = this.shown!
    const ctx = prepareCanvas(this.overlay, this.plot.clientWidth, this.plot.clientHeight)
    if (data.n === 0) return
    for (const [index, box] of [partsBox, segmentsBox].filter((box) => box !== null).entries()) {
      for (const mark of marks)
        drawMoment(ctx, box, window, xOfPosition(data, window.scale, mark.position), css(mark.colour), '', [3, 3])
      // On a mark, the moment is the mark's: its line stays in its colour.
      if (!marks.some((mark) => mark.position === position))
        drawMoment(ctx, box, window, xOfPosition(data, window.scale, position), css(inks.accent), '')
      if (index === 0) this.drawFlags(ctx, box)
      if (this.hover) {
        ctx.fillStyle = css(inks.ink, 0.4)
        if (this.hover.x >= box.left && this.hover.x < box.left + box.width)
          ctx.fillRect(this.hover.x - 0.5, box.top, 1, box.height)
      }
    }
  }

  /** Names of the marks just inside the upper picture, each where it does not cover another. */
  private drawFlags(ctx: CanvasRenderingContext2D, box: Box): void {
    const {
      context: { data },
      inks,
      window,
      marks,
    } = this.shown!
    ctx.textBaseline = 'top'
    marks.forEach(({ position, label, colour }, row) => {
      const x = xToPixel(window, box, xOfPosition(data, window.scale, position))
      if (x < box.left || x > box.left + box.width) return
      const width = ctx.measureText(label).width
      const left = x + 6 + width > box.left + box.width ? x - 6 - width : x + 5
      ctx.fillStyle = css(inks.panel, 0.85)
      ctx.fillRect(left - 3, box.top + 3 + row * 17, width + 6, 16)
      ctx.fillStyle = css(colour)
      ctx.fillText(label, left, box.top + 5 + row * 17)
    })
  }

  /** The position of a pixel: the one that its column shows in the picture it is in. */
  private positionAt(x: number, box: Box): number {
    const {
      context: { data },
      window,
      choice,
    } = this.shown!
    const at = pixelToX(window, box, Math.min(box.left + box.width - 0.01, Math.max(box.left, x)))
    const [from, to] = positionsIn(data, window.scale, at, at + (window.x1 - window.x0) / box.width)
    const by = box === this.shown!.partsBox && choice.fragmentationOnly ? 'fragmentation' : 'reserved'
    if (to - from <= 1) return from
    return columnsOf(data, { ...window, x0: at, x1: at + (window.x1 - window.x0) / box.width }, 1, by).position[0]
  }

  private boxAt(x: number, y: number): Box | null {
    const inside = (box: Box | null): boolean =>
      box !== null && x >= box.left && x < box.left + box.width && y >= box.top && y < box.top + box.height
    const { partsBox, segmentsBox } = this.shown!
    return inside(partsBox) ? partsBox : inside(segmentsBox) ? segmentsBox : null
  }

  /** Row of the segment at a pixel of the lower picture; -1 where there is none. */
  private rowAt(y: number, box: Box, position: number): number {
    const { piles, segmentsBox, segmentsTop } = this.shown!
    if (!piles || box !== segmentsBox) return -1
    const bytes = ((box.top + box.height - y) / box.height) * segmentsTop
    piles.rewind()
    const { rows, tops } = piles.at(position)
    for (let i = 0; i < rows.length; i++) if (bytes < tops[i]) return rows[i]
    return -1
  }

  private afterMove(): void {
    this.frame = 0
    const { shown, hover } = this
    if (!shown || !hover) return
    this.drawOverlay()
    const box = this.boxAt(hover.x, hover.y)
    if (!box) return this.tooltip.hide()
    const position = this.positionAt(hover.x, box)
    const lines = describeMoment(
      shown.context.data,
      shown.replay,
      shown.groups,
      position,
      this.rowAt(hover.y, box, position),
    )
    this.tooltip.show(lines, hover.x, hover.y, null)
  }

  private click(x: number, y: number): void {
    const { shown } = this
    const box = shown && this.boxAt(x, y)
    if (!shown || !box) return
    const position = this.positionAt(x, box)
    const row = this.rowAt(y, box, position)
    if (row >= 0) this.onSegment(row, position)
    else this.parts.store.set({ at: position - 1 })
  }

  private zoom(x: number, factor: number): void {
    const box = this.shown?.partsBox ?? this.shown?.segmentsBox
    if (box && this.shown)
      this.parts.store.set(xPatch(zoomed(this.shown.window, pixelToX(this.shown.window, box, x), factor)))
  }

  private panPixels(dx: number): void {
    const box = this.shown?.partsBox ?? this.shown?.segmentsBox
    if (!box || !this.shown) return
    const { window } = this.shown
    this.parts.store.set(xPatch(panned(window, (-dx / box.width) * (window.x1 - window.x0))))
  }
}

function drawTitle(ctx: CanvasRenderingContext2D, box: Box, inks: Inks, text: string): void {
  ctx.fillStyle = css(inks.ink)
  ctx.textBaseline = 'alphabetic'
  ctx.textAlign = 'left'
  ctx.fillText(text, box.left, box.top - 8)
}
