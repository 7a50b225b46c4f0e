// The timeline: every allocation stacked over events or time. Draws what the state says and turns input into new states.

import type { Rect } from '../../layout/viewport'
import type { DataClient } from '../../worker/data-client'
import type { DeviceData, Stacks } from '../../data/model'
import type { Drawn } from '../../controller'
import type { TileProvider } from '../../gl/tile-layer'
import { h } from '../../ui/dom'
import { RangeMax } from '../shared/scene'
import { Ruler } from './ruler'
import { CLOSED, RANGE, type State, type Store } from '../../ui/state'
import { isDark } from '../../ui/theme'
import type { Matches } from '../../search/matches'
import type { Colouring } from '../colouring'
import { Memo } from '../memo'
import { BandColours } from './band-colours'
import { type Inks, readInks } from '../shared/inks'
import { type Frame, layOut, pixelToX } from './frame'
import { Clicks, Hits } from './hits'
import { Hover } from './hover'
import { Minimap } from './minimap'
import { type Limits, limitsOf, Navigator, resolveWindow } from './navigator'
import { Overlay } from './overlay'
import { Picture, tileProvider } from './picture'
import { PointerInput } from '../shared/pointer'
import { allocationItems, openMenu } from '../shared/context-menu'
import { rangeOf, readEventRange, writeEventRange } from '../shared/range-sums'
import { Scene } from '../shared/scene'
import { Tracks } from './tracks'

/** Option of the state: whether what never changes is folded away. */
const FOLD = 'timeline.fold'

export class TimelineView {
  readonly element: HTMLElement
  boxMode = false
  onDrawn: () => void = () => {}
  /** Called when another column is under the pointer, and nothing else was drawn. */
  onHover: () => void = () => {}
  onError: (error: unknown) => void = () => {}
  /** Whether reserved memory of a device is what the report is about. */
  keepsReserved: (device: number) => boolean = () => false
  /** Called once it is known whether there is WebGL. */
  onPictureState: () => void = () => {}

  readonly navigator: Navigator
  readonly ruler: Ruler
  readonly tracks: Tracks
  /** The timeline of the other pane: both plots are equally high, so that a byte is. */
  peer: TimelineView | null = null
  private readonly plotElement: HTMLElement
  private readonly overlay = new Overlay()
  private readonly picture = new Picture(
    () => this.draw(),
    (error) => this.onError(error),
  )
  private readonly hits = new Hits(this.picture, this.overlay)
  private readonly clicks: Clicks
  private readonly hover: Hover
  private readonly bands: BandColours
  private readonly minimap: Minimap
  private readonly pointer: PointerInput
  private scene: Scene | null = null
  private readonly providers = new Memo<TileProvider>()
  private inks: Inks | null = null
  private box: Rect | null = null
  private minTop = 0

  constructor(
    private readonly client: DataClient,
    private readonly store: Store,
  ) {
    this.bands = new BandColours(client)
    this.navigator = new Navigator(
      store,
      () => this.limits(),
      () => this.overlay.frame?.plot ?? null,
    )
    this.overlay.labels.onFold = (isFolded) => {
      store.setOption(FOLD, isFolded ? 'yes' : 'no')
      store.set({ y: null })
    }
    this.clicks = new Clicks(store, this.navigator, this.hits)
    this.ruler = new Ruler(store)
    this.tracks = new Tracks(client, store, this.navigator, () => this.requestFrame())
    this.picture.onState = () => this.onPictureState()
    this.hover = new Hover({
      store,
      hits: this.hits,
      frame: () => (this.picture.isFramePending ? null : this.overlay.frame),
      level: () => this.drawn.level,
      colourOf: (id) => this.colourOf(id),
      overMark: (isOver) => this.plotElement.classList.toggle('over-mark', isOver),
      changed: () => this.onHover(),
    })
    this.plotElement = h(
      'div.plot.surface.fill',
      {
        tabindex: 0,
        role: 'application',
        'aria-roledescription': 'timeline',
        'aria-label':
          'Timeline of allocations. Drag or arrow keys move, wheel or W and S zoom, question mark lists all keys.',
      },
      ...this.picture.canvases,
      ...this.hover.layer.elements,
      ...this.overlay.elements,
      this.ruler.element,
      this.hover.tooltip.element,
    )
    this.minimap = new Minimap(
      (x0, x1) => this.navigator.showX(x0, x1),
      () => this.navigator.fit(),
    )
    this.element = h(
      'div.timeline.column.fill',
      this.minimap.element,
      this.tracks.element,
      this.plotElement,
      this.tracks.tooltip.element,
    )
    this.pointer = new PointerInput(this.plotElement, {
      pan: (dx, dy) => this.navigator.panPixels(dx, dy),
      zoom: (x, y, factorX, factorY) => this.navigator.zoomAt(x, y, factorX, factorY),
      box: (box) => this.setBox(box),
      zoomToBox: (box) => this.boxDone(box),
      selectRange: (box) => this.selectRange(box.x0, box.x1),
      hover: (x, y) => this.hover.set({ x, y }),
      leave: () => this.hover.set(null),
      click: (x, y, shift) => this.click(x, y, shift),
      fit: () => this.navigator.fit(),
      origin: () => this.overlay.frame?.plot ?? { left: 0, top: 0 },
      boxMode: () => this.boxMode || this.ruler.isOn,
    })
    this.plotElement.addEventListener('contextmenu', (event) => this.openMenu(event))
    new ResizeObserver(() => this.drawNow()).observe(this.plotElement)
    store.subscribe(() => this.requestFrame())
  }

  /** Shows a device; without data it works from the manifest and what the worker lays out. */
  setDevice(index: number, data: DeviceData | null, stacks: Stacks | null): void {
    if (this.scene?.info.index !== index) {
      this.scene = new Scene(this.client.devices[index])
      this.scene.keepsReserved = this.keepsReserved(index)
      this.bands.set(null, null)
      this.picture.keepOnly(index)
      // The worker starts on the coarsest tile while this thread is still busy with the first frame, which requests it again.
      if (this.scene.info.allocations > 0 && this.store.state.axis === 'event') {
        this.client.tile({ device: index, axis: 'event', level: 0, tile: 0, yLevel: 0, yTile: 0 }).catch(() => {})
      }
    }
    if (data && stacks && !this.scene.data) this.scene.setData(data, stacks)
    this.requestFrame()
  }

  /** What colours stand for and what a query matches, on the device of the scene; null before its columns have arrived. */
  setColouring(colouring: Colouring | null, matches: Matches | null): void {
    this.bands.set(colouring, matches)
    this.requestFrame()
  }

  /** Draws bytes by position over the stack; null: none. */
  setCurve(values: Float64Array | null): void {
    const { lines } = this.overlay
    if (values === (lines.curve?.values ?? null)) return
    lines.curve = values && { values, greatest: new RangeMax(values) }
    this.requestFrame()
  }

  /** Draws the stack with other sizes, what is then reserved, and failed requests by event; null: as recorded. */
  setSizes(
    size: Float64Array | null,
    reserved: Float64Array | null,
    requests: ReadonlyMap<number, number> | null,
  ): void {
    this.scene?.showSizes(size, reserved, requests)
    this.requestFrame()
  }

  /** Draws some allocations alone, stacked from zero (1 per allocation; null: all). */
  setOnly(mask: Uint8Array | null): void {
    this.scene?.showOnly(mask)
    this.requestFrame()
  }

  /** Call when the theme has changed. */
  themeChanged(): void {
    this.inks = null
    this.requestFrame()
  }

  get drawn(): Drawn {
    return this.picture.drawn
  }

  /** The browser has no WebGL2: everything is shown, but drawn by the processor alone. */
  get isFlat(): boolean {
    return this.picture.state === 'none'
  }

  testContextLoss(): void {
    this.picture.testContextLoss()
  }

  get currentScene(): Scene | null {
    return this.scene
  }

  /** The last frame showed the whole window, from the columns, with every tile sharp, by what will draw the next ones too. */
  get isComplete(): boolean {
    const { state, isLost } = this.picture
    return (
      this.scene?.data != null &&
      this.scene.info.index === this.store.state.device &&
      this.drawn.pending === 0 &&
      (state === 'gl' || state === 'none') &&
      !isLost
    )
  }

  focus(): void {
    this.plotElement.focus({ preventScroll: true })
  }

  requestFrame(): void {
    this.picture.requestFrame()
  }

  drawNow(): void {
    this.picture.drawNow()
  }

  /** Cancels a drag; true when there was one. */
  cancelDrag(): boolean {
    return this.pointer.cancelDrag()
  }

  /** Zooms about the pointer if it is on the plot, else about the middle. */
  zoomBy(factorX: number, factorY: number): void {
    const plot = this.overlay.frame?.plot
    if (!plot) return
    const { x, y } = this.hover.at ?? { x: plot.width / 2, y: plot.height / 2 }
    this.navigator.zoomAt(x, y, factorX, factorY)
  }

  /** Colours and the moment as plain values, for tests. */
  debug(): object {
    return {
      colouring: this.scene && this.bands.debug(),
      moment: this.store.state.at,
      hovered: this.hoveredPosition,
      tracks: this.tracks.debug(),
    }
  }

  /** Bytes of the whole height where everything is shown. */
  extent(): number | null {
    return this.scene?.yTop ?? null
  }

  /** Makes room for what another pane shows on the same scale; 0: none. */
  setExtent(bytes: number): void {
    if (bytes === this.minTop) return
    this.minTop = bytes
    this.requestFrame()
  }

  private limits(): Limits | null {
    const { scene, store } = this
    const scale = scene?.scale(store.state.axis)
    if (!scene || !scale) return null
    return limitsOf(scale, Math.max(scene.yTop, this.minTop), scene.yBottom(store.state.options[FOLD]))
  }

  private setBox(box: Rect | null): void {
    this.box = box
    this.requestFrame()
  }

  private boxDone(box: Rect): void {
    if (!this.ruler.isOn) this.navigator.zoomToBox(box)
    else if (this.overlay.frame) this.ruler.set(this.overlay.frame, box)
  }

  /** Of the allocation at the pointer; from the keyboard of the selected one. */
  private openMenu(event: MouseEvent): void {
    const { frame } = this.overlay
    const data = this.scene?.data
    if (!frame || !data || event.defaultPrevented) return
    const { left, top } = this.plotElement.getBoundingClientRect()
    const isKey = event.clientX === 0 && event.clientY === 0
    const at = isKey ? null : { x: event.clientX - left - frame.plot.left, y: event.clientY - top - frame.plot.top }
    const id = (at ? this.hits.allocationAt(frame, at.x, at.y)?.id : this.store.state.select) ?? -1
    if (id < 0) return
    event.preventDefault()
    this.hover.set(null)
    openMenu(allocationItems(this.store, data, id), Math.max(left, event.clientX), Math.max(top, event.clientY))
  }

  /** Selects the events between two places of the plot in pixels, or of the whole window. */
  selectRange(from = 0, to = Infinity): void {
    const { frame } = this.overlay
    if (!frame || frame.scene.info.events === 0) return
    const event = (x: number): number =>
      frame.scale.toEvent(pixelToX(frame, Math.max(0, Math.min(frame.plot.width, x))))
    const range = rangeOf(frame.scene.info, [event(Math.min(from, to)), event(Math.max(from, to))])
    this.store.set({
      ...CLOSED,
      options: { ...this.store.state.options, [RANGE]: writeEventRange(range) },
    })
  }

  /** Measures the whole window. */
  measureWindow(): void {
    if (this.overlay.frame) this.ruler.setToWindow(this.overlay.frame)
  }

  private click(x: number, y: number, shift: boolean): void {
    this.focus()
    if (this.overlay.frame) this.clicks.click(this.overlay.frame, x, y, shift)
  }

  /** Sets the moment to that of the column under the pointer, or in the middle of the window; on a second call back to the peak. */
  markMoment(): void {
    const frame = this.overlay.frame
    if (frame) this.clicks.setMoment(frame, this.hover.at?.x ?? frame.plot.width / 2)
  }

  /** Position of the column under the pointer; null where there is none. */
  get hoveredPosition(): number | null {
    return this.hover.column?.s ?? null
  }

  // Drawing

  private draw(): void {
    const { peer } = this
    if (this.scene && this.tracks.place(this.scene, this.element.clientHeight, peer?.tracks.room ?? 0))
      peer?.requestFrame()
    const width = this.plotElement.clientWidth
    const height = this.plotElement.clientHeight
    const limits = this.limits()
    if (width === 0 || height === 0 || !limits || !this.scene) return
    const { state } = this.store
    const inks = this.prepareTheme(state)
    const plot = layOut(width, height)
    const window = resolveWindow(state, limits)
    const { scale } = limits
    this.picture.place(plot, window)
    this.picture.drawTiles(this.providerFor(limits), window)
    const { rects } = this.overlay
    const frame: Frame = {
      rects,
      strips: this.overlay.begin(plot, width),
      scene: this.scene,
      scale,
      window,
      plot,
      inks,
      yBottom: limits.yBottom,
      moment: state.at,
    }
    this.overlay.draw(frame, {
      level: this.drawn.level,
      select: state.select,
      range: readEventRange(state.options[RANGE], this.scene.info),
      box: this.ruler.isOn && this.box?.y0 !== -Infinity ? null : this.box,
    })
    this.ruler.draw(frame, this.box?.y0 === -Infinity ? null : this.box)
    this.picture.drawRects(rects, plot)
    this.tracks.draw(frame, isDark(state.theme))
    this.minimap.draw(frame, width - plot.left - plot.width)
    this.hover.draw(frame, this.box !== null)
    this.onDrawn()
    this.hover.showTooltip(frame)
  }

  private providerFor({ scale }: Limits): TileProvider | null {
    const { info, shownPeak } = this.scene!
    if (info.allocations === 0) return null
    const height = Math.max(info.peak_bytes, shownPeak)
    return this.providers.get([this.scene, scale.axis, height], () =>
      tileProvider(this.client, info.index, scale.axis, scale.grid, height),
    )
  }

  private prepareTheme(state: State): Inks {
    const dark = isDark(state.theme)
    this.inks ??= readInks(this.element, dark)
    const { panel } = this.inks
    this.picture.colour(this.bands.update(this.scene!.info.index, state, dark, panel, this.scene!.shown), panel)
    return this.inks
  }

  /** CSS colour of what an allocation is coloured by; null for none. */
  colourOf(id: number): string | null {
    return this.bands.cssOf(id)
  }
}
