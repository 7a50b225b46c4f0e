// The legend of the fills of the segments view.

import { scrollsWhenSmall } from '../../ui/compact'
import { fill, h } from '../../ui/dom'
import { css, type Inks, mix } from '../shared/inks'

export class Legend {
  readonly element = scrollsWhenSmall(h('ul', { class: 'segments-legend', 'aria-label': 'Legend' }))
  private drawn = ''

  /** `byTime`: of the map over time, which draws less. */
  render(inks: Inks, by: string, byTime: boolean): void {
    const { element } = this
    element.hidden = false
    const key = JSON.stringify([inks, by, byTime])
    if (key === this.drawn) return
    this.drawn = key
    const item = (label: string, style: Partial<CSSStyleDeclaration>): HTMLElement => {
      const mark = h('span', { class: 'swatch' })
      Object.assign(mark.style, style)
      return h('li', {}, mark, label)
    }
    const stripes = `repeating-linear-gradient(135deg, ${css(inks.pending)} 0 2px, ${css(inks.allocated)} 2px 4px)`
    const shared = [
      item(`Allocated (coloured by ${by})`, { background: css(inks.allocated) }),
      item('Pending free', { background: stripes }),
    ]
    if (byTime) {
      fill(
        element,
        ...shared,
        item('Free in a segment', { background: css(inks.split) }),
        item('No segment then', { background: css(inks.panel), outline: `1px solid ${css(inks.line)}` }),
      )
      return
    }
    fill(
      element,
      ...shared,
      item('Rounding', { background: css(inks.rounding) }),
      item('Free, inactive split', { background: css(inks.split) }),
      item('Unused segment', {
        background: css(inks.whole),
        outline: `1px dashed ${css(mix(inks.panel, inks.soft, 0.55))}`,
      }),
      item('Allocated by this event', { outline: `2px solid ${css(inks.oom)}`, background: 'transparent' }),
      item('Freed by it', { outline: `2px dashed ${css(inks.oom)}`, background: 'transparent' }),
    )
  }
}
