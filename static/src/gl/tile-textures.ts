// Tiles as textures: each is painted once, a bounded number of quads per frame, and then only blitted.
// The least recently shown ones go when the budget of bytes is spent.

import type { GlContext } from './context'
import type { QuadSource, TilePainter } from './tile-painter'

/** A picture of a tile that is complete and can be blitted. */
export interface Picture {
  texture: WebGLTexture
  width: number
  height: number
}

interface Canvas extends Picture {
  framebuffer: WebGLFramebuffer
  generation: number
  paletteVersion: number
}

interface Tile {
  source: QuadSource
  width: number
  height: number
  /** Width of the texture in the source's x units. */
  xScale: number
  /** Complete: what is blitted, also while a newer one is being painted. */
  front: Canvas | null
  back: Canvas | null
  painted: number
  lastUsed: number
}

export class TileTextures {
  private readonly context: GlContext
  private readonly painter: TilePainter
  private readonly budgetBytes: number
  private readonly tiles = new Map<string, Tile>()
  private clock = 0

  constructor(context: GlContext, painter: TilePainter, budgetBytes: number) {
    this.context = context
    this.painter = painter
    this.budgetBytes = budgetBytes
  }

  has(id: string): boolean {
    return this.tiles.has(id)
  }

  /** Takes a tile to be painted: width × height texels that cover xScale × source.ySpan units. */
  add(id: string, source: QuadSource, width: number, height: number, xScale: number): void {
    this.drop(id)
    this.tiles.set(id, {
      source, width, height, xScale, front: null, back: null, painted: 0, lastUsed: ++this.clock,
    })
  }

  /** The picture of a tile if it is complete; marks it as used. */
  picture(id: string): Picture | null {
    const tile = this.tiles.get(id)
    if (!tile?.front || tile.front.generation !== this.context.generation) return null
    tile.lastUsed = ++this.clock
    return tile.front
  }

  source(id: string): QuadSource | null {
    return this.tiles.get(id)?.source ?? null
  }

  /** Marks as used without needing a picture, so that a tile about to be painted is not evicted. */
  touch(id: string): void {
    const tile = this.tiles.get(id)
    if (tile) tile.lastUsed = ++this.clock
  }

  /** True when a tile is known and its picture is missing or was painted with an older palette. */
  needsPaint(id: string): boolean {
    const tile = this.tiles.get(id)
    return tile !== undefined && !this.isCurrent(tile.front)
  }

  /** Paints tiles in the given order until the quads of this frame are spent; true when any of them is left unfinished. */
  paint(ids: Iterable<string>, quadBudget: number): boolean {
    let left = quadBudget
    for (const id of ids) {
      const tile = this.tiles.get(id)
      if (!tile || this.isCurrent(tile.front)) continue
      if (left <= 0) return true
      left -= this.paintTile(tile, left)
      if (!this.isCurrent(tile.front)) return true
    }
    return false
  }

  /** Frees pictures until the budget holds, least recently used first, sparing the given ones. */
  evict(keep: ReadonlySet<string>): void {
    let bytes = 0
    for (const tile of this.tiles.values()) bytes += bytesOf(tile)
    if (bytes <= this.budgetBytes) return
    const oldest = [...this.tiles.entries()].sort((a, b) => a[1].lastUsed - b[1].lastUsed)
    for (const [id, tile] of oldest) {
      if (bytes <= this.budgetBytes) return
      if (keep.has(id)) continue
      bytes -= bytesOf(tile)
      this.drop(id)
    }
  }

  /** Forgets every tile whose id does not pass. */
  retain(passes: (id: string) => boolean): void {
    for (const id of [...this.tiles.keys()]) if (!passes(id)) this.drop(id)
  }

  private drop(id: string): void {
    const tile = this.tiles.get(id)
    if (!tile) return
    this.free(tile.front)
    this.free(tile.back)
    this.tiles.delete(id)
  }

  private isCurrent(canvas: Canvas | null): boolean {
    return canvas !== null && canvas.generation === this.context.generation
      && canvas.paletteVersion === this.painter.palette.version
  }

  /** Paints up to `limit` quads into the back picture; when it is complete it becomes the front. Returns what was spent. */
  private paintTile(tile: Tile, limit: number): number {
    const { gl } = this.context
    if (!this.isCurrent(tile.back)) {
      this.free(tile.back)
      tile.back = this.makeCanvas(tile.width, tile.height)
      tile.painted = 0
      if (!tile.back) return limit
    } else {
      gl.bindFramebuffer(gl.FRAMEBUFFER, tile.back!.framebuffer)
      gl.viewport(0, 0, tile.width, tile.height)
    }
    const count = Math.min(limit, tile.source.quads - tile.painted)
    if (count > 0) this.painter.paint(tile.source, tile.painted, count, tile.xScale, tile.height)
    tile.painted += count
    if (tile.painted >= tile.source.quads) {
      this.free(tile.front)
      tile.front = tile.back
      tile.back = null
    }
    // Clearing and filling a texture costs about as much as a thousand quads, also when it holds none.
    return count + 1000
  }

  private makeCanvas(width: number, height: number): Canvas | null {
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

  private free(canvas: Canvas | null): void {
    if (!canvas || canvas.generation !== this.context.generation) return
    this.context.gl.deleteFramebuffer(canvas.framebuffer)
    this.context.gl.deleteTexture(canvas.texture)
  }
}

/** Texels of both pictures and the rectangles kept for the next theme or the next context. */
function bytesOf(tile: Tile): number {
  const pictures = (tile.front ? 1 : 0) + (tile.back ? 1 : 0)
  return pictures * tile.width * tile.height * 4 + tile.source.quads * 40
}
