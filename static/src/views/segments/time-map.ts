// Segments and blocks over time: events to the right, addresses upwards, every allocation a rectangle.

import type { Replay } from '../../allocator/replay'
import { formatBytes, formatCount } from '../../layout/format'
import { clamp } from '../../layout/viewport'
import { h } from '../../ui/dom'
import type { Range } from '../../ui/state'
import { describeLifetime, framesOf, type Line } from '../shared/describe'
import type { Groups } from '../shared/groups'
import { css, type Inks, mix, word } from '../shared/inks'
import { type Box, drawMoment, drawXAxis, pictureRatio, pixelToX, prepareCanvas, xToPixel } from '../shared/plot-frame'
import { PointerInput } from '../shared/pointer'
import { Tooltip } from '../shared/tooltip'
import { panned, positionsIn, type XWindow, xOfPosition, xPatch, xWindowOf, zoomed } from '../shared/x-window'
import type { ViewContext, ViewParts } from '../view'
import { type AddressAxis, addressAt, addressAxisOf, placeOf, ticksOf } from './address-axis'
import { type Places, paintTime } from './time-raster'

/** The option that holds the window of the address axis: "from..to" in bytes of the axis. */
export const Y_OPTION = 'segments.y'
/** From this width on there is room for addresses beside the picture. */
const ROOMY = 760
const GUTTER = 114
/** Pixels between two of them. */
const ADDRESS_ROOM = 18

interface Shown {
  context: ViewContext
  replay: Replay
  groups: Groups
  inks: Inks
  axis: AddressAxis
  places: Places
  window: XWindow
  y: Range
  box: Box
}

export class TimeMap {
  readonly element: HTMLElement
  private readonly parts: ViewParts
  private readonly canvas = h('canvas', { 'aria-hidden': 'true' })
  private readonly overlay = h('canvas', { 'aria-hidden': 'true' })
  private readonly plot: HTMLElement
  private readonly tooltip = new Tooltip()
  private readonly picturePixels = document.createElement('canvas')
  private shown: Shown | null = null
  private prepared: { replay: Replay; axis: AddressAxis; places: Places } | null = null
  private drawnKey = ''
  private hover: { x: number; y: number } | null = null
  private frame = 0
  /** Rectangles in sight when last painted, and how long that took in ms; for tests and measurements. */
  seen = 0
  paintMs = 0

  constructor(parts: ViewParts) {
    this.parts = parts
    this.plot = h(
      'div',
      {
        class: 'time-plot',
        tabindex: 0,
        role: 'application',
        'aria-roledescription': 'memory map over time',
        'aria-label': 'Blocks by address over events',
      },
      this.canvas,
      this.overlay,
    )
    this.element = h('div', { class: 'time-map' }, this.plot, this.tooltip.element)
    new PointerInput(this.plot, {
      pan: (dx, dy) => this.pan(dx, dy),
      zoom: (x, y, factorX, factorY) => this.zoom(x, y, factorX, factorY),
      box: () => {},
      zoomToBox: () => {},
      hover: (x, y) => this.point(x, y),
      leave: () => this.leave(),
      click: (x, y) => this.click(x, y),
      fit: () => this.fit(),
      origin: () => ({ left: 0, top: 0 }),
      boxMode: () => false,
    })
  }

  show(context: ViewContext, replay: Replay, groups: Groups, inks: Inks): void {
    const width = this.plot.clientWidth
    const height = this.plot.clientHeight
    if (width === 0) return
    if (this.prepared?.replay !== replay) {
      const axis = addressAxisOf(replay)
      const { segments } = replay
      const places = {
        allocation: replay.address.map((address) => placeOf(axis, address)),
        segment: segments.start.map((start) => placeOf(axis, start)),
      }
      this.prepared = { replay, axis, places }
    }
    const { axis, places } = this.prepared
    const right = width < 560 ? 12 : 20
    const left = width < ROOMY ? right : GUTTER
    const box: Box = { left, top: 22, width: Math.max(1, width - left - right), height: Math.max(1, height - 22 - 28) }
    const window = xWindowOf(context.data, context.state)
    this.shown = { context, replay, groups, inks, axis, places, window, y: yWindow(context, axis), box }
    this.draw()
  }

  /** W and S zoom, A and D pan, 0 shows everything; arrows up and down pan over addresses. */
  key(event: KeyboardEvent): boolean {
    const { shown } = this
    if (!shown) return false
    const { box } = shown
    const x = box.left + box.width / 2
    const y = box.top + box.height / 2
    switch (event.key.length === 1 ? event.key.toLowerCase() : event.key) {
      case 'w':
      case '+':
      case '=':
        return (this.zoom(x, y, event.shiftKey ? 1 : 0.75, event.shiftKey ? 0.75 : 1), true)
      case 's':
      case '-':
      case '_':
        return (this.zoom(x, y, event.shiftKey ? 1 : 1 / 0.75, event.shiftKey ? 1 / 0.75 : 1), true)
      case 'a':
        return (this.pan(box.width * 0.12, 0), true)
      case 'd':
        return (this.pan(-box.width * 0.12, 0), true)
      case 'ArrowUp':
        return (this.pan(0, box.height * 0.12), true)
      case 'ArrowDown':
        return (this.pan(0, -box.height * 0.12), true)
      case '0':
      case 'Home':
        return (this.fit(), true)
      default:
        return false
    }
  }

  picture(): HTMLCanvasElement {
    return this.canvas
  }

  /** CSS pixels of the window for the middle of an allocation's rectangle, as far as it is in sight. */
  placeOf(id: number): { x: number; y: number } | null {
    const { shown } = this
    if (!shown) return null
    const rect = this.rectOf(id)
    const bounds = this.plot.getBoundingClientRect()
    const { box } = shown
    const x = (Math.max(box.left, rect.x0) + Math.min(box.left + box.width, rect.x1)) / 2
    return { x: bounds.left + x, y: bounds.top + (rect.y0 + rect.y1) / 2 }
  }

  private draw(): void {
    const { shown } = this
    if (!shown) return
    const {
      context: { colouring, matches, state, dark, data },
      window,
      y,
      box,
    } = shown
    const key = JSON.stringify([
      data.info.index,
      colouring.by,
      colouring.version,
      matches?.query,
      dark,
      window.scale.axis,
      window.x0,
      window.x1,
      y,
      box,
      devicePixelRatio,
      state.theme,
    ])
    if (key !== this.drawnKey) this.paint()
    this.drawnKey = key
    this.drawOverlay()
  }

  private paint(): void {
    const {
      context: { colouring, matches, info },
      replay,
      inks,
      places,
      window,
      y,
      box,
    } = this.shown!
    const began = performance.now()
    const ratio = pictureRatio(box.width, box.height)
    const width = Math.max(1, Math.round(box.width * ratio))
    const height = Math.max(1, Math.round(box.height * ratio))
    const image = new ImageData(width, height)
    const pixels = new Uint32Array(image.data.buffer)
    pixels.fill(word(inks.panel))
    const plot = { scale: window.scale, x0: window.x0, x1: window.x1, y0: y[0], y1: y[1], width, height }
    this.seen = paintTime(pixels, replay, places, plot, {
      keys: colouring.keys,
      words: wordsOf(colouring.rgba, colouring.count, null),
      dim: matches ? wordsOf(colouring.rgba, colouring.count, inks) : new Uint32Array(0),
      mask: matches?.mask ?? null,
      pending: word(inks.pending),
      free: inks.split,
    })
    this.picturePixels.width = width
    this.picturePixels.height = height
    this.picturePixels.getContext('2d')!.putImageData(image, 0, 0)
    const ctx = prepareCanvas(this.canvas, this.plot.clientWidth, this.plot.clientHeight)
    ctx.imageSmoothingEnabled = false
    ctx.drawImage(this.picturePixels, box.left, box.top, box.width, box.height)
    drawXAxis(ctx, box, window, info, inks)
    if (box.left === GUTTER) this.drawAddresses(ctx)
    this.paintMs = performance.now() - began
  }

  /** Where stretches of addresses begin, from the lowest up, each that has room. */
  private drawAddresses(ctx: CanvasRenderingContext2D): void {
    const { axis, y, box, inks, replay } = this.shown!
    const bottom = box.top + box.height
    ctx.textAlign = 'right'
    ctx.textBaseline = 'middle'
    ctx.fillStyle = css(inks.soft)
    for (const { place, address } of ticksOf(axis, y, (ADDRESS_ROOM / box.height) * (y[1] - y[0]))) {
      const pixel = Math.round(bottom - ((place - y[0]) / (y[1] - y[0])) * box.height)
      ctx.fillRect(box.left - 5, Math.min(bottom - 1, pixel), 4, 1)
      ctx.fillText(replay.space.text(address), box.left - 9, Math.min(bottom - 5, pixel))
    }
    ctx.textAlign = 'left'
  }

  private drawOverlay(): void {
    const { context, replay, inks, window, box } = this.shown!
    const { data, state, position } = context
    const ctx = prepareCanvas(this.overlay, this.plot.clientWidth, this.plot.clientHeight)
    if (data.n > 0)
      drawMoment(
        ctx,
        box,
        window,
        xOfPosition(data, window.scale, position),
        css(inks.accent),
        position === 0 ? 'start' : `event ${formatCount(position - 1)}`,
      )
    ctx.save()
    ctx.beginPath()
    ctx.rect(box.left, box.top, box.width, box.height)
    ctx.clip()
    const outline = (id: number, colour: string, width: number): void => {
      const { x0, x1, y0, y1 } = this.rectOf(id)
      ctx.strokeStyle = colour
      ctx.lineWidth = width
      ctx.strokeRect(x0 - 0.5, y0 - 0.5, Math.max(3, x1 - x0) + 1, Math.max(3, y1 - y0) + 1)
    }
    if (state.select !== null && state.select < replay.data.N) outline(state.select, css(inks.accent), 2.5)
    if (this.hover) {
      const id = this.idAt(this.hover.x, this.hover.y)
      if (id >= 0) outline(id, css(inks.ink), 1)
    }
    ctx.restore()
  }

  private rectOf(id: number): { x0: number; x1: number; y0: number; y1: number } {
    const {
      context: { data },
      replay,
      places,
      window,
      y,
      box,
    } = this.shown!
    const toY = (place: number): number => box.top + box.height - ((place - y[0]) / (y[1] - y[0])) * box.height
    return {
      x0: xToPixel(window, box, xOfPosition(data, window.scale, data.start[id])),
      x1: xToPixel(window, box, xOfPosition(data, window.scale, data.end[id])),
      y0: toY(places.allocation[id] + replay.block[id]),
      y1: toY(places.allocation[id]),
    }
  }

  /** The allocation at a pixel: exactly there, else the largest of those thinner than a pixel that share it; -1: none. */
  private idAt(x: number, y: number): number {
    const {
      context: { data },
      replay,
      places,
      window,
      y: yRange,
      box,
    } = this.shown!
    if (x < box.left || x >= box.left + box.width || y < box.top || y >= box.top + box.height) return -1
    const [from, to] = positionsIn(data, window.scale, pixelToX(window, box, x), pixelToX(window, box, x + 1))
    const perPixel = (yRange[1] - yRange[0]) / box.height
    const low = yRange[0] + (box.top + box.height - y - 1) * perPixel
    const high = low + perPixel
    let best = -1
    let most = 0
    for (let id = 0; id < data.N; id++) {
      if (data.start[id] >= to || data.end[id] <= from) continue
      const bottom = places.allocation[id]
      if (bottom >= high || bottom + replay.block[id] <= low) continue
      const shared =
        (Math.min(high, bottom + replay.block[id]) - Math.max(low, bottom)) *
        (Math.min(to, data.end[id]) - Math.max(from, data.start[id]))
      if (shared > most) {
        most = shared
        best = id
      }
    }
    return best
  }

  private point(x: number, y: number): void {
    if (!this.shown) return
    this.hover = { x, y }
    if (this.frame === 0) this.frame = requestAnimationFrame(() => this.afterMove())
  }

  private afterMove(): void {
    this.frame = 0
    if (!this.shown || !this.hover) return
    this.drawOverlay()
    const { x, y } = this.hover
    const lines = this.describe(x, y)
    if (lines.length === 0) this.tooltip.hide()
    else {
      const id = this.idAt(x, y)
      const { colouring } = this.shown.context
      const key = id < 0 ? 0 : 4 * colouring.keys[id]
      this.tooltip.show(
        lines,
        x,
        y,
        id < 0 ? null : css([colouring.rgba[key], colouring.rgba[key + 1], colouring.rgba[key + 2]]),
      )
    }
  }

  private describe(x: number, y: number): Line[] {
    const {
      context: { data, stacks },
      replay,
      groups,
      axis,
      window,
      y: yRange,
      box,
    } = this.shown!
    if (x < box.left || x >= box.left + box.width || y < box.top || y >= box.top + box.height) return []
    const [position] = positionsIn(data, window.scale, pixelToX(window, box, x), pixelToX(window, box, x + 1))
    const address = addressAt(axis, yRange[0] + ((box.top + box.height - y) / box.height) * (yRange[1] - yRange[0]))
    const id = this.idAt(x, y)
    const lines: Line[] = []
    if (id >= 0) {
      lines.push({ kind: 'title', text: `${formatBytes(data.size[id])}  ·  ${replay.space.text(replay.address[id])}` })
      lines.push(...framesOf(stacks, data.stack[id]))
      lines.push({ kind: 'plain', text: describeLifetime(data, id) })
    } else if (address >= 0) {
      lines.push({ kind: 'title', text: `nothing allocated  ·  ${replay.space.text(Math.floor(address))}` })
    }
    const { segments } = replay
    for (let row = 0; row < segments.count && address >= 0; row++) {
      if (
        segments.start[row] > address ||
        segments.end[row] <= address ||
        segments.from[row] > position ||
        segments.to[row] <= position
      )
        continue
      lines.push({
        kind: 'soft',
        text: `segment of ${formatBytes(segments.end[row] - segments.start[row])} at ${replay.space.text(segments.start[row])} · ${groups.names[groups.of[row]]}`,
      })
      break
    }
    if (lines.length)
      lines.push({
        kind: 'soft',
        text: position === 0 ? 'before the first event' : `event ${formatCount(position - 1)}`,
      })
    return lines
  }

  private leave(): void {
    this.hover = null
    this.tooltip.hide()
    if (this.shown) this.drawOverlay()
  }

  private click(x: number, y: number): void {
    if (!this.shown) return
    const {
      context: { data },
      window,
      box,
    } = this.shown
    const id = this.idAt(x, y)
    const [position] = positionsIn(data, window.scale, pixelToX(window, box, x), pixelToX(window, box, x + 1))
    this.parts.store.set({ select: id < 0 ? null : id, at: position - 1 })
  }

  private zoom(x: number, y: number, factorX: number, factorY: number): void {
    if (!this.shown) return
    const {
      window,
      box,
      y: [y0, y1],
    } = this.shown
    if (factorX !== 1) this.parts.store.set(xPatch(zoomed(window, pixelToX(window, box, x), factorX)))
    if (factorY !== 1) {
      const at = y0 + ((box.top + box.height - y) / box.height) * (y1 - y0)
      this.setY([at + (y0 - at) * factorY, at + (y1 - at) * factorY])
    }
  }

  private pan(dx: number, dy: number): void {
    if (!this.shown) return
    const {
      window,
      box,
      y: [y0, y1],
    } = this.shown
    if (dx !== 0) this.parts.store.set(xPatch(panned(window, (-dx / box.width) * (window.x1 - window.x0))))
    const by = (dy / box.height) * (y1 - y0)
    if (dy !== 0) this.setY([y0 + by, y1 + by])
  }

  private fit(): void {
    this.parts.store.set({ x: null })
    this.parts.store.setOption(Y_OPTION, null)
  }

  private setY([from, to]: Range): void {
    const { axis, y } = this.shown!
    if (to - from > axis.length * 0.9999) return this.parts.store.setOption(Y_OPTION, null)
    const { y0, y1 } = clamp(
      { x0: 0, x1: 1, y0: from, y1: to },
      { bounds: { x0: 0, x1: 1, y0: 0, y1: axis.length }, minXSpan: 1, minYSpan: 4096 },
    )
    if (y0 !== y[0] || y1 !== y[1]) this.parts.store.setOption(Y_OPTION, `${Math.round(y0)}..${Math.round(y1)}`)
  }
}

function yWindow({ state }: ViewContext, axis: AddressAxis): Range {
  const match = /^(\d+)\.\.(\d+)$/.exec(state.options[Y_OPTION] ?? '')
  const from = match ? Number(match[1]) : 0
  const to = match ? Math.min(axis.length, Number(match[2])) : axis.length
  return to > from ? [from, to] : [0, axis.length]
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
