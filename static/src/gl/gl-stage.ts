// Tiles as textures of WebGL.

import { Blitter } from './blit'
import type { GlContext } from './context'
import type { Texture } from './texture'
import { TilePainter } from './tile-painter'
import { type Part, type QuadSource, TileStage } from './tile-stage'

/** Quads painted in one frame. Without a graphics card 12,000 take about 15 ms; while the view moves, its frames come first. */
const QUADS_PER_FRAME = { card: { still: 30_000, moving: 30_000 }, software: { still: 12_000, moving: 5_000 } }
const TEXTURE_BUDGET_BYTES = 144 * 2 ** 20

export class GlStage extends TileStage<Texture> {
  readonly quadsPerFrame
  readonly isSoftware
  private readonly context: GlContext
  private readonly painter: TilePainter
  private readonly blitter: Blitter

  constructor(context: GlContext) {
    super(TEXTURE_BUDGET_BYTES)
    this.context = context
    this.isSoftware = context.isSoftware
    this.quadsPerFrame = QUADS_PER_FRAME[context.isSoftware ? 'software' : 'card']
    this.painter = new TilePainter(context)
    this.blitter = new Blitter(context)
  }

  /** Starts to compile what the first picture needs. */
  prepare(): void {
    this.painter.prepare()
    this.blitter.prepare()
  }

  isReady(): boolean {
    return !this.context.isLost && this.painter.isReady() && this.blitter.isReady()
  }

  prepareAll(): void {
    this.blitter.prepareAll()
  }

  setColours(rgba: Uint8Array, background: readonly [number, number, number]): void {
    this.painter.palette.set(rgba, background)
  }

  draw(parts: readonly Part[], fast: boolean): void {
    this.context.clear(this.painter.palette.background)
    this.blitter.draw(parts, (id) => this.picture(id), fast)
  }

  protected isCurrent(texture: Texture): boolean {
    return texture.paletteVersion === this.painter.palette.version
  }

  protected isAlive(texture: Texture): boolean {
    return texture.generation === this.context.generation
  }

  protected paintQuads({ framebuffer, width, height }: Texture, source: QuadSource, from: number, count: number, xScale: number): void {
    const { gl } = this.context
    gl.bindFramebuffer(gl.FRAMEBUFFER, framebuffer)
    gl.viewport(0, 0, width, height)
    this.painter.paint(source, from, count, xScale, height)
  }

  protected make(width: number, height: number): Texture | null {
    const { gl, generation } = this.context
    const texture = gl.createTexture()
    const framebuffer = gl.createFramebuffer()
    if (!texture || !framebuffer) return null
    gl.activeTexture(gl.TEXTURE0)
    gl.bindTexture(gl.TEXTURE_2D, texture)
    gl.texStorage2D(gl.TEXTURE_2D, 1, gl.RGBA8, width, height)
    gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MIN_FILTER, gl.LINEAR)
    gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MAG_FILTER, gl.LINEAR)
    gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_WRAP_S, gl.CLAMP_TO_EDGE)
    gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_WRAP_T, gl.CLAMP_TO_EDGE)
    gl.bindFramebuffer(gl.FRAMEBUFFER, framebuffer)
    gl.framebufferTexture2D(gl.FRAMEBUFFER, gl.COLOR_ATTACHMENT0, gl.TEXTURE_2D, texture, 0)
    gl.viewport(0, 0, width, height)
    // Opaque, so that blits need no blending and a finer tile hides the coarser one under it whole.
    gl.clearColor(...this.painter.palette.background, 1)
    gl.clear(gl.COLOR_BUFFER_BIT)
    return { texture, framebuffer, width, height, generation, paletteVersion: this.painter.palette.version }
  }

  protected free({ framebuffer, texture }: Texture): void {
    this.context.gl.deleteFramebuffer(framebuffer)
    this.context.gl.deleteTexture(texture)
  }
}
