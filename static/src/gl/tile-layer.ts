// A pyramid of tiles on the canvas: requests the tiles that the window needs, has them painted a little per frame,
// and shows the best finished ones meanwhile.

import type { Rect } from '../layout/viewport'
import { type Address, chooseLevels, coverWindow, type Grid, regionOf, neededTiles } from './cover'
import type { Part, QuadSource, TileStage } from './tile-stage'

/** A tile as its provider delivers it. */
export interface TileSource extends QuadSource {
  /** Columns that hold data; the rest of the tile is empty. */
  columns: number
  exact: boolean
}

/** Where tiles come from. Ids name the pyramid too, so that several may share the textures. */
export interface TileProvider {
  grid: Grid
  id(address: Address): string
  /** version: of the keys that it is for. Rejects when cancelled. */
  load(address: Address, version: number): Promise<TileSource>
  cancel(address: Address, version: number): void
}

export interface LayerFrame {
  /** The coarsest on the canvas. */
  level: number
  exact: boolean
  tiles: number
  triangles: number
  /** Needed tiles that are not on the canvas yet. */
  pending: number
  /** Coarsest shown level at a place, to describe what is drawn there; -1 where nothing is. */
  levelAt(x: number): number
}

interface TileRequest {
  provider: TileProvider
  address: Address
  version: number
}

/** So long after the last move, in ms, the picture is drawn at full quality again. */
const REST_MS = 120
const MAX_REQUESTS = 6

function cancel({ provider, address, version }: TileRequest): void {
  provider.cancel(address, version)
}

export class TileLayer {
  /** Another stage is complete and has taken over. */
  onPromoted: () => void = () => {}
  onError: (error: unknown) => void = () => {}
  private readonly requests = new Map<string, TileRequest>()
  private readonly failed = new Set<string>()
  private next: TileStage | null = null
  /** Tiles of the last frame, most needed first. */
  private ids: readonly string[] = []
  private showsAny = false
  private lastWindow = ''
  private movedAt = -Infinity
  private restTimer = 0

  constructor(
    private stage: TileStage,
    /** Requests a frame; `first`: it will show the first picture. */
    private readonly requestFrame: (first?: boolean) => void,
  ) {}

  /** Paints what is shown on another stage too, and switches to it once it shows as much as this one. */
  promote(stage: TileStage): void {
    stage.adopt(this.stage)
    this.next = stage
  }

  /** Paints a little on the next stage alone. True once it can take over, which it does in the next drawn frame. */
  rise(): boolean {
    const { next, ids } = this
    if (!next?.isReady()) return false
    next.paint(ids, next.quadsPerFrame.still)
    return this.isComplete(next, ids)
  }

  /**
   * Colours for the current stage and the next. version: of the keys that they are for. Tiles of other keys are requested
   * again; until they arrive the old pictures stay.
   */
  setColours(rgba: Uint8Array, background: readonly [number, number, number], version: number): void {
    const isOther = version !== this.stage.keysVersion
    for (const stage of this.stages) {
      stage.setColours(rgba, background)
      stage.keysVersion = version
    }
    if (!isOther) return
    for (const request of this.requests.values()) cancel(request)
    this.requests.clear()
    this.failed.clear()
  }

  /**
   * Draws one frame of the window into the rectangle of canvas pixels (y up) and requests what is missing. sharpness: so
   * many device pixels are one of the canvas; the needed tiles do not depend on it.
   */
  draw(provider: TileProvider, window: Rect, place: Rect, sharpness = 1): LayerFrame {
    const { grid } = provider
    const [level, yLevel] = chooseLevels(
      grid,
      window,
      (place.x1 - place.x0) * sharpness,
      (place.y1 - place.y0) * sharpness,
    )
    const needed = neededTiles(grid, window, level, yLevel)
    // The coarsest tile is what every other falls back to: it comes first and stays.
    const root: Address = { level: 0, tile: 0, yLevel: 0, yTile: 0 }
    const rootId = provider.id(root)
    const order = this.stage.picture(rootId) ? [...needed, root] : [root, ...needed]
    const ids = order.map((address) => provider.id(address))
    for (const stage of this.stages) for (const id of ids) stage.touch(id)
    // Where the coarsest has a picture, even an old one, it may wait until the needed ones are there.
    const canWait =
      this.stage.picture(rootId) !== null && needed.some((address) => !this.stage.has(provider.id(address)))
    this.request(provider, canWait ? needed : order, [root, ...neededTiles(grid, window, level, yLevel, 1)])
    const moving = this.moves(window)
    this.ids = ids
    if (this.next && this.isComplete(this.next, ids)) this.takeOver(this.next)
    const unfinished = this.showsAny ? this.paint(ids, moving) : this.paintFirst(ids)
    const shown = coverWindow(grid, needed, (address) => this.stage.picture(provider.id(address)) !== null)
    this.showsAny = shown.length > 0
    const parts = shown.flatMap(({ address, region }) => this.partOf(provider, address, region, window, place))
    this.stage.draw(parts, moving && this.stage.isSoftware)
    this.stage.evict(new Set([...ids, ...shown.map(({ address }) => provider.id(address))]))
    const sharp = shown.filter((part) => part.isNeeded).length
    if (unfinished) this.requestFrame()
    else if (sharp === needed.length && !moving) this.idle(provider, window, level, yLevel)
    const tiles = [...new Set(shown.map(({ address }) => provider.id(address)))]
    const sources = tiles.map((id) => this.stage.source(id) as TileSource | null)
    return {
      level: shown.reduce((least, part) => Math.min(least, part.address.level), shown.length ? Infinity : level),
      exact: sharp === needed.length && sources.every((source) => source?.exact === true),
      tiles: tiles.length,
      triangles: sources.reduce((sum, source) => sum + 2 * (source?.quads ?? 0), 0),
      // A picture in the colours of before still counts as missing: a theme is not shown until all of it is.
      pending: needed.filter((address) => this.isPending(provider.id(address))).length,
      levelAt: (x) =>
        shown.reduce(
          (best, { address, region }) => (x >= region.x0 && x < region.x1 ? Math.max(best, address.level) : best),
          -1,
        ),
    }
  }

  /** A frame without tiles. */
  clear(): void {
    if (this.next) this.takeOver(this.next)
    this.stage.draw([], false)
  }

  /** Drops the tiles that do not pass, painted or pending. */
  retain(passes: (id: string) => boolean): void {
    for (const stage of this.stages) stage.retain(passes)
    for (const [id, request] of this.requests) if (!passes(id)) cancel(request)
  }

  private paint(ids: readonly string[], moving: boolean): boolean {
    return this.stage.paint(ids, this.stage.quadsPerFrame[moving ? 'moving' : 'still'])
  }

  /** The first picture is not split over frames: a browser that has just started is slow to begin the next frame. */
  private paintFirst(ids: readonly string[]): boolean {
    const first = ids.find((id) => this.stage.has(id))
    if (first !== undefined) this.stage.paint([first], Infinity)
    return ids.some((id) => this.stage.needsPaint(id))
  }

  private get stages(): readonly TileStage[] {
    return this.next ? [this.stage, this.next] : [this.stage]
  }

  /** Nothing needs a stand-in, so that a change of stages is invisible. */
  private isComplete(stage: TileStage, ids: readonly string[]): boolean {
    return (
      stage.isReady() &&
      ids.every((id) => this.failed.has(id) || (stage.has(id) && stage.picture(id) !== null && !stage.needsPaint(id)))
    )
  }

  private takeOver(next: TileStage): void {
    this.stage.retain(() => false)
    this.stage = next
    this.next = null
    this.onPromoted()
  }

  /** Whether the window differs from the last frame's or did so a moment ago; then asks for a frame at rest. */
  moves(window: Rect): boolean {
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
    this.restTimer = self.setTimeout(() => this.requestFrame(), REST_MS - (now - this.movedAt) + 1)
    return true
  }

  private isPending(id: string): boolean {
    return !this.failed.has(id) && (!this.stage.has(id) || this.stage.needsPaint(id))
  }

  private request(provider: TileProvider, order: readonly Address[], near: readonly Address[]): void {
    const useful = new Set([...order, ...near].map((address) => provider.id(address)))
    for (const [id, request] of this.requests) if (!useful.has(id)) cancel(request)
    for (const address of order) {
      if (this.requests.size >= MAX_REQUESTS) return
      this.load(provider, address)
    }
  }

  /** Once there is nothing else to do: shaders for later, and the neighbours left and right. */
  private idle(provider: TileProvider, window: Rect, level: number, yLevel: number): void {
    this.stage.prepareAll()
    if (this.requests.size > 0) return
    const near = neededTiles(provider.grid, window, level, yLevel, 1)
    for (const address of near.slice(0, 12)) {
      const id = provider.id(address)
      for (const stage of this.stages) stage.touch(id)
      this.load(provider, address)
    }
    if (
      this.stage.paint(
        near.map((address) => provider.id(address)),
        this.stage.quadsPerFrame.moving,
      )
    )
      this.requestFrame()
  }

  private load(provider: TileProvider, address: Address): void {
    const id = provider.id(address)
    if (this.requests.has(id) || this.stage.has(id) || this.failed.has(id)) return
    const request = { provider, address, version: this.stage.keysVersion }
    this.requests.set(id, request)
    provider.load(address, request.version).then(
      (source) => {
        if (this.requests.get(id) !== request) return // for older keys
        this.requests.delete(id)
        if (source.version !== this.stage.keysVersion) return this.requestFrame() // requests it again
        const rows = provider.grid.rows
        const width = Math.max(1, source.columns)
        for (const stage of this.stages)
          stage.add(id, source, width, rows, (source.xSpan * width) / provider.grid.columns)
        this.requestFrame(!this.showsAny)
      },
      (error: unknown) => {
        if (this.requests.get(id) !== request) return
        this.requests.delete(id)
        if (!(error instanceof Error && error.name === 'TileCancelled')) {
          this.failed.add(id)
          this.onError(error)
        }
        this.requestFrame()
      },
    )
  }

  /** The part of a tile's picture inside region and window; clipped in doubles, since float32 cannot place far corners. */
  private partOf(provider: TileProvider, address: Address, region: Rect, window: Rect, place: Rect): Part[] {
    const id = provider.id(address)
    const picture = this.stage.picture(id)
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
    return [
      {
        id,
        u0: (x0 - tile.x0) / columnWidth,
        u1: (x1 - tile.x0) / columnWidth,
        v0: (y0 - tile.y0) / rowHeight,
        v1: (y1 - tile.y0) / rowHeight,
        x0: place.x0 + (x0 - window.x0) * xScale,
        x1: place.x0 + (x1 - window.x0) * xScale,
        y0: place.y0 + (y0 - window.y0) * yScale,
        y1: place.y0 + (y1 - window.y0) * yScale,
      },
    ]
  }
}
