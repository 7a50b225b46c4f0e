// A small box beside the pointer. Never takes the pointer itself, never leaves the view.

import { h } from '../../ui/dom'
import type { Line } from './describe'

const GAP = 14

/** The one on screen: there is one pointer. */
let open: Tooltip | null = null

/** A tooltip goes with Escape, when the window loses the focus, and when something else of the page is pointed at. */
function bindDismissal(): void {
  const elsewhere = ({ target }: Event): void => {
    if (open && !open.element.parentElement?.contains(target as Node)) open.hide()
  }
  document.addEventListener('pointerdown', elsewhere, { capture: true })
  document.addEventListener('pointerover', elsewhere)
  window.addEventListener('blur', () => open?.dismiss())
  document.addEventListener('keydown', ({ key }) => key === 'Escape' && open?.dismiss(), { capture: true })
}
let isBound = false

export class Tooltip {
  readonly element = h('div.tooltip.floating.corner', { role: 'tooltip', hidden: true })
  /** Elements of lines, with their texts: only what changes is written. */
  private readonly rows: { line: HTMLElement; text: HTMLElement }[] = []
  private readonly swatch = h('span.swatch')
  private readonly at = { x: 0, y: 0 }
  /** In CSS pixels; those of the box it must not leave are 0 until it was laid out once. */
  private readonly size = { width: 0, height: 0 }
  private readonly room = { width: 0, height: 0 }
  private isDismissed = false
  private container: Element | null = null
  /** Told of sizes after the layout that every frame has: to ask for them would force another one. */
  private readonly observer = new ResizeObserver(() => this.measured())

  constructor() {
    this.observer.observe(this.element)
    if (!isBound) bindDismissal()
    isBound = true
  }

  show(lines: readonly Line[], x: number, y: number, swatch: string | null): void {
    // Pictures that are drawn again show theirs again: one that was dismissed waits for the pointer to move.
    if (this.isDismissed && x === this.at.x && y === this.at.y) return
    this.isDismissed = false
    this.element.hidden = false
    open = this
    this.write(lines, swatch)
    this.at.x = x
    this.at.y = y
    this.place()
  }

  /** Also ends a dismissal: the pointer has left. */
  hide(): void {
    this.element.hidden = true
    this.isDismissed = false
    if (open === this) open = null
  }

  /** Hides it until the pointer moves. */
  dismiss(): void {
    this.hide()
    this.isDismissed = true
  }

  private write(lines: readonly Line[], swatch: string | null): void {
    const { rows } = this
    lines.forEach(({ kind, text }, i) => {
      const row = (rows[i] ??= this.addRow())
      const name = `tip-${kind}`
      if (row.line.className !== name) row.line.className = name
      if (row.text.textContent !== text) row.text.textContent = text
    })
    for (const { line } of rows.splice(lines.length)) line.remove()
    if (!swatch || rows.length === 0) return this.swatch.remove()
    this.swatch.style.background = swatch
    if (this.swatch.parentElement !== rows[0].line) rows[0].line.prepend(this.swatch)
  }

  private addRow(): { line: HTMLElement; text: HTMLElement } {
    const text = h('span')
    const line = h('div', text)
    this.element.append(line)
    return { line, text }
  }

  /** Layout is done: reading sizes costs nothing, and what is moved now is on the screen with this frame. */
  private measured(): void {
    const { element, size, room } = this
    if (element.hidden || element.offsetWidth === 0) return
    if (!this.container) {
      this.container = element.offsetParent
      if (this.container) this.observer.observe(this.container)
    }
    size.width = element.offsetWidth
    size.height = element.offsetHeight
    room.width = this.container?.clientWidth ?? 0
    room.height = this.container?.clientHeight ?? 0
    this.place()
  }

  private place(): void {
    const { at, size, room } = this
    if (room.width === 0) return
    const isRight = at.x + GAP + size.width <= room.width
    const isBelow = at.y + GAP + size.height <= room.height
    const left = Math.max(4, isRight ? at.x + GAP : at.x - GAP - size.width)
    const top = Math.max(4, isBelow ? at.y + GAP : at.y - GAP - size.height)
    this.element.style.transform = `translate(${Math.round(left)}px, ${Math.round(top)}px)`
  }
}

/** Browsers scroll or click before, and open a menu of their own soon after. */
const REST_MS = 450
const MOVES_PIXELS = 8

/** On a picture that scrolls by touch. `point`: a mouse is here, or a finger rests here; `leave`: nothing points any more. */
export function onPointing(element: HTMLElement, point: (event: PointerEvent) => void, leave: () => void): void {
  element.addEventListener('pointermove', (event) => event.pointerType !== 'touch' && point(event))
  // The tooltip of a long press stays when the finger leaves.
  element.addEventListener('pointerleave', (event) => event.pointerType !== 'touch' && leave())
  element.addEventListener('pointerdown', (event) => event.pointerType === 'touch' && leave())
  onLongPress(element, point)
}

/** point: the finger rests here; it stays until the next touch. The click that follows is not passed on. */
function onLongPress(element: HTMLElement, point: (event: PointerEvent) => void): void {
  let timer = 0
  let start: PointerEvent | null = null
  let pressed = false
  const stop = (): void => {
    clearTimeout(timer)
    start = null
  }
  element.addEventListener('pointerdown', (event) => {
    stop()
    pressed = false
    if (event.pointerType !== 'touch') return
    start = event
    timer = window.setTimeout(() => {
      pressed = true
      point(event)
    }, REST_MS)
  })
  element.addEventListener('pointermove', (event) => {
    if (start && Math.hypot(event.clientX - start.clientX, event.clientY - start.clientY) > MOVES_PIXELS) stop()
  })
  element.addEventListener('pointerup', stop)
  element.addEventListener('pointercancel', stop)
  element.addEventListener('contextmenu', (event) => pressed && event.preventDefault())
  element.addEventListener(
    'click',
    (event) => {
      if (!pressed) return
      pressed = false
      event.stopImmediatePropagation()
    },
    { capture: true },
  )
}
