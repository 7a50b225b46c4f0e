// The base of the pictures over events or time whose window is in the state: a picture, painted again when something it
// shows has changed; over it the moment and the place under the pointer; pointer and keys that move the window.

import { h } from '../../ui/dom'
import { navigationOf } from '../../ui/navigation-keys'
import type { ViewContext, ViewParts } from '../view'
import { CanvasView } from './canvas-view'
import type { Line } from './describe'
import type { Inks } from './inks'
import { type Box, pixelToX } from './plot-frame'
import { PointerInput } from './pointer'
import { panned, xPatch, type XWindow, zoomed } from './x-window'

export interface Point {
  x: number
  y: number
}

/** What a picture over events shows; views add to it. */
export interface EventScene {
  context: ViewContext
  inks: Inks
  window: XWindow
}

export abstract class EventPlot<Scene extends EventScene> extends CanvasView {
  /** The y axis can be zoomed and panned. */
  protected readonly hasYWindow: boolean = false
  protected shown: Scene | null = null
  private readonly overlay = h('canvas', { 'aria-hidden': 'true' })
  private pointer: Point | null = null
  private paintedKey = ''

  constructor(
    protected readonly parts: ViewParts,
    attributes: Record<string, string>,
  ) {
    super({ class: 'time-plot surface', ...attributes }, 'time-map')
    this.plot.append(this.canvas, this.overlay)
    new PointerInput(this.plot, {
      pan: (dx, dy) => this.pan(dx, dy),
      zoom: (x, y, factorX, factorY) => this.zoom(x, y, factorX, factorY),
      box: () => {},
      zoomToBox: () => {},
      hover: (x, y) => {
        this.pointer = { x, y }
        this.frame.request()
      },
      leave: () => {
        this.pointer = null
        this.tooltip.hide()
        this.drawOver()
      },
      click: (x, y) => this.shown && this.click(this.shown, { x, y }),
      fit: () => this.fit(),
      origin: () => ({ left: 0, top: 0 }),
      boxMode: () => false,
    })
  }

  /** W and S zoom, A and D pan, 0 shows everything; up and down pan too where the y axis has a window. */
  key(event: KeyboardEvent): boolean {
    const { shown } = this
    const navigation = navigationOf(event)
    if (!shown || !navigation) return false
    const { left, top, width, height } = this.boxOf(shown)
    if (navigation.kind === 'fit') this.fit()
    else if (navigation.kind === 'zoom') {
      const { factor } = navigation
      this.zoom(left + width / 2, top + height / 2, event.shiftKey ? 1 : factor, event.shiftKey ? factor : 1)
    } else {
      const { x, y, isArrow } = navigation
      // Left and right step from event to event.
      if (isArrow && (x !== 0 || !this.hasYWindow)) return false
      this.pan(-x * width, y * height)
    }
    return true
  }

  /** The part of the plot that shows the window. */
  protected abstract boxOf(scene: Scene): Box
  /** All that the picture depends on beyond device, window and theme, as plain values. */
  protected abstract keyOf(scene: Scene): readonly unknown[]
  protected abstract paint(ctx: CanvasRenderingContext2D, scene: Scene): void
  protected abstract paintOver(ctx: CanvasRenderingContext2D, scene: Scene, pointer: Point | null): void
  /** The tooltip of a place; no lines: none. */
  protected abstract describe(scene: Scene, at: Point): { lines: readonly Line[]; swatch: string | null }
  protected abstract click(scene: Scene, at: Point): void

  protected present(scene: Scene): void {
    this.shown = scene
    const { window } = scene
    const { data, dark, state } = scene.context
    const { scale, x0, x1 } = window
    const key = JSON.stringify([
      data.info.index,
      dark,
      state.theme,
      scale.axis,
      x0,
      x1,
      devicePixelRatio,
      ...this.keyOf(scene),
    ])
    if (key !== this.paintedKey) {
      const ctx = this.begin(this.canvas)
      ctx.imageSmoothingEnabled = false
      this.paint(ctx, scene)
    }
    this.paintedKey = key
    this.drawOver()
  }

  /** After a move of the pointer. */
  protected draw(): void {
    const { shown, pointer } = this
    if (!shown || !pointer) return
    this.drawOver()
    const { lines, swatch } = this.describe(shown, pointer)
    if (lines.length === 0) this.tooltip.hide()
    else this.tooltip.show(lines, pointer.x, pointer.y, swatch)
  }

  protected zoom(x: number, _y: number, factorX: number, _factorY: number): void {
    const { shown } = this
    if (!shown || factorX === 1) return
    const at = pixelToX(shown.window, this.boxOf(shown), x)
    this.parts.store.set(xPatch(zoomed(shown.window, at, factorX)))
  }

  /** The picture follows the pointer by so many CSS pixels. */
  protected pan(dx: number, _dy: number): void {
    const { shown } = this
    if (!shown || dx === 0) return
    const { x0, x1 } = shown.window
    this.parts.store.set(xPatch(panned(shown.window, (-dx / this.boxOf(shown).width) * (x1 - x0))))
  }

  protected fit(): void {
    this.parts.store.set({ x: null })
  }

  private drawOver(): void {
    if (this.shown) this.paintOver(this.begin(this.overlay), this.shown, this.pointer)
  }
}
