// A grid of any number of rows, of which only those on screen exist. It has a head, a foot, a cursor that the arrow keys
// move, and rows that its owner fills; what the rows mean is the owner's business.

import { h } from './dom'
import { FrameRequest } from './frame-request'
import { ScrollMap } from './scroll-map'

export interface ListOwner {
  /** Short and without blanks: rows get ids from it. */
  name: string
  label: string
  role: 'grid' | 'treegrid'
  rowHeight: number
  /** Fills a row's element. Elements are reused: everything must be set. */
  fill(row: HTMLElement, index: number): void
  onClick(index: number, event: MouseEvent): void
  /** The menu of a row is asked for, at a place of the window. Absent: it has none. */
  onMenu?(index: number, x: number, y: number): void
  /** The cursor has moved to a row by keys or a click. */
  onCursor?(index: number): void
  /** Enter, or the space bar, with the cursor on a row. */
  onEnter?(index: number): void
  onSpace?(index: number): void
}

const SPARE = 3
/** The bar is corrected once it has rested for so long, in ms: sooner would stop a wheel's momentum. */
const REST_MS = 200

export class VirtualList {
  readonly element: HTMLElement
  readonly head = h('div.list-head', { role: 'rowgroup' })
  readonly foot = h('div.list-foot', { role: 'rowgroup' })
  private readonly body = h('div.list-body', { role: 'rowgroup' })
  private readonly map = new ScrollMap()
  private rows = new Map<number, HTMLElement>()
  private spare: HTMLElement[] = []
  private count = 0
  /** Height left for rows, in pixels. */
  private room = 0
  private at = -1
  private readonly frame = new FrameRequest(() => {
    this.place()
    this.settle()
  })
  private rest = 0
  private waiting: (() => void)[] = []

  constructor(private readonly owner: ListOwner) {
    this.element = h(
      'div.list',
      { role: owner.role, tabindex: 0, 'aria-label': owner.label },
      this.head,
      this.body,
      this.foot,
    )
    this.element.addEventListener('scroll', () => this.scrolled(), { passive: true })
    this.body.addEventListener('click', (event) => this.clicked(event))
    if (owner.onMenu) this.element.addEventListener('contextmenu', (event) => this.menu(event))
    this.element.style.setProperty('--row-height', `${owner.rowHeight}px`)
    // Also when the list comes back into the page, with its scroll bar at the top.
    new ResizeObserver(() => this.resized()).observe(this.element)
  }

  /** The row that keys act on; -1: none yet. */
  get cursor(): number {
    return this.at
  }

  /** Rows that are wholly or partly on screen: [first, past the last). */
  get visible(): [number, number] {
    const { rowHeight } = this.owner
    return [
      Math.floor(this.map.top / rowHeight),
      Math.min(this.count, Math.ceil((this.map.top + this.room) / rowHeight)),
    ]
  }

  /** Columns as a CSS grid template, and the least width in pixels of all. */
  setColumns(template: string, width: number): void {
    this.element.style.setProperty('--columns', template)
    this.element.style.setProperty('--list-width', `${width}px`)
  }

  /** Sets the number of rows, all of them changed. `cursor`: the row that the cursor is on now; `middle`: one to bring to the middle. */
  setRows(count: number, cursor = this.at, middle = -1): void {
    this.count = count
    this.at = Math.min(cursor, count - 1)
    this.element.setAttribute('aria-rowcount', String(count + 1))
    this.draw(middle)
  }

  /** Fills every row again; also after a change of size. */
  draw(middle = -1): void {
    this.measure()
    if (middle >= 0) this.toMiddle(middle)
    this.body.style.height = `${this.map.height}px`
    this.putBar()
    this.place(true)
    this.settle()
  }

  /** Puts the cursor on a row and brings it into view: by as little as needed, or into the middle. */
  moveTo(index: number, align: 'nearest' | 'middle' = 'nearest'): void {
    if (this.count === 0) return
    const { rowHeight } = this.owner
    const before = this.at
    this.at = Math.max(0, Math.min(this.count - 1, Math.round(index)))
    const top = this.at * rowHeight
    const isIn = top >= this.map.top && top + rowHeight <= this.map.top + this.room
    if (!isIn) {
      if (align === 'middle') this.toMiddle(this.at)
      else this.map.moveTo(top < this.map.top ? top : top + rowHeight - this.room)
      this.putBar()
    }
    this.mark(before)
    this.place()
    if (this.at !== before) this.owner.onCursor?.(this.at)
  }

  /** Moves the cursor or acts on its row, wherever in the page the key was pressed; true when used. A button, link or
   * label that has the focus keeps its own Enter and space bar. */
  key(event: KeyboardEvent): boolean {
    if (this.count === 0) return false
    const control = event.target instanceof Element && event.target.closest('button, a, label, summary')
    if (this.moveBy(event.key)) {
      if (!control || this.element.contains(control)) this.element.focus({ preventScroll: true })
      return true
    }
    const act = event.key === 'Enter' ? this.owner.onEnter : event.key === ' ' ? this.owner.onSpace : undefined
    if (!act || control || this.at < 0) return false
    act(this.at)
    return true
  }

  /** Arrows, page keys, Home and End; true when used. */
  moveBy(key: string): boolean {
    const page = Math.max(1, Math.floor(this.room / this.owner.rowHeight) - 1)
    const from = this.at < 0 ? this.visible[0] - (key === 'ArrowDown' ? 1 : 0) : this.at
    const to = {
      ArrowDown: from + 1,
      ArrowUp: from - 1,
      PageDown: from + page,
      PageUp: from - page,
      Home: 0,
      End: this.count - 1,
    }[key]
    if (to !== undefined) this.moveTo(to)
    return to !== undefined
  }

  /** Settles when the rows of the last scroll are filled. */
  settled(): Promise<void> {
    return !this.frame.isPending ? Promise.resolve() : new Promise((resolve) => this.waiting.push(resolve))
  }

  private toMiddle(index: number): void {
    const { rowHeight } = this.owner
    this.map.moveTo(index * rowHeight - (this.room - rowHeight) / 2)
  }

  /** Measured only when it may have changed: it costs a layout of the page. */
  private measure(): void {
    this.room = Math.max(
      this.owner.rowHeight,
      this.element.clientHeight - this.head.offsetHeight - this.foot.offsetHeight,
    )
    this.map.resize(this.count * this.owner.rowHeight, this.room)
  }

  private scrolled(): void {
    this.map.scrolled(this.element.scrollTop)
    if (this.map.isStuck) this.putBar()
    clearTimeout(this.rest)
    this.rest = window.setTimeout(() => {
      if (!this.map.isOff) return
      this.putBar()
      this.place()
    }, REST_MS)
    this.frame.request()
  }

  private resized(): void {
    if (this.element.clientHeight === 0) return
    this.measure()
    this.putBar()
    this.place()
  }

  private putBar(): void {
    this.map.moveTo(this.map.top)
    if (Math.abs(this.element.scrollTop - this.map.place) > 0.5) this.element.scrollTop = this.map.place
    this.map.adopt(this.element.scrollTop)
  }

  private settle(): void {
    for (const resolve of this.waiting.splice(0)) resolve()
  }

  /** Creates, fills and places the rows on screen, and removes the others. `again`: fills those that are there already, too. */
  private place(again = false): void {
    const [first, past] = this.visible
    const from = Math.max(0, first - SPARE)
    const to = Math.min(this.count, past + SPARE)
    for (const [index, row] of this.rows) {
      if (index >= from && index < to) continue
      this.rows.delete(index)
      this.spare.push(row)
    }
    for (let index = from; index < to; index++) {
      let row = this.rows.get(index)
      const isFresh = !row
      if (!row) {
        row = this.spare.pop() ?? h('div', { role: 'row' })
        row.id = `${this.owner.name}-row-${index}`
        row.dataset.index = String(index)
        row.setAttribute('aria-rowindex', String(index + 2))
        this.rows.set(index, row)
      }
      if (isFresh || again) {
        if (row.className !== 'list-row') row.className = 'list-row'
        this.owner.fill(row, index)
        row.classList.toggle('cursor', index === this.at)
        if (!row.isConnected) this.body.append(row)
      }
      row.style.top = `${this.map.inside(index * this.owner.rowHeight)}px`
    }
    for (const row of this.spare) row.remove()
    this.spare.length = Math.min(this.spare.length, 2 * SPARE)
    this.pointAtCursor()
  }

  private mark(before: number): void {
    this.rows.get(before)?.classList.remove('cursor')
    this.rows.get(this.at)?.classList.add('cursor')
  }

  private pointAtCursor(): void {
    if (this.rows.has(this.at)) this.element.setAttribute('aria-activedescendant', `${this.owner.name}-row-${this.at}`)
    else this.element.removeAttribute('aria-activedescendant')
  }

  /** Of the row under the pointer, or of the cursor's where a key asks for it. */
  private menu(event: MouseEvent): void {
    const row = this.rowOf(event) ?? (event.target === this.element ? (this.rows.get(this.at) ?? null) : null)
    if (!row) return
    event.preventDefault()
    const index = Number(row.dataset.index)
    this.moveTo(index)
    const { left, bottom } = row.getBoundingClientRect()
    if (event.clientX === 0 && event.clientY === 0) this.owner.onMenu!(index, left, bottom)
    else this.owner.onMenu!(index, event.clientX, event.clientY)
  }

  private rowOf({ target }: MouseEvent): HTMLElement | null {
    return target instanceof Element ? target.closest<HTMLElement>('.list-body > .list-row') : null
  }

  private clicked(event: MouseEvent): void {
    const row = this.rowOf(event)
    if (!row) return
    const index = Number(row.dataset.index)
    this.moveTo(index)
    this.owner.onClick(index, event)
  }
}
