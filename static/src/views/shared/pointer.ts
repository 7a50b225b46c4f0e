// Mouse, pen, touch and wheel on the plot, as actions. Knows pixels of its element and nothing of memory.

import type { Rect } from '../../layout/viewport'

export interface PointerActions {
  /** Pixels the picture should follow. */
  pan(dx: number, dy: number): void
  /** Factors below 1 zoom in; the point keeps its place. */
  zoom(x: number, y: number, factorX: number, factorY: number): void
  /** Two fingers; without it they zoom across alone. */
  pinch?(x: number, y: number, factorX: number, factorY: number): void
  /** True where a turn of the wheel is not to zoom or pan but what this did with it. */
  wheel?(x: number, y: number, dy: number, event: WheelEvent): boolean
  /** The box while it is drawn; null once it is cancelled or complete. */
  box(box: Rect | null): void
  zoomToBox(box: Rect): void
  /** A drag with shift, over the whole height. Absent: it is as one without. */
  selectRange?(box: Rect): void
  hover(x: number, y: number): void
  leave(): void
  click(x: number, y: number, shift: boolean): void
  fit(): void
  /** Where the plot begins inside the element; all coordinates count from there. */
  origin(): { left: number; top: number }
  /** The toolbar's switch for box zoom. */
  boxMode(): boolean
}

/** A press that moves less is a click. */
const CLICK_PIXELS = 4
/** Wheel events closer than this belong to one gesture, inertia included. */
const GESTURE_MS = 180
const ZOOM_PER_PIXEL = 0.0022
/** A touch that rests so long shows what is under it, in ms. */
const REST_MS = 450

/** Safari's own events for two fingers on a trackpad; other browsers send a wheel with ctrl. */
interface GestureEvent extends MouseEvent {
  /** Since the gesture began. */
  scale: number
}

export class PointerInput {
  private readonly pointers = new Map<number, { x: number; y: number }>()
  private mode: 'none' | 'press' | 'rest' | 'pan' | 'box' | 'pinch' = 'none'
  private start = { x: 0, y: 0 }
  private box: Rect | null = null
  /** The box selects a range. */
  private isRange = false
  private resting = 0
  private pinchScale = 1
  private gesture: { kind: 'pan' | 'zoomX' | 'zoomY'; at: number } | null = null

  constructor(
    private readonly element: HTMLElement,
    private readonly actions: PointerActions,
  ) {
    element.addEventListener('pointerdown', this.down)
    element.addEventListener('pointermove', this.move)
    element.addEventListener('pointerup', this.up)
    element.addEventListener('pointercancel', this.cancel)
    element.addEventListener('pointerleave', ({ pointerType }) => {
      // The tooltip of a long press stays when the finger leaves.
      if (this.mode === 'none' && pointerType !== 'touch') actions.leave()
    })
    element.addEventListener('dblclick', () => actions.fit())
    // Not passive: the page must not scroll away under the picture.
    element.addEventListener('wheel', this.wheel, { passive: false })
    element.addEventListener('gesturestart', (event) => {
      event.preventDefault()
      this.pinchScale = 1
    })
    element.addEventListener('gesturechange', (event) => this.trackpadPinch(event as GestureEvent))
    element.addEventListener('gestureend', (event) => event.preventDefault())
    element.addEventListener('contextmenu', (event) => this.mode === 'rest' && event.preventDefault())
  }

  /** Cancels a drag; true when there was one. */
  cancelDrag(): boolean {
    clearTimeout(this.resting)
    const dragging = this.mode === 'box' || this.mode === 'pan'
    this.mode = 'none'
    this.box = null
    this.actions.box(null)
    return dragging
  }

  private place(event: MouseEvent): { x: number; y: number } {
    const bounds = this.element.getBoundingClientRect()
    const { left, top } = this.actions.origin()
    return { x: event.clientX - bounds.left - left, y: event.clientY - bounds.top - top }
  }

  private readonly down = (event: PointerEvent): void => {
    if (event.pointerType === 'mouse' && event.button !== 0) return
    const at = this.place(event)
    this.element.setPointerCapture(event.pointerId)
    this.pointers.set(event.pointerId, at)
    if (this.pointers.size === 2) {
      this.cancelDrag()
      this.mode = 'pinch'
      return
    }
    this.start = at
    this.isRange = event.shiftKey && this.actions.selectRange !== undefined
    const boxed = this.isRange || event.ctrlKey || event.altKey || event.metaKey || this.actions.boxMode()
    this.mode = boxed ? 'box' : 'press'
    this.actions.leave()
    clearTimeout(this.resting)
    if (event.pointerType === 'touch') this.resting = window.setTimeout(() => this.rest(), REST_MS)
  }

  /** A long press is a mouse that hovers: it stays when the finger leaves, until the next touch. */
  private rest(): void {
    if (this.mode !== 'press') return
    this.mode = 'rest'
    this.actions.hover(this.start.x, this.start.y)
  }

  private readonly move = (event: PointerEvent): void => {
    const at = this.place(event)
    const before = this.pointers.get(event.pointerId)
    if (!before) {
      if (this.mode === 'none') this.actions.hover(at.x, at.y)
      return
    }
    if (this.mode === 'pinch') this.pinch(event.pointerId, at)
    this.pointers.set(event.pointerId, at)
    if (this.mode === 'press' && Math.hypot(at.x - this.start.x, at.y - this.start.y) >= CLICK_PIXELS) {
      this.mode = 'pan'
      this.element.classList.add('panning')
      this.actions.pan(at.x - this.start.x, at.y - this.start.y)
    } else if (this.mode === 'rest') {
      this.actions.hover(at.x, at.y)
    } else if (this.mode === 'pan') {
      this.actions.pan(at.x - before.x, at.y - before.y)
    } else if (this.mode === 'box') {
      const [y0, y1] = this.isRange ? [-Infinity, Infinity] : [this.start.y, at.y]
      this.box = { x0: this.start.x, y0, x1: at.x, y1 }
      this.actions.box(this.box)
    }
  }

  private readonly up = (event: PointerEvent): void => {
    if (!this.pointers.delete(event.pointerId)) return
    clearTimeout(this.resting)
    const { mode, box } = this
    const at = this.place(event)
    this.element.classList.remove('panning')
    if (mode === 'pinch') {
      if (this.pointers.size === 0) this.mode = 'none'
      return
    }
    this.mode = 'none'
    this.box = null
    const isDrawn = box !== null && !(this.isRange ? isNarrow(box) : isSmall(box))
    if (mode === 'press' || (mode === 'box' && !isDrawn)) this.actions.click(at.x, at.y, event.shiftKey)
    if (mode === 'box') {
      this.actions.box(null)
      if (isDrawn && this.isRange) this.actions.selectRange!(box)
      else if (isDrawn) this.actions.zoomToBox(box)
    }
    if (event.pointerType === 'mouse') this.actions.hover(at.x, at.y)
  }

  private readonly cancel = (event: PointerEvent): void => {
    this.pointers.delete(event.pointerId)
    this.element.classList.remove('panning')
    this.cancelDrag()
  }

  private pinch(moved: number, at: { x: number; y: number }): void {
    const before = this.pointers.get(moved)!
    const other = [...this.pointers].find(([id]) => id !== moved)?.[1]
    if (!other) return
    const factor = (was: number, is: number): number => Math.max(20, Math.abs(was)) / Math.max(20, Math.abs(is))
    const across = factor(before.x - other.x, at.x - other.x)
    this.pinchBy((at.x + other.x) / 2, (at.y + other.y) / 2, across, factor(before.y - other.y, at.y - other.y))
    this.actions.pan((at.x - before.x) / 2, 0)
  }

  private pinchBy(x: number, y: number, factorX: number, factorY: number): void {
    if (this.actions.pinch) this.actions.pinch(x, y, factorX, factorY)
    else this.actions.zoom(x, y, factorX, 1)
  }

  private trackpadPinch(event: GestureEvent): void {
    event.preventDefault()
    // On a touch screen the fingers are pointers already.
    if (this.pointers.size > 0 || !(event.scale > 0)) return
    const at = this.place(event)
    this.pinchBy(at.x, at.y, this.pinchScale / event.scale, this.pinchScale / event.scale)
    this.pinchScale = event.scale
  }

  private readonly wheel = (event: WheelEvent): void => {
    event.preventDefault()
    const unit = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? 400 : 1
    const dx = event.deltaX * unit
    const dy = event.deltaY * unit
    const at = this.place(event)
    if (this.actions.wheel?.(at.x, at.y, dy, event)) return
    // A trackpad sends events for a while after the fingers have left. The first event decides what a gesture does,
    // so that a zoom does not turn into a pan when the hand moves, nor y into x when shift is released early.
    if (!this.gesture || event.timeStamp - this.gesture.at > GESTURE_MS) {
      const sideways = Math.abs(dx) > Math.abs(dy)
      this.gesture = {
        kind: event.shiftKey ? 'zoomY' : sideways && !event.ctrlKey ? 'pan' : 'zoomX',
        at: event.timeStamp,
      }
    }
    this.gesture.at = event.timeStamp
    const { kind } = this.gesture
    if (kind === 'pan') {
      this.actions.pan(-dx, 0)
      return
    }
    // Browsers turn a wheel with shift sideways on some systems. A pinch on a trackpad arrives as small deltas with ctrl.
    const delta = (kind === 'zoomY' && dy === 0 ? dx : dy) * (event.ctrlKey && Math.abs(dy) < 40 ? 4 : 1)
    const factor = Math.exp(Math.max(-300, Math.min(300, delta)) * ZOOM_PER_PIXEL)
    this.actions.zoom(at.x, at.y, kind === 'zoomX' ? factor : 1, kind === 'zoomY' ? factor : 1)
  }
}

function isNarrow({ x0, x1 }: Rect): boolean {
  return Math.abs(x1 - x0) < CLICK_PIXELS
}

function isSmall(box: Rect): boolean {
  return isNarrow(box) && Math.abs(box.y1 - box.y0) < CLICK_PIXELS
}
