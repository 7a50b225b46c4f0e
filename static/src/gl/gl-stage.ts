// Tiles as textures of WebGL. Without a graphics card the processor paints them here rather than through WebGL: that takes
// a third of the time, since an emulated card spends most of it on setting up triangles that are a few pixels large.

import { Blitter } from './blit'
import type { GlContext, Target } from './context'
import { fillQuads, packColour } from './raster'
import { freeTexture, makeTexture, type Texture } from './texture'
import { TilePainter } from './tile-painter'
import { type Part, type QuadSource, TileStage } from './tile-stage'

/** Quads painted in one frame. Without a graphics card 12,000 take about 4 ms; while the view moves, its frames come first. */
const QUADS_PER_FRAME = { card: { still: 30_000, moving: 30_000 }, software: { still: 36_000, moving: 12_000 } }
/** Filling 4 MB with the background and moving them to a texture. */
const QUADS_PER_UPLOAD = 10_000
const TEXTURE_BUDGET_BYTES = 144 * 2 ** 20

/** What a frame shows of the tiles. */
export interface Shown {
  parts: readonly Part[]
  pictures: readonly (Texture | null)[]
  fast: boolean
  background: readonly [number, number, number]
}

export class GlStage extends TileStage<Texture> {
  readonly quadsPerFrame
  readonly isSoftware
  protected override readonly quadsPerPicture
  shown: Shown = { parts: [], pictures: [], fast: false, background: [1, 1, 1] }
  private readonly context: GlContext
  private readonly painter: TilePainter
  private readonly blitter: Blitter
  private rgba: Uint8Array = new Uint8Array(4)
  /** Pixels of the last picture, for the next. */
  private spare: Uint32Array | null = null

  constructor(context: GlContext) {
    super(TEXTURE_BUDGET_BYTES)
    this.context = context
    this.isSoftware = context.isSoftware
    this.quadsPerPicture = context.isSoftware ? QUADS_PER_UPLOAD : 1000
    this.quadsPerFrame = QUADS_PER_FRAME[context.isSoftware ? 'software' : 'card']
    this.painter = new TilePainter(context)
    this.blitter = new Blitter(context)
  }

  /** Starts to compile what the first picture needs. */
  prepare(): void {
    if (!this.isSoftware) this.painter.prepare()
    this.blitter.prepare()
  }

  isReady(): boolean {
    return !this.context.isLost && (this.isSoftware || this.painter.isReady()) && this.blitter.isReady()
  }

  prepareAll(): void {
    this.blitter.prepareAll()
  }

  setColours(rgba: Uint8Array, background: readonly [number, number, number]): void {
    this.rgba = rgba
    this.painter.palette.set(rgba, background)
  }

  /** Only notes what the frame shows: it is drawn together with the rectangles over it (see backdrop.ts). */
  draw(parts: readonly Part[], fast: boolean): void {
    const { background } = this.painter.palette
    this.shown = { parts, pictures: parts.map(({ id }) => this.picture(id)), fast, background }
  }

  /** Draws what the frame shows. */
  drawShown(target: Target): void {
    const { parts, pictures, fast, background } = this.shown
    const pictureOf = new Map(parts.map(({ id }, i) => [id, pictures[i]]))
    this.context.clear(target, background)
    this.blitter.draw(target, parts, (id) => pictureOf.get(id) ?? null, fast)
  }

  /** Copies a picture of the same size. */
  copy(target: Target, picture: Texture): void {
    const { width, height } = picture
    const whole = { id: '', u0: 0, u1: width, v0: 0, v1: height, x0: 0, x1: width, y0: 0, y1: height }
    this.blitter.draw(target, [whole], () => picture, true)
  }

  protected isCurrent(texture: Texture): boolean {
    return texture.paletteVersion === this.painter.palette.version
  }

  protected isAlive(texture: Texture): boolean {
    return texture.generation === this.context.generation
  }

  protected paintQuads(texture: Texture, source: QuadSource, from: number, count: number, xScale: number): void {
    if (texture.pixels) return fillQuads(texture.pixels, this.rgba, source, from, count, xScale)
    this.context.bind(texture)
    this.painter.paint(source, from, count, xScale, texture.height)
  }

  protected make(width: number, height: number): Texture | null {
    const { palette } = this.painter
    const texture = makeTexture(this.context, width, height, palette.version)
    if (texture && this.isSoftware) {
      const words = this.spare?.length === width * height ? this.spare : new Uint32Array(width * height)
      this.spare = null
      texture.pixels = { words: words.fill(packColour(palette.background)), width, height, bottomUp: true }
    } else if (texture) this.context.clear(texture, palette.background)
    return texture
  }

  protected override finish(picture: Texture): void {
    const { texture, pixels, width, height } = picture
    if (!pixels) return
    const { gl } = this.context
    gl.activeTexture(gl.TEXTURE0)
    gl.bindTexture(gl.TEXTURE_2D, texture)
    gl.texSubImage2D(
      gl.TEXTURE_2D,
      0,
      0,
      0,
      width,
      height,
      gl.RGBA,
      gl.UNSIGNED_BYTE,
      new Uint8Array(pixels.words.buffer),
    )
    this.spare = pixels.words
    picture.pixels = null
  }

  protected free(texture: Texture): void {
    freeTexture(this.context, texture)
  }
}
