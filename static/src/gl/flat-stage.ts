// Tiles as plain pixels on a 2D canvas: the first picture, since WebGL takes half a second to begin where graphics are
// emulated, and every picture where there is no WebGL2.

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
  private rgba: Uint8Array = new Uint8Array(4)
  private background: readonly [number, number, number] = [1, 1, 1]
  private version = 0

  constructor(private readonly ctx: CanvasRenderingContext2D) {
    super(BUDGET_BYTES)
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

/** Pixels. `words` is RGBA in memory order, as ImageData has it. */
export interface Raster {
  words: Uint32Array
  width: number
  height: number
  /** The lowest row is first, as in textures; else the upper one. */
  bottomUp?: boolean
}

/** Entries of the palette with less than full alpha are hatched: a pixel every so many along each row is lighter, or darker. */
export const HATCH = 6
/** The share of white or black in it. */
export const HATCH_SHARE = 0.4
export const HATCHED = 254

/** How much darker the lowest row of a band is at most. */
const EDGE = 0.34

/** Fills quads [from, from + count) so that xScale × source.ySpan units are the whole raster. rgba: 4 bytes per key. */
export function fillQuads(
  out: Raster,
  rgba: Uint8Array,
  source: QuadSource,
  from: number,
  count: number,
  xScale: number,
): void {
  const { words, width, height, bottomUp } = out
  const { rects } = source
  const perX = width / xScale
  const perY = height / source.ySpan
  for (let quad = from; quad < from + count; quad++) {
    // A pixel belongs to a quad that holds its middle.
    const x0 = Math.max(0, Math.ceil(rects[4 * quad] * perX - 0.5))
    const x1 = Math.min(width, Math.ceil(rects[4 * quad + 1] * perX - 0.5))
    const bottom = rects[4 * quad + 2] * perY
    const top = rects[4 * quad + 3] * perY
    const low = Math.max(0, Math.ceil(bottom - 0.5))
    const high = Math.min(height, Math.ceil(top - 0.5))
    if (x1 <= x0 || high <= low) continue
    const key = source.keyOf(quad)
    const at = 4 * (key >>> 8)
    const bright = 1 + 0.09 * ((key & 255) / 128 - 1)
    const inside = pack(rgba, at, bright)
    const stripe = rgba[at + 3] < 255 ? pack(rgba, at, bright, 1, inkOf(rgba, at, bright)) : 0
    const rows = top - bottom
    const fade = rows >= 12 ? 1 : rows <= 3 ? 0 : (rows - 3) / 9
    const edge = fade > 0 ? pack(rgba, at, bright, 1 - EDGE * fade) : inside
    for (let row = low; row < high; row++) {
      const color = row + 0.5 - bottom < 1 ? edge : inside
      const line = (bottomUp ? row : height - 1 - row) * width
      if (x1 - x0 > 32) words.fill(color, line + x0, line + x1)
      else for (let i = line + x0; i < line + x1; i++) words[i] = color
      if (stripe === 0) continue
      for (let x = x0 + ((((row - x0) % HATCH) + HATCH) % HATCH); x < x1; x += HATCH) words[line + x] = stripe
    }
  }
}

/** One opaque word of a palette entry; all machines that run browsers are little-endian. */
function pack(rgba: Uint8Array, at: number, bright: number, dark = 1, ink: number | null = null): number {
  const r = channel(rgba[at], bright, dark, ink)
  const g = channel(rgba[at + 1], bright, dark, ink)
  const b = channel(rgba[at + 2], bright, dark, ink)
  return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0
}

function channel(value: number, bright: number, dark: number, ink: number | null): number {
  const plain = Math.min(255, value * bright) * dark
  return Math.round(ink === null ? plain : plain * (1 - HATCH_SHARE) + ink * HATCH_SHARE)
}

/** White on dark colours, black on light ones. */
function inkOf(rgba: Uint8Array, at: number, bright: number): number {
  return bright * (0.299 * rgba[at] + 0.587 * rgba[at + 1] + 0.114 * rgba[at + 2]) < 0.6 * 255 ? 255 : 0
}

/** The word of an opaque colour (0…1 each). */
export function packColour([r, g, b]: readonly [number, number, number]): number {
  return pack(Uint8Array.of(Math.round(255 * r), Math.round(255 * g), Math.round(255 * b)), 0, 1)
}
