// The canvas of the timeline. It begins as plain pixels, which are drawn at once; WebGL is set up after the first
// picture is on the screen, and takes over invisibly when it shows the same. Without WebGL2 the plain pixels stay.
//
// Where graphics are emulated, getting a WebGL context keeps the page busy for about half a second (Chromium 156 on two
// cores, cold: 400 to 570 ms), all of which the reader would wait for a picture.

import type { Box } from '../shared/plot-frame'
import type { Rect } from '../../layout/viewport'
import type { Drawn } from '../../controller'
import type { Axis, TileKey } from '../../data/model'
import { Backdrop } from '../../gl/backdrop'
import { GlContext } from '../../gl/context'
import type { Address, Grid as CoverGrid } from '../../gl/cover'
import { flatContext, FlatStage } from '../../gl/flat-stage'
import { GlStage } from '../../gl/gl-stage'
import { drawRectsFlat, type RectList, RectPainter } from '../../gl/rects'
import { type LayerFrame, TileLayer, type TileProvider, type TileSource } from '../../gl/tile-layer'
import { COLUMNS, columnWidth, type Grid, maxYLevel, rowHeight, ROWS, tileName } from '../../layout/grid'
import { h } from '../../ui/dom'
import { FrameRequest } from '../../ui/frame-request'
import type { DataClient } from '../../worker/data-client'
import { shadeOf, stackColours, STACKS_AT_LEAST } from '../shared/colours'
import type { BandPalette } from './band-colours'

const NOTHING_DRAWN: Drawn = { level: 0, triangles: 0, exact: true, tiles: 0, pending: 0 }

/** From so many pixels on, half the resolution is drawn while the view moves, where the processor computes every pixel. */
const LARGE_PIXELS = 3_000_000

/** Prepares what the first picture needs anyway: a first 2D context and the colours take 20 ms each. */
export function warmPicture(dark: boolean): void {
  stackColours(STACKS_AT_LEAST, dark)
  flatContext(document.createElement('canvas'))
}

export class Picture {
  drawn: Drawn = NOTHING_DRAWN
  /** Both are at the same place; one of them is visible. */
  readonly canvases: readonly HTMLCanvasElement[]
  /** The state of WebGL: not requested yet, being set up, in use, or not available. */
  state: 'flat' | 'rising' | 'gl' | 'none' = 'flat'
  /** Called when the state has changed. */
  onState: () => void = () => {}
  private readonly flatCanvas = h('canvas.picture', { 'aria-hidden': 'true' })
  private readonly glCanvas = h('canvas.picture.waiting', { 'aria-hidden': 'true' })
  private readonly flat: CanvasRenderingContext2D
  private readonly layer: TileLayer
  private gl: GlContext | null = null
  private rectPainter: RectPainter | null = null
  private backdrop: Backdrop | null = null
  private layerFrame: LayerFrame | null = null
  private background: [number, number, number] = [1, 1, 1]
  private palette: BandPalette | null = null
  private sharpness = 1
  private readonly frame: FrameRequest

  /** onFrame draws; onError is called for tiles that cannot be made. */
  constructor(onFrame: () => void, onError: (error: unknown) => void) {
    this.frame = new FrameRequest(onFrame)
    this.canvases = [this.flatCanvas, this.glCanvas]
    this.flat = flatContext(this.flatCanvas)!
    this.layer = new TileLayer(new FlatStage(this.flat), (first) => (first ? this.drawNow() : this.requestFrame()))
    this.layer.onError = onError
    this.layer.onPromoted = () => this.showGl()
  }

  /** Requests a frame; any number of requests draw one. */
  requestFrame(): void {
    this.frame.request()
  }

  get isFramePending(): boolean {
    return this.frame.isPending
  }

  /** Draws at once, so that a resize never shows an empty canvas. */
  drawNow(): void {
    this.frame.now()
  }

  /** Whether the context is lost and not yet restored. */
  get isLost(): boolean {
    return this.state === 'gl' && this.gl!.isLost
  }

  testContextLoss(): void {
    this.gl?.testContextLoss()
  }

  /** The canvas is the plot: its corners are the corners of the window. Call before drawing. */
  place(plot: Box, window: Rect): void {
    let ratio = devicePixelRatio || 1
    const isLarge = plot.width * plot.height * ratio * ratio > LARGE_PIXELS
    this.sharpness = isLarge && this.gl?.isSoftware && this.state === 'gl' && this.layer.moves(window) ? 2 : 1
    ratio /= this.sharpness
    const width = Math.max(1, Math.round(plot.width * ratio))
    const height = Math.max(1, Math.round(plot.height * ratio))
    for (const canvas of this.canvases) {
      if (canvas === (this.state === 'gl' ? this.flatCanvas : this.gl ? null : this.glCanvas)) continue
      canvas.style.transform = `translate(${plot.left}px, ${plot.top}px)`
      canvas.style.width = `${plot.width}px`
      canvas.style.height = `${plot.height}px`
      if (canvas.width === width && canvas.height === height) continue
      canvas.width = width
      canvas.height = height
    }
  }

  /** Colours on a background (0…255 each). Nothing happens when they are the same as before. */
  colour(palette: BandPalette, background: readonly number[]): void {
    const [r, g, b] = this.background
    const [red, green, blue] = background.map((part) => part / 255)
    const isSame = palette.version === this.palette?.version && palette.rgba === this.palette.rgba
    if (isSame && r === red && g === green && b === blue) return
    this.background = [red, green, blue]
    this.palette = palette
    this.layer.setColours(palette.rgba, this.background, palette.version)
  }

  /** Draws the window's tiles over the background; no provider: the background alone. */
  drawTiles(provider: TileProvider | null, window: Rect): void {
    if (this.isLost) return
    const { width, height } = this.state === 'gl' ? this.glCanvas : this.flatCanvas
    if (provider)
      this.layerFrame = this.layer.draw(provider, window, { x0: 0, x1: width, y0: 0, y1: height }, this.sharpness)
    else {
      this.layer.clear()
      this.layerFrame = null
    }
    this.drawn = NOTHING_DRAWN
    if (this.layerFrame) {
      const { level, triangles, exact, tiles, pending } = this.layerFrame
      this.drawn = { level, triangles, exact, tiles, pending }
    }
    if (this.state === 'flat' && (this.drawn.tiles > 0 || this.drawn.pending === 0)) this.raise()
  }

  drawRects(rects: RectList, { width, height }: Box): void {
    if (this.state !== 'gl')
      drawRectsFlat(this.flat, rects, this.flatCanvas.width / width, this.flatCanvas.height / height)
    else if (!this.gl!.isLost) this.backdrop!.draw(rects, width, height)
  }

  /** Level of what is shown at a place of the x axis; -1 where nothing is. */
  levelAt(x: number): number {
    return this.layerFrame?.levelAt(x) ?? -1
  }

  /** Drops the tiles of other devices. */
  keepOnly(device: number): void {
    this.layerFrame = null
    this.layer.retain((id) => id.startsWith(`${device}/`))
  }

  /** Sets WebGL up once what was just drawn is on the screen. */
  private raise(): void {
    this.setState('rising')
    whenPresented(() => {
      performance.mark('snapreport:on-screen') // 'first-picture' is when it was drawn
      this.makeGl()
    })
  }

  private makeGl(): void {
    const gl = GlContext.create(this.glCanvas)
    if (!gl) {
      this.setState('none')
      this.requestFrame()
      return
    }
    this.gl = gl
    gl.onRestored = () => this.requestFrame()
    const stage = new GlStage(gl)
    stage.prepare()
    this.rectPainter = new RectPainter(gl)
    this.rectPainter.prepare()
    this.backdrop = new Backdrop(gl, stage, this.rectPainter)
    if (this.palette) stage.setColours(this.palette.rgba, this.background)
    this.layer.promote(stage)
    this.rise()
  }

  /** A little per frame, and the plain pixels are not drawn again for it. */
  private readonly rise = (): void => {
    if (this.state !== 'rising') return
    if (this.layer.rise() && this.rectPainter!.isReady()) this.requestFrame()
    requestAnimationFrame(this.rise)
  }

  private showGl(): void {
    this.glCanvas.classList.remove('waiting')
    this.setState('gl')
    // The plain one stays below it until WebGL's first frame is on the screen.
    requestAnimationFrame(() =>
      requestAnimationFrame(() => {
        this.flatCanvas.classList.add('waiting')
        this.flatCanvas.width = this.flatCanvas.height = 1
      }),
    )
  }

  private setState(state: Picture['state']): void {
    this.state = state
    this.onState()
  }
}

/** Where a browser does not report its first paint, in ms. */
const PATIENCE_MS = 1000

/**
 * Calls back once a frame drawn before this call is on the screen: a frame later, and not before the page's first paint.
 * A browser that has just started accepts frames 100 to 300 ms before it can show any.
 */
function whenPresented(then: () => void): void {
  const deadline = performance.now() + PATIENCE_MS
  const look = (now: number): void => {
    // Polled rather than observed: the observer is called up to 300 ms late while a browser starts.
    if (now > deadline || performance.getEntriesByType('paint').length > 0)
      setTimeout(then) // not within this frame
    else requestAnimationFrame(look)
  }
  requestAnimationFrame(() => requestAnimationFrame(look))
}

/** Tiles of one device on one axis. `peakBytes`: the greatest height of the stack. */
export function tileProvider(
  client: DataClient,
  device: number,
  axis: Axis,
  grid: Grid,
  peakBytes: number,
): TileProvider {
  const keyOf = (address: Address, version?: number): TileKey => ({ device, axis, ...address, version })
  return {
    grid: coverGrid(grid, peakBytes),
    id: (address) => tileName(keyOf(address)),
    cancel: (address, version) => client.cancel(keyOf(address, version)),
    async load(address, version): Promise<TileSource> {
      const mesh = await client.tile(keyOf(address, version))
      const { rep, stack } = mesh
      const width = columnWidth(grid, address.level)
      const columns = Math.ceil((grid.extent - address.tile * COLUMNS * width) / width)
      return {
        quads: mesh.quads,
        rects: mesh.rects,
        xSpan: mesh.xSpan,
        ySpan: mesh.ySpan,
        version: mesh.version,
        columns: Math.min(COLUMNS, Math.max(1, columns)),
        exact: mesh.exact,
        keyOf: (quad) => ((stack[quad] << 8) | shadeOf(rep[quad])) >>> 0,
      }
    },
  }
}

function coverGrid(grid: Grid, peakBytes: number): CoverGrid {
  return {
    x0: grid.origin,
    y0: 0,
    width: COLUMNS * columnWidth(grid, 0),
    height: ROWS * rowHeight(grid, 0),
    xEnd: grid.origin + grid.extent,
    yEnd: Math.max(1, peakBytes),
    maxLevel: grid.depth,
    maxYLevel: maxYLevel(grid),
    columns: COLUMNS,
    rows: ROWS,
  }
}
