// A small box beside the pointer. Never takes the pointer itself, never leaves the view.

import { fill, h } from '../../ui/dom'
import type { Line } from './describe'

const GAP = 14

/** Counts changes of the window's size. (Reading the size would force a layout of the whole page.) */
let resizes = 0
addEventListener('resize', () => resizes++)

export class Tooltip {
  readonly element = h('div', { class: 'tooltip', role: 'tooltip', hidden: true })
  private shown = ''
  private width = 0
  private height = 0

  show(lines: readonly Line[], x: number, y: number, swatch: string | null): void {
    const { element } = this
    const key = JSON.stringify([lines, swatch, resizes])
    // Usually it only moves: its text is laid out and painted again only when it changes.
    if (element.hidden || key !== this.shown) this.write(lines, swatch)
    this.shown = key
    this.place(x, y)
  }

  hide(): void {
    this.element.hidden = true
  }

  private write(lines: readonly Line[], swatch: string | null): void {
    const { element } = this
    const children = lines.map(({ kind, text }) => h('div', { class: `tip-${kind}` }, text))
    if (swatch && children.length) {
      const mark = h('span', { class: 'swatch' })
      mark.style.background = swatch
      children[0].prepend(mark)
    }
    fill(element, ...children)
    element.hidden = false
    this.width = element.offsetWidth
    this.height = element.offsetHeight
  }

  private place(x: number, y: number): void {
    const { element, width, height } = this
    const parent = element.offsetParent as HTMLElement | null
    if (!parent) return
    const right = x + GAP + width <= parent.clientWidth
    const below = y + GAP + height <= parent.clientHeight
    const left = Math.max(4, right ? x + GAP : x - GAP - width)
    const top = Math.max(4, below ? y + GAP : y - GAP - height)
    element.style.transform = `translate(${Math.round(left)}px, ${Math.round(top)}px)`
  }
}
