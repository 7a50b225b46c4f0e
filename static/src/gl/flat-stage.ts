// Tiles as plain pixels on a 2D canvas: the first picture, since WebGL takes half a second to begin where graphics are
// emulated, and every picture where there is no WebGL2.

import { fillQuads, packColour } from './raster'
import { type Part, type QuadSource, type Surface, TileStage } from './tile-stage'

/** Pixels while a tile is painted; after that a canvas to copy from. */
interface Pixels extends Surface {
  canvas: HTMLCanvasElement
  ctx: CanvasRenderingContext2D
  /** Null once they are on the canvas. */
  image: ImageData | null
  words: Uint32Array
  version: number
}

/** A quad costs a third of a microsecond here: the largest tile is painted within a frame or two. */
const QUADS_PER_FRAME = { still: 60_000, moving: 20_000 }
const BUDGET_BYTES = 96 * 2 ** 20

/** A 2D context in ordinary memory: one on the graphics card would wait for the very graphics that this stage avoids. */
export function flatContext(canvas: HTMLCanvasElement): CanvasRenderingContext2D | null {
  return canvas.getContext('2d', { willReadFrequently: true })
}

export class FlatStage extends TileStage<Pixels> {
  readonly quadsPerFrame = QUADS_PER_FRAME
  readonly isSoftware = true
  private readonly ctx: CanvasRenderingContext2D
  private rgba: Uint8Array = new Uint8Array(4)
  private background: readonly [number, number, number] = [1, 1, 1]
  private version = 0

  constructor(ctx: CanvasRenderingContext2D) {
    super(BUDGET_BYTES)
    this.ctx = ctx
  }

  isReady(): boolean {
    return true
  }

  prepareAll(): void {}

  setColours(rgba: Uint8Array, background: readonly [number, number, number]): void {
    this.rgba = rgba
    this.background = background
    this.version++
  }

  draw(parts: readonly Part[], fast: boolean): void {
    const { ctx } = this
    const { width, height } = ctx.canvas
    ctx.setTransform(1, 0, 0, 1, 0, 0)
    ctx.globalCompositeOperation = 'copy'
    ctx.fillStyle = `rgb(${this.background.map((part) => Math.round(255 * part)).join(' ')})`
    ctx.fillRect(0, 0, width, height)
    ctx.globalCompositeOperation = 'source-over'
    for (const { id, u0, u1, v0, v1, x0, x1, y0, y1 } of parts) {
      const picture = this.picture(id)
      if (!picture) continue
      // Magnified texels keep hard borders, minified ones are averaged.
      ctx.imageSmoothingEnabled = !fast && (x1 - x0 < 2 * (u1 - u0) || y1 - y0 < 2 * (v1 - v0))
      ctx.drawImage(picture.canvas, u0, picture.height - v1, u1 - u0, v1 - v0, x0, height - y1, x1 - x0, y1 - y0)
    }
  }

  protected make(width: number, height: number): Pixels | null {
    const canvas = document.createElement('canvas')
    canvas.width = width
    canvas.height = height
    const ctx = flatContext(canvas)
    if (!ctx) return null
    const image = ctx.createImageData(width, height)
    const words = new Uint32Array(image.data.buffer)
    words.fill(packColour(this.background))
    return { canvas, ctx, image, words, width, height, version: this.version }
  }

  protected isCurrent(pixels: Pixels): boolean {
    return pixels.version === this.version
  }

  protected isAlive(): boolean {
    return true
  }

  protected paintQuads(pixels: Pixels, source: QuadSource, from: number, count: number, xScale: number): void {
    fillQuads(pixels, this.rgba, source, from, count, xScale)
  }

  protected override finish(pixels: Pixels): void {
    if (pixels.image) pixels.ctx.putImageData(pixels.image, 0, 0)
    pixels.image = null
    pixels.words = new Uint32Array(0)
  }

  protected free(pixels: Pixels): void {
    pixels.canvas.width = 0
  }
}
