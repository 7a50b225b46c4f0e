// The canvas of the timeline: tiles and rectangles by WebGL2, or the rectangles alone on a 2D canvas where there is none.

import type { Drawn } from '../../controller'
import type { ViewWindow } from '../../data/model'
import { GlContext } from '../../gl/context'
import { drawRectsFlat, type RectList, RectPainter } from '../../gl/rects'
import { type LayerFrame, TileLayer, type TileProvider } from '../../gl/tile-layer'
import { h } from '../../ui/dom'
import { stackColours } from './colours'
import type { Plot } from './frame'

export const NOTHING_DRAWN: Drawn = { level: 0, triangles: 0, exact: true, tiles: 0, pending: 0 }

/** Stored tiles are painted before the stack table arrives. Most tables are shorter than this; then nothing is painted twice. */
const COLOURS_AT_LEAST = 1 << 14

export class Picture {
  readonly canvas = h('canvas', { class: 'picture', 'aria-hidden': 'true' })
  /** Null where the browser has no WebGL2. */
  readonly gl: GlContext | null
  drawn: Drawn = NOTHING_DRAWN
  private layerFrame: LayerFrame | null = null
  private readonly layer: TileLayer | null
  private readonly rectPainter: RectPainter | null
  private readonly flat: CanvasRenderingContext2D | null
  private background: [number, number, number] = [1, 1, 1]
  private coloursFor = ''
  private flatRequest = 0
  private onFrame: () => void = () => {}

  constructor() {
    this.gl = GlContext.create(this.canvas)
    this.layer = this.gl && new TileLayer(this.gl)
    this.rectPainter = this.gl && new RectPainter(this.gl)
    this.flat = this.gl ? null : this.canvas.getContext('2d')
  }

  /** Starts to compile what the first picture needs. */
  compile(): void {
    this.layer?.prepare()
    this.rectPainter?.prepare()
  }

  /** onFrame draws; onError hears of tiles that cannot be made. */
  connect(onFrame: () => void, onError: (error: unknown) => void): void {
    this.onFrame = onFrame
    this.gl?.onFrame(onFrame)
    if (this.layer) this.layer.onError = onError
  }

  requestFrame(): void {
    if (this.gl) this.gl.requestFrame()
    else this.flatRequest ||= requestAnimationFrame(() => this.drawNow())
  }

  drawNow(): void {
    this.flatRequest = 0
    if (this.gl) this.gl.drawNow()
    else this.onFrame()
  }

  /** The canvas is the plot: its corners are the corners of the window. */
  place(plot: Plot): void {
    const ratio = devicePixelRatio || 1
    const { canvas } = this
    const width = Math.max(1, Math.round(plot.width * ratio))
    const height = Math.max(1, Math.round(plot.height * ratio))
    canvas.style.transform = `translate(${plot.left}px, ${plot.top}px)`
    canvas.style.width = `${plot.width}px`
    canvas.style.height = `${plot.height}px`
    if (canvas.width === width && canvas.height === height) return
    canvas.width = width
    canvas.height = height
  }

  /** Colours for so many stacks on a background (0…255 each). Nothing happens when they are the same as before. */
  colour(stacks: number, dark: boolean, background: readonly number[]): void {
    this.background = [background[0] / 255, background[1] / 255, background[2] / 255]
    const count = Math.max(COLOURS_AT_LEAST, stacks)
    const key = [count, dark, ...this.background].join()
    if (!this.layer || key === this.coloursFor) return
    this.coloursFor = key
    this.layer.painter.palette.set(stackColours(count, dark), this.background)
  }

  /** Draws the window's tiles over the background; no provider: the background alone. */
  drawTiles(provider: TileProvider | null, window: ViewWindow): void {
    const { gl, layer, canvas } = this
    if (!gl || !layer || gl.isLost) return
    gl.clear(this.background)
    this.layerFrame = provider && layer.draw(provider, window, { x0: 0, x1: canvas.width, y0: 0, y1: canvas.height })
    if (!this.layerFrame) {
      this.drawn = NOTHING_DRAWN
      return
    }
    const { level, triangles, exact, tiles, pending } = this.layerFrame
    this.drawn = { level, triangles, exact, tiles, pending }
  }

  drawRects(rects: RectList, { width, height }: Plot): void {
    if (this.gl) {
      if (!this.gl.isLost) this.rectPainter?.draw(rects, width, height)
    } else if (this.flat) {
      this.flat.setTransform(this.canvas.width / width, 0, 0, this.canvas.height / height, 0, 0)
      this.flat.clearRect(0, 0, width, height)
      drawRectsFlat(this.flat, rects)
    }
  }

  /** Level of what is shown at a place of the x axis; -1 where nothing is. */
  levelAt(x: number): number {
    return this.layerFrame?.levelAt(x) ?? -1
  }

  /** Forgets the tiles of other devices. */
  keepOnly(device: number): void {
    this.layerFrame = null
    this.layer?.retain((id) => id.startsWith(`${device}/`))
  }
}

let prepared: Picture | null = null

/**
 * Makes the picture ahead of its use. Setting up WebGL takes a third of a second where graphics are emulated, and may
 * as well happen while the worker reads the report.
 */
export function preparePicture(): void {
  if (prepared) return
  prepared = new Picture()
  prepared.compile()
}

/** The prepared picture, or a new one. */
export function takePicture(): Picture {
  const picture = prepared ?? new Picture()
  prepared = null
  return picture
}
