// What is under the pointer: its column and its allocation, marked over the picture, and a tooltip beside it.

import { css } from '../shared/inks'
import { drawRectsFlat, RectList } from '../../gl/rects'
import { h } from '../../ui/dom'
import { FrameRequest } from '../../ui/frame-request'
import type { Store } from '../../ui/state'
import type { Column } from '../shared/column'
import { describeHit, type Hit } from '../shared/describe'
import { Tooltip } from '../shared/tooltip'
import { type Frame, xToPixel } from './frame'
import type { Hits } from './hits'
import { describeMark } from './marks'
import { Outline } from './outline'

interface Owner {
  store: Store
  hits: Hits
  /** The last drawn frame; null while a new one is requested, which shows what is under the pointer too. */
  frame(): Frame | null
  /** Level of the columns on the canvas. */
  level(): number
  /** CSS colour of what an allocation is coloured by; null for none. */
  colourOf(id: number): string | null
  /** The mark under the pointer can be clicked. */
  overMark(isOver: boolean): void
  /** Another column is under the pointer, or none. */
  changed(): void
}

export class Hover {
  readonly layer = new HoverLayer()
  readonly tooltip = new Tooltip()
  /** In pixels of the plot; null: the pointer is elsewhere. */
  at: { x: number; y: number } | null = null
  column: Column | null = null
  private hit: Hit | null = null
  private readonly frame = new FrameRequest(() => this.drawAlone())

  constructor(private readonly owner: Owner) {}

  /** Draws on the next frame what is under the pointer there, and nothing else. */
  set(at: { x: number; y: number } | null): void {
    this.at = at
    if (this.owner.frame()) this.frame.request()
  }

  /** Marks what is under the pointer in a new frame. `isHidden`: nothing, while a box is drawn. */
  draw(frame: Frame, isHidden: boolean): void {
    this.frame.cancel()
    const { hits, store, level } = this.owner
    const { at } = this
    const hit = at && !isHidden ? hits.allocationAt(frame, at.x, at.y) : null
    this.hit = hit
    this.column = hit?.column ?? null
    this.layer.draw(frame, hit, level(), hit?.id !== store.state.select)
  }

  /** To be called last, since placing it forces a layout, which then covers everything else that was written. */
  showTooltip(frame: Frame): void {
    const { at, hit, tooltip } = this
    const { hits, colourOf, overMark } = this.owner
    const { left, top } = frame.plot
    const mark = at && hits.markAt(frame, at.x, at.y)
    overMark(Boolean(mark))
    if (at && mark) tooltip.show(describeMark(frame.scene, mark), at.x + left, at.y + top, null)
    else if (at && hit) tooltip.show(describeHit(frame.scene, hit), at.x + left, at.y + top, colourOf(hit.id))
    else tooltip.hide()
  }

  private drawAlone(): void {
    const frame = this.owner.frame()
    if (!frame) return
    this.draw(frame, false)
    this.owner.changed()
    this.showTooltip(frame)
  }
}

/** Wider columns get both their edges, others a line through their middle. */
const WIDE_PIXELS = 6
const LINE_OPACITY = '0.4'
/** Most allocations are shorter than this, in pixels: their canvas keeps its size. */
const SIZE_STEP = 128

class HoverLayer {
  readonly elements: readonly HTMLElement[]
  private readonly canvas = h('canvas.hovered', { 'aria-hidden': 'true', hidden: true })
  private readonly ctx = this.canvas.getContext('2d', { willReadFrequently: true })!
  private readonly lines = [0, 1].map(() => h('div.column-line.corner', { 'aria-hidden': 'true', hidden: true }))
  private readonly outline = new Outline()
  private readonly rects = new RectList()

  constructor() {
    this.elements = [this.canvas, ...this.lines]
  }

  /** `isOutlined`: false for an allocation that is outlined already. Null: nothing is under the pointer. */
  draw(frame: Frame, hit: Hit | null, level: number, isOutlined: boolean): void {
    const { plot } = frame
    const ratio = devicePixelRatio || 1
    // As many pixels as the picture has, whose edges the outline meets.
    const ratioX = Math.max(1, Math.round(plot.width * ratio)) / plot.width
    const ratioY = Math.max(1, Math.round(plot.height * ratio)) / plot.height
    this.drawLines(frame, hit, ratioX)
    this.rects.clear()
    if (hit && hit.id >= 0 && isOutlined)
      this.outline.draw({ ...frame, rects: this.rects }, hit.id, level, { stroke: 'ink', fill: null, thickness: 1 })
    const { canvas, ctx, rects } = this
    const [x0, y0, x1, y1] = boundsOf(rects)
    const left = Math.max(0, Math.round(x0 * ratioX))
    const top = Math.max(0, Math.round(y0 * ratioY))
    const width = Math.min(Math.round(plot.width * ratioX), Math.round(x1 * ratioX) + 1) - left
    const height = Math.min(Math.round(plot.height * ratioY), Math.round(y1 * ratioY) + 1) - top
    canvas.hidden = !(width > 0 && height > 0)
    if (canvas.hidden) return
    this.resize(roundUp(width), roundUp(height), ratioX, ratioY)
    canvas.style.transform = `translate(${plot.left + left / ratioX}px, ${plot.top + top / ratioY}px)`
    drawRectsFlat(ctx, rects, ratioX, ratioY, left, top)
  }

  /** Empties the canvas. Another size takes longer than that. */
  private resize(width: number, height: number, ratioX: number, ratioY: number): void {
    const { canvas, ctx } = this
    const isSame = canvas.width === width && canvas.height === height
    if (isSame) {
      ctx.setTransform(1, 0, 0, 1, 0, 0)
      ctx.clearRect(0, 0, width, height)
    } else {
      canvas.width = width
      canvas.height = height
    }
    canvas.style.width = `${width / ratioX}px`
    canvas.style.height = `${height / ratioY}px`
  }

  /** The column under the pointer, faintly, to show what the tooltip describes. */
  private drawLines(frame: Frame, hit: Hit | null, ratioX: number): void {
    const { plot, inks } = frame
    const x0 = hit ? Math.max(0, xToPixel(frame, hit.column.x0)) : 0
    const x1 = hit ? Math.min(plot.width, xToPixel(frame, hit.column.x1)) : 0
    const places = !hit ? [] : x1 - x0 > WIDE_PIXELS ? [x0, x1] : [(x0 + x1) / 2]
    this.lines.forEach((line, i) => {
      line.hidden = i >= places.length
      if (line.hidden) return
      const from = Math.round((places[i] - 0.5) * ratioX)
      const to = Math.max(from + 1, Math.round((places[i] + 0.5) * ratioX))
      const { style } = line
      style.transform = `translate(${plot.left + from / ratioX}px, ${plot.top}px)`
      style.width = `${(to - from) / ratioX}px`
      style.height = `${plot.height}px`
      style.background = css(inks.ink)
      style.opacity = LINE_OPACITY
    })
  }
}

function roundUp(pixels: number): number {
  return Math.ceil(pixels / SIZE_STEP) * SIZE_STEP
}

/** x0, y0, x1, y1 of all of them; x0 > x1 where there are none. */
function boundsOf({ coordinates, count }: RectList): [number, number, number, number] {
  const bounds: [number, number, number, number] = [Infinity, Infinity, -Infinity, -Infinity]
  for (let at = 0; at < 4 * count; at += 4) {
    bounds[0] = Math.min(bounds[0], coordinates[at])
    bounds[1] = Math.min(bounds[1], coordinates[at + 1])
    bounds[2] = Math.max(bounds[2], coordinates[at + 2])
    bounds[3] = Math.max(bounds[3], coordinates[at + 3])
  }
  return bounds
}
