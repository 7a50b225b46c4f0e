// Events or time to the right, for views that are not the timeline.

import { h } from '../../ui/dom'
import type { Store } from '../../ui/state'
import type { ViewContext } from '../view'

export class AxisSwitch {
  readonly element: HTMLElement
  private readonly store: Store
  private readonly buttons: ['event' | 'time', HTMLButtonElement][]
  private hasTimes = false

  constructor(store: Store) {
    this.store = store
    this.buttons = (
      [
        ['event', 'Events'],
        ['time', 'Time'],
      ] as const
    ).map(([axis, label]) => [axis, h('button', { type: 'button', onclick: () => this.set(axis) }, label)])
    this.element = h(
      'div',
      { class: 'segmented', role: 'group', 'aria-label': 'X axis' },
      ...this.buttons.map(([, button]) => button),
    )
  }

  render({ state, info }: ViewContext): void {
    this.hasTimes = info.time0 !== null && info.events > 0
    for (const [axis, button] of this.buttons) {
      button.disabled = axis === 'time' && !this.hasTimes
      button.title = button.disabled ? 'This snapshot was recorded without times' : 'Switch axis (T)'
      button.setAttribute('aria-pressed', String((this.hasTimes ? state.axis : 'event') === axis))
    }
  }

  toggle(): void {
    this.set(this.store.state.axis === 'event' ? 'time' : 'event')
  }

  private set(axis: 'event' | 'time'): void {
    if (axis === 'event' || this.hasTimes) this.store.set({ axis })
  }
}
