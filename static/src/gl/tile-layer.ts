// A pyramid of tiles on the canvas: asks for the tiles that the window wants, has them painted a little per frame,
// and shows the best there is meanwhile.

import { Blitter, type Blit } from './blit'
import type { GlContext } from './context'
import { type Address, chooseLevels, coverWanted, type Grid, type Rect, regionOf, wantedTiles } from './cover'
import { type QuadSource, TilePainter } from './tile-painter'
import { TileTextures } from './tile-textures'

/** A tile as its provider hands it over. */
export interface TileSource extends QuadSource {
  /** Columns that hold data; the rest of the tile is empty. */
  columns: number
  exact: boolean
}

/** Where tiles come from. Ids name the pyramid too, so that several may share the textures. */
export interface TileProvider {
  grid: Grid
  id(address: Address): string
  /** Rejects when cancelled. */
  load(address: Address): Promise<TileSource>
  cancel(address: Address): void
}

export interface LayerFrame {
  /** Level that the window wants, and the coarsest one on the canvas. */
  wantedLevel: number
  level: number
  yLevel: number
  exact: boolean
  tiles: number
  triangles: number
  /** Tiles wanted but not yet on the canvas. */
  pending: number
  /** Coarsest shown level at a place, for those who must say what is seen there; -1 where nothing is. */
  levelAt(x: number): number
}

/** Quads painted in one frame. Without a graphics card 12,000 take about 15 ms; while the view moves, its frames come first. */
const QUADS_PER_FRAME = { card: 30_000, still: 12_000, moving: 5_000 }
/** So long after the last move the picture is drawn beautifully again. */
const REST_MS = 120
const TEXTURE_BUDGET_BYTES = 144 * 2 ** 20
const MAX_REQUESTS = 6

export class TileLayer {
  private readonly context: GlContext
  readonly painter: TilePainter
  private readonly blitter: Blitter
  private readonly textures: TileTextures
  private readonly requests = new Map<string, { provider: TileProvider; address: Address }>()
  private readonly failed = new Set<string>()
  private lastWindow = ''
  private movedAt = -Infinity
  private restTimer = 0
  onError: (error: unknown) => void = () => {}

  constructor(context: GlContext) {
    this.context = context
    this.painter = new TilePainter(context)
    this.blitter = new Blitter(context)
    this.textures = new TileTextures(context, this.painter, TEXTURE_BUDGET_BYTES)
  }

  /** Compiles ahead what the first picture needs. */
  prepare(): void {
    this.painter.prepare()
    this.blitter.prepare()
  }

  /** Draws one frame of the window into the rectangle of device pixels (y up) and asks for what is missing. */
  draw(provider: TileProvider, window: Rect, place: Rect): LayerFrame {
    const { grid } = provider
    const [level, yLevel] = chooseLevels(grid, window, place.x1 - place.x0, place.y1 - place.y0)
    const wanted = wantedTiles(grid, window, level, yLevel)
    // The coarsest tile is what every other falls back to: it comes first and stays.
    const root: Address = { level: 0, tile: 0, yLevel: 0, yTile: 0 }
    const rootId = provider.id(root)
    const order = this.textures.picture(rootId) ? [...wanted, root] : [root, ...wanted]
    const ids = order.map((address) => provider.id(address))
    for (const id of ids) this.textures.touch(id)
    this.request(provider, order, wantedTiles(grid, window, level, yLevel, 1))
    const moving = this.isMoving(window)
    const quads = this.context.isSoftware ? QUADS_PER_FRAME[moving ? 'moving' : 'still'] : QUADS_PER_FRAME.card
    const unfinished = this.textures.paint(ids, quads)
    const shown = coverWanted(grid, wanted, (address) => this.textures.picture(provider.id(address)) !== null)
    const blits = shown.flatMap(({ address, region }) => this.blitOf(provider, address, region, window, place))
    this.blitter.draw(blits, moving && this.context.isSoftware)
    this.textures.evict(new Set([...ids, ...shown.map(({ address }) => provider.id(address))]))
    const sharp = shown.filter((part) => part.wanted).length
    if (unfinished) this.context.requestFrame()
    else if (sharp === wanted.length && !moving) this.idle(provider, window, level, yLevel)
    const parts = [...new Set(shown.map(({ address }) => provider.id(address)))]
    const sources = parts.map((id) => this.textures.source(id) as TileSource | null)
    return {
      wantedLevel: level,
      level: shown.reduce((least, part) => Math.min(least, part.address.level), shown.length ? Infinity : level),
      yLevel,
      exact: sharp === wanted.length && sources.every((source) => source?.exact === true),
      tiles: parts.length,
      triangles: sources.reduce((sum, source) => sum + 2 * (source?.quads ?? 0), 0),
      // A picture in the colours of before still counts as missing: a theme is not shown until all of it is.
      pending: wanted.filter((address) => this.isPending(provider.id(address))).length,
      levelAt: (x) => shown.reduce(
        (best, { address, region }) => (x >= region.x0 && x < region.x1 ? Math.max(best, address.level) : best), -1,
      ),
    }
  }

  /** Forgets what does not pass, on the canvas and on its way. */
  retain(passes: (id: string) => boolean): void {
    this.textures.retain(passes)
    for (const [id, { provider, address }] of this.requests) if (!passes(id)) provider.cancel(address)
  }

  /** Whether the window differs from the last frame's or did so a moment ago; then asks for a frame at rest. */
  private isMoving(window: Rect): boolean {
    const key = [window.x0, window.x1, window.y0, window.y1].join()
    const now = performance.now()
    if (key !== this.lastWindow) {
      const first = this.lastWindow === ''
      this.lastWindow = key
      if (first) return false
      this.movedAt = now
    }
    if (now - this.movedAt >= REST_MS) return false
    clearTimeout(this.restTimer)
    this.restTimer = self.setTimeout(() => this.context.requestFrame(), REST_MS - (now - this.movedAt) + 1)
    return true
  }

  private isPending(id: string): boolean {
    return !this.failed.has(id) && (!this.textures.has(id) || this.textures.needsPaint(id))
  }

  private request(provider: TileProvider, order: readonly Address[], near: readonly Address[]): void {
    const useful = new Set([...order, ...near].map((address) => provider.id(address)))
    for (const [id, request] of this.requests) if (!useful.has(id)) request.provider.cancel(request.address)
    for (const address of order) {
      if (this.requests.size >= MAX_REQUESTS) return
      this.load(provider, address)
    }
  }

  /** Once nothing else is to do: shaders for later, and the neighbours left and right. */
  private idle(provider: TileProvider, window: Rect, level: number, yLevel: number): void {
    this.blitter.prepareAll()
    if (this.requests.size > 0) return
    const near = wantedTiles(provider.grid, window, level, yLevel, 1)
    for (const address of near.slice(0, 12)) {
      const id = provider.id(address)
      this.textures.touch(id)
      this.load(provider, address)
    }
    if (this.textures.paint(near.map((address) => provider.id(address)), QUADS_PER_FRAME.moving)) this.context.requestFrame()
  }

  private load(provider: TileProvider, address: Address): void {
    const id = provider.id(address)
    if (this.requests.has(id) || this.textures.has(id) || this.failed.has(id)) return
    this.requests.set(id, { provider, address })
    provider.load(address).then(
      (source) => {
        this.requests.delete(id)
        const rows = provider.grid.rows
        const width = Math.max(1, source.columns)
        this.textures.add(id, source, width, rows, (source.xSpan * width) / provider.grid.columns)
        this.context.requestFrame()
      },
      (error: unknown) => {
        this.requests.delete(id)
        if (!(error instanceof Error && error.name === 'TileCancelled')) {
          this.failed.add(id)
          this.onError(error)
        }
        this.context.requestFrame()
      },
    )
  }

  /** The part of a tile's picture inside region and window; clipped in doubles, since float32 cannot place far corners. */
  private blitOf(provider: TileProvider, address: Address, region: Rect, window: Rect, place: Rect): Blit[] {
    const picture = this.textures.picture(provider.id(address))
    if (!picture) return []
    const tile = regionOf(provider.grid, address)
    const columnWidth = (tile.x1 - tile.x0) / provider.grid.columns
    const rowHeight = (tile.y1 - tile.y0) / provider.grid.rows
    const x0 = Math.max(region.x0, window.x0)
    const x1 = Math.min(region.x1, window.x1, tile.x0 + picture.width * columnWidth)
    const y0 = Math.max(region.y0, window.y0)
    const y1 = Math.min(region.y1, window.y1)
    if (x1 <= x0 || y1 <= y0) return []
    const xScale = (place.x1 - place.x0) / (window.x1 - window.x0)
    const yScale = (place.y1 - place.y0) / (window.y1 - window.y0)
    return [{
      picture,
      u0: (x0 - tile.x0) / columnWidth,
      u1: (x1 - tile.x0) / columnWidth,
      v0: (y0 - tile.y0) / rowHeight,
      v1: (y1 - tile.y0) / rowHeight,
      x0: place.x0 + (x0 - window.x0) * xScale,
      x1: place.x0 + (x1 - window.x0) * xScale,
      y0: place.y0 + (y0 - window.y0) * yScale,
      y1: place.y0 + (y1 - window.y0) * yScale,
    }]
  }
}
