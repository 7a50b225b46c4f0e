// The timeline: every allocation stacked over events or time. Draws what the state says and turns input into new states.

import type { DataClient, DeviceData, Stacks, ViewWindow } from '../../data/model'
import type { Drawn } from '../../controller'
import { GlContext } from '../../gl/context'
import { type LayerFrame, TileLayer, type TileProvider } from '../../gl/tile-layer'
import { pick } from '../../layout/pick'
import { h } from '../../ui/dom'
import type { State, Store } from '../../ui/state'
import { isDark } from '../../ui/theme'
import { stackColour, stackColours } from './colours'
import { columnAt } from './column'
import { describeHit, type Hit } from './describe'
import { type Frame, type Inks, layOut, pixelToX, pixelToY, type Plot, readInks } from './frame'
import { describeMark, markAt } from './marks'
import { Minimap } from './minimap'
import { Navigator } from './navigator'
import { Overlay } from './overlay'
import { type Box, PointerInput } from './pointer'
import { Scene } from './scene'
import { tileProvider } from './tiles'
import { Tooltip } from './tooltip'
import { type Limits, limitsOf, resolveWindow } from './window'

const NOTHING_DRAWN: Drawn = { level: 0, triangles: 0, exact: true, tiles: 0, pending: 0 }

export class TimelineView {
  readonly element: HTMLElement
  /** Null where the browser has no WebGL2; everything but the picture still works. */
  readonly gl: GlContext | null
  drawn: Drawn = NOTHING_DRAWN
  boxMode = false
  onDrawn: () => void = () => {}
  onError: (error: unknown) => void = () => {}

  readonly navigator: Navigator
  private readonly client: DataClient
  private readonly store: Store
  private readonly plotElement: HTMLElement
  private readonly overlay: Overlay
  private readonly tooltip = new Tooltip()
  private readonly minimap: Minimap
  private readonly pointer: PointerInput
  private readonly layer: TileLayer | null
  private scene: Scene | null = null
  private provider: TileProvider | null = null
  private layerFrame: LayerFrame | null = null
  private inks: Inks | null = null
  private panelColour: [number, number, number] = [1, 1, 1]
  private themeKey = ''
  private coloursFor = ''
  private at: { x: number; y: number } | null = null
  private box: Box | null = null
  private frameRequest = 0

  constructor(client: DataClient, store: Store) {
    this.client = client
    this.store = store
    this.navigator = new Navigator(store, () => this.limits(), () => this.overlay.frame?.plot ?? null)
    const canvas = h('canvas', { class: 'picture', 'aria-hidden': 'true' })
    this.gl = GlContext.create(canvas)
    this.layer = this.gl ? new TileLayer(this.gl) : null
    this.overlay = new Overlay(this.gl?.isSoftware ?? true)
    this.gl?.onFrame(() => this.draw())
    if (this.layer) this.layer.onError = (error) => this.onError(error)
    this.plotElement = h(
      'div',
      {
        class: 'plot', tabindex: 0, role: 'application', 'aria-roledescription': 'timeline',
        'aria-label': 'Timeline of allocations. Drag or arrow keys move, wheel or W and S zoom, question mark lists all keys.',
      },
      canvas, this.overlay.element, this.tooltip.element,
    )
    this.minimap = new Minimap(this.gl?.isSoftware ?? true, (x0, x1) => this.navigator.showX(x0, x1), () => this.navigator.fit())
    this.element = h('div', { class: 'timeline' }, this.minimap.element, this.plotElement)
    this.pointer = new PointerInput(this.plotElement, {
      pan: (dx, dy) => this.navigator.panPixels(dx, dy),
      zoom: (x, y, factorX, factorY) => this.navigator.zoomAt(x, y, factorX, factorY),
      box: (box) => this.setBox(box),
      zoomToBox: (box) => this.navigator.zoomToBox(box),
      hover: (x, y) => this.setHover({ x, y }),
      leave: () => this.setHover(null),
      click: (x, y) => this.click(x, y),
      fit: () => this.navigator.fit(),
      boxMode: () => this.boxMode,
    })
    new ResizeObserver(() => this.drawNow()).observe(this.plotElement)
    store.subscribe(() => this.requestFrame())
  }

  /** Shows a device; without data it works from the manifest and the stored tiles. */
  setDevice(index: number, data: DeviceData | null, stacks: Stacks | null): void {
    if (this.scene?.info.index !== index) {
      this.scene = new Scene(this.client.devices[index])
      this.provider = null
      this.layerFrame = null
      this.layer?.retain((id) => id.startsWith(`${index}/`))
    }
    if (data && stacks && !this.scene.data) this.scene.setData(data, stacks)
    this.requestFrame()
  }

  /** Call when the theme has changed. */
  themeChanged(): void {
    this.inks = null
    this.themeKey = ''
    this.requestFrame()
  }

  get currentScene(): Scene | null {
    return this.scene
  }

  /** The last frame showed the whole window, from the columns, with every tile sharp. */
  get isComplete(): boolean {
    return this.scene?.data != null && this.scene.info.index === this.store.state.device
      && this.drawn.pending === 0 && !this.gl?.isLost
  }

  requestFrame(): void {
    if (this.gl) this.gl.requestFrame()
    else this.frameRequest ||= requestAnimationFrame(() => this.draw())
  }

  drawNow(): void {
    if (this.gl) this.gl.drawNow()
    else this.draw()
  }

  /** Gives up a drag; true when there was one. */
  cancelDrag(): boolean {
    return this.pointer.cancelDrag()
  }

  /** Zooms about the pointer if it is on the plot, else about the middle. */
  zoomBy(factorX: number, factorY: number): void {
    const plot = this.overlay.frame?.plot
    if (!plot) return
    const { x, y } = this.at ?? { x: plot.left + plot.width / 2, y: plot.top + plot.height / 2 }
    this.navigator.zoomAt(x, y, factorX, factorY)
  }

  private limits(): Limits | null {
    const scale = this.scene?.scale(this.store.state.axis)
    return scale ? limitsOf(scale, this.scene!.yTop) : null
  }

  private setBox(box: Box | null): void {
    this.box = box
    this.requestFrame()
  }

  private setHover(at: { x: number; y: number } | null): void {
    this.at = at
    this.requestFrame()
  }

  private click(x: number, y: number): void {
    this.plotElement.focus({ preventScroll: true })
    const frame = this.overlay.frame
    if (!frame) return
    const mark = markAt(frame, x, y)
    if (mark) {
      this.navigator.centreOn(mark.event)
      return
    }
    const hit = this.hitAt(frame, x, y)
    if (hit) this.store.set({ select: hit.id >= 0 ? hit.id : null })
  }

  /** What lies under a place, from the exact columns; null outside the plot and before they have arrived. */
  private hitAt(frame: Frame, x: number, y: number): Hit | null {
    const { plot, scene } = frame
    if (!scene.data || x < plot.left || x > plot.left + plot.width || y < plot.top || y > plot.top + plot.height) return null
    const axisX = pixelToX(frame, x)
    const level = this.layerFrame?.levelAt(axisX) ?? -1
    const column = columnAt(scene, frame.axis, level < 0 ? frame.scale.grid.depth : level, axisX)
    return column && { column, id: pick(scene.data, column.s, pixelToY(frame, y)) }
  }

  // Drawing

  private draw(): void {
    this.frameRequest = 0
    const width = this.plotElement.clientWidth
    const height = this.plotElement.clientHeight
    const limits = this.limits()
    if (width === 0 || height === 0 || !limits || !this.scene) return
    const { state } = this.store
    const inks = this.prepareTheme(state)
    const plot = layOut(width, height)
    const window = resolveWindow(state, limits)
    const axis = limits.scale.axis
    this.drawPicture(axis, window, plot, limits)
    const frame: Frame = { ctx: this.overlay.begin(width, height), scene: this.scene, axis, scale: limits.scale, window, plot, inks, font: this.overlay.font }
    const hit = this.at && !this.box ? this.hitAt(frame, this.at.x, this.at.y) : null
    const level = Math.max(0, this.layerFrame?.level ?? 0)
    this.overlay.draw(frame, { level, hover: hit, select: state.select, box: this.box })
    this.showTooltip(frame, hit)
    this.minimap.draw(this.scene, limits.scale, window, inks, { left: plot.left, right: width - plot.left - plot.width }, this.themeKey)
    this.onDrawn()
  }

  private drawPicture(axis: 'event' | 'time', window: ViewWindow, plot: Plot, limits: Limits): void {
    const { gl, layer, scene } = this
    if (!gl || !layer || !scene || gl.isLost) return
    const ratio = devicePixelRatio || 1
    gl.resize(Math.max(1, Math.round(this.plotElement.clientWidth * ratio)), Math.max(1, Math.round(this.plotElement.clientHeight * ratio)))
    gl.clear(this.panelColour)
    if (scene.info.allocations === 0) {
      this.drawn = NOTHING_DRAWN
      return
    }
    if (!this.provider || this.provider.id({ level: 0, tile: 0, yLevel: 0, yTile: 0 }).split('/')[1] !== axis) {
      this.provider = tileProvider(this.client, scene.info.index, axis, limits.scale.grid, scene.info.peakBytes)
    }
    const left = Math.round(plot.left * ratio)
    const bottom = gl.canvas.height - Math.round((plot.top + plot.height) * ratio)
    this.layerFrame = layer.draw(this.provider, window, {
      x0: left,
      x1: left + Math.round(plot.width * ratio),
      y0: bottom,
      y1: bottom + Math.round(plot.height * ratio),
    })
    const { level, triangles, exact, tiles, pending } = this.layerFrame
    this.drawn = { level, triangles, exact, tiles, pending }
  }

  private prepareTheme(state: State): Inks {
    const dark = isDark(state.theme)
    this.inks ??= readInks(this.element)
    // Stored tiles are painted before the stack table arrives. Most tables are shorter than this; then nothing is painted twice.
    const count = Math.max(1 << 14, this.scene!.stacks?.count ?? 0)
    const colours = `${dark}/${count}`
    if (this.layer && this.coloursFor !== colours) {
      this.layer.painter.palette.set(stackColours(count, dark))
      this.coloursFor = colours
    }
    if (this.themeKey === '') {
      this.themeKey = dark ? 'dark' : 'light'
      this.panelColour = parseColour(this.inks.panel)
    }
    return this.inks
  }

  private showTooltip(frame: Frame, hit: Hit | null): void {
    const { at } = this
    const mark = at && markAt(frame, at.x, at.y)
    this.plotElement.classList.toggle('over-mark', Boolean(mark))
    if (at && mark) this.tooltip.show([{ kind: 'plain', text: describeMark(mark) }], at.x, at.y, null)
    else if (at && hit) this.tooltip.show(describeHit(frame.scene, hit), at.x, at.y, this.colourOf(hit.id))
    else this.tooltip.hide()
  }

  /** CSS colour of an allocation's stack; null for none. */
  colourOf(id: number): string | null {
    const data = this.scene?.data
    if (!data || id < 0 || id >= data.N) return null
    return `rgb(${stackColour(data.stack[id], isDark(this.store.state.theme)).join(' ')})`
  }
}

/** "#rrggbb" as three numbers 0…1. */
function parseColour(text: string): [number, number, number] {
  const value = /^#([0-9a-f]{6})$/i.exec(text)
  const bits = value ? parseInt(value[1], 16) : 0xffffff
  return [(bits >> 16) / 255, ((bits >> 8) & 255) / 255, (bits & 255) / 255]
}
