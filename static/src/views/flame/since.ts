// The other moment of growth: a field for its event, and a button that takes the moment on screen.

import { formatCount } from '../../layout/format'
import { button } from '../../ui/controls'
import { h } from '../../ui/dom'
import type { Store } from '../../ui/state'
import type { ViewContext } from '../view'
import type { Choices } from './choices'

export class SinceField {
  readonly element: HTMLElement
  private readonly field = h('input.moment-event', {
    type: 'number',
    min: -1,
    step: 1,
    'aria-label': 'Growth since event',
  })
  private readonly note = h('span.soft')
  private position = 0

  constructor(private readonly store: Store) {
    this.field.addEventListener('change', () => this.field.value !== '' && this.choose(Number(this.field.value)))
    this.element = h(
      'div.row.wrap.flame-since',
      { role: 'group', 'aria-label': 'Growth since' },
      'since event',
      this.field,
      button('From here', 'Count growth from the moment shown now', () => this.choose(this.position - 1)),
      this.note,
    )
  }

  render({ info, position }: ViewContext, { measure, from }: Choices): void {
    this.element.hidden = measure !== 'growth' || info.events === 0
    this.position = position
    this.field.max = String(info.events - 1)
    if (document.activeElement !== this.field) this.field.value = String(from)
    this.note.textContent = from < 0 ? 'before the first event' : `of ${formatCount(info.events)}`
  }

  private choose(event: number): void {
    this.store.setOption('flame.from', event < 0 ? null : String(Math.round(event)))
  }
}
