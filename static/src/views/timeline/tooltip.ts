// A small box beside the pointer. Never takes the pointer itself, never leaves the view.

import { fill, h } from '../../ui/dom'
import type { Line } from './describe'

const GAP = 14

export class Tooltip {
  readonly element = h('div', { class: 'tooltip', role: 'tooltip', hidden: true })

  show(lines: readonly Line[], x: number, y: number, swatch: string | null): void {
    const { element } = this
    const children = lines.map(({ kind, text }) => h('div', { class: `tip-${kind}` }, text))
    if (swatch && children.length) {
      const mark = h('span', { class: 'swatch' })
      mark.style.background = swatch
      children[0].prepend(mark)
    }
    fill(element, ...children)
    element.hidden = false
    const parent = element.offsetParent as HTMLElement | null
    if (!parent) return
    const { offsetWidth, offsetHeight } = element
    const right = x + GAP + offsetWidth <= parent.clientWidth
    const below = y + GAP + offsetHeight <= parent.clientHeight
    element.style.left = `${Math.max(4, right ? x + GAP : x - GAP - offsetWidth)}px`
    element.style.top = `${Math.max(4, below ? y + GAP : y - GAP - offsetHeight)}px`
  }

  hide(): void {
    this.element.hidden = true
  }
}
