// Finished pictures of tiles, whatever draws them: each tile is painted once, a bounded number of quads per frame, and
// then only copied. The least recently shown ones are dropped when the budget of bytes is spent.
//
// Two kinds of stage exist: textures of WebGL (gl-stage.ts), and plain pixels (flat-stage.ts), which are there at once.

import type { Rect } from '../layout/viewport'

/** Rectangles of one tile. Coordinates are relative to the tile's origin. */
export interface QuadSource {
  quads: number
  /** 4 per quad: xa, xb, ya, yb */
  rects: Float32Array
  xSpan: number
  ySpan: number
  /** Of the palette's keys: only a palette for the same version can paint it. */
  version: number
  /** Palette key of a quad (24 bits) << 8 | shade (0…255, 128 = as in the palette). Unsigned. */
  keyOf(quad: number): number
}

/** A part of a tile's picture and where it goes. Both y axes point up. */
export interface Part extends Rect {
  id: string
  /** Part in texels; its place is in device pixels of the canvas, from its lower left corner. */
  u0: number
  u1: number
  v0: number
  v1: number
}

export interface Surface {
  width: number
  height: number
}

interface Tile<S> {
  source: QuadSource
  width: number
  height: number
  /** Width of the picture in the source's x units. */
  xScale: number
  /** The complete picture, which is copied also while a newer one is being painted. */
  front: S | null
  /** The front shows an older source. */
  isOld: boolean
  back: S | null
  painted: number
  lastUsed: number
}

export abstract class TileStage<S extends Surface = Surface> {
  /** Quads that may be painted in one frame while the view rests, and while it moves. */
  abstract readonly quadsPerFrame: { still: number; moving: number }
  /** Every pixel costs processor time. */
  abstract readonly isSoftware: boolean
  /** Clearing a picture and uploading it costs about as much as so many quads, even when it has none. */
  protected readonly quadsPerPicture: number = 1000
  /** Which keys the colours are for: a source of other keys keeps its picture, but is not painted and counts as missing. */
  keysVersion = 0
  private readonly tiles = new Map<string, Tile<S>>()
  private clock = 0

  constructor(private readonly budgetBytes: number) {}

  /** 4 bytes per key; background (0…1 each): what a picture shows where there is nothing. */
  abstract setColours(rgba: Uint8Array, background: readonly [number, number, number]): void
  /** Clears the canvas, then draws parts of complete pictures, later ones over earlier ones. fast: speed before quality. */
  abstract draw(parts: readonly Part[], fast: boolean): void
  /** Whether painting would start at once rather than wait for something. */
  abstract isReady(): boolean
  /** Prepares what later frames need. */
  abstract prepareAll(): void

  /** A surface of the background's colour; null while there can be none. */
  protected abstract make(width: number, height: number): S | null
  /** Painted in the current colours. */
  protected abstract isCurrent(surface: S): boolean
  /** Still holds what was painted. */
  protected abstract isAlive(surface: S): boolean
  protected abstract paintQuads(surface: S, source: QuadSource, from: number, count: number, xScale: number): void
  /** All quads are painted. */
  protected finish(_surface: S): void {}
  protected abstract free(surface: S): void

  has(id: string): boolean {
    return this.tiles.get(id)?.source.version === this.keysVersion
  }

  /** Takes a tile to be painted: width × height texels that cover xScale × source.ySpan units. Its previous picture stays until then. */
  add(id: string, source: QuadSource, width: number, height: number, xScale: number): void {
    const before = this.tiles.get(id)
    this.release(before?.back ?? null)
    const front = before?.front ?? null
    this.tiles.set(id, {
      source,
      width,
      height,
      xScale,
      front,
      isOld: front !== null,
      back: null,
      painted: 0,
      lastUsed: ++this.clock,
    })
  }

  /** Takes over the tiles of another stage, to be painted here too. */
  adopt(other: TileStage): void {
    this.keysVersion = other.keysVersion
    for (const [id, { source, width, height, xScale }] of other.tiles) this.add(id, source, width, height, xScale)
  }

  /** The picture of a tile if it is complete; marks it as used. */
  picture(id: string): S | null {
    const tile = this.tiles.get(id)
    if (!tile?.front || !this.isAlive(tile.front)) return null
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

  /** True when a tile is known and its picture is missing or was painted with older colours. */
  needsPaint(id: string): boolean {
    const tile = this.tiles.get(id)
    return tile !== undefined && tile.source.version === this.keysVersion && !this.isDone(tile)
  }

  /** Paints tiles in the given order until the quads of this frame are spent; true when any of them is left unfinished. */
  paint(ids: Iterable<string>, quadBudget: number): boolean {
    let left = quadBudget
    for (const id of ids) {
      const tile = this.tiles.get(id)
      if (!tile || tile.source.version !== this.keysVersion || this.isDone(tile)) continue
      if (left <= 0) return true
      left -= this.paintTile(tile, left)
      if (!this.isDone(tile)) return true
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

  /** Drops every tile whose id does not pass. */
  retain(passes: (id: string) => boolean): void {
    for (const id of [...this.tiles.keys()]) if (!passes(id)) this.drop(id)
  }

  private drop(id: string): void {
    const tile = this.tiles.get(id)
    if (!tile) return
    this.release(tile.front)
    this.release(tile.back)
    this.tiles.delete(id)
  }

  private isDone(tile: Tile<S>): boolean {
    return tile.front !== null && !tile.isOld && this.isAlive(tile.front) && this.isCurrent(tile.front)
  }

  /** Paints up to `limit` quads into the back picture; when it is complete it becomes the front. Returns what was spent. */
  private paintTile(tile: Tile<S>, limit: number): number {
    if (!tile.back || !this.isAlive(tile.back) || !this.isCurrent(tile.back)) {
      this.release(tile.back)
      tile.back = this.make(tile.width, tile.height)
      tile.painted = 0
      if (!tile.back) return limit
    }
    const count = Math.min(limit, tile.source.quads - tile.painted)
    if (count > 0) this.paintQuads(tile.back, tile.source, tile.painted, count, tile.xScale)
    tile.painted += count
    if (tile.painted >= tile.source.quads) {
      this.finish(tile.back)
      this.release(tile.front)
      tile.front = tile.back
      tile.isOld = false
      tile.back = null
    }
    return count + this.quadsPerPicture
  }

  private release(surface: S | null): void {
    if (surface && this.isAlive(surface)) this.free(surface)
  }
}

/** Texels of both pictures and the rectangles kept for the next theme or the next context. */
function bytesOf(tile: Tile<Surface>): number {
  const pictures = (tile.front ? 1 : 0) + (tile.back ? 1 : 0)
  return pictures * tile.width * tile.height * 4 + tile.source.quads * 24
}
