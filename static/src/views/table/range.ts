// The row of fields that says and sets the range of events whose sums the table shows.

import type { DeviceInfo } from '../../data/model'
import { formatCount } from '../../layout/format'
import { h, setText } from '../../ui/dom'
import { plural } from '../../ui/format'
import { RANGE, type Store } from '../../ui/state'
import { type EventRange, writeEventRange } from '../shared/range-sums'

export class RangeBar {
  readonly element: HTMLElement
  private readonly first = this.field('First event')
  private readonly last = this.field('Last event')
  private readonly words = h('span.soft')
  private readonly all: HTMLButtonElement
  private events = 0

  constructor(private readonly store: Store) {
    const all = (): void => {
      if (this.isSelected) store.setOption(RANGE, null)
      else store.set({ x: null })
    }
    this.element = h(
      'div.row.wrap.moment',
      { role: 'group', 'aria-label': 'Range of events', hidden: true },
      'Events',
      this.first,
      'to',
      this.last,
      (this.all = h('button', { onclick: all })),
      this.words,
    )
  }

  /** null: the table is of a moment. */
  render(range: EventRange | null, info: DeviceInfo): void {
    this.element.hidden = range === null
    if (!range) return
    this.events = info.events
    for (const [field, event] of [
      [this.first, range.first],
      [this.last, range.last],
    ] as const) {
      field.max = String(info.events - 1)
      if (document.activeElement !== field) field.value = String(event)
    }
    const count = range.last - range.first + 1
    setText(this.all, this.isSelected ? 'Clear' : 'All')
    this.all.title = this.isSelected ? "The timeline's window instead" : 'The whole trace'
    const which = this.isSelected ? 'the selected range' : 'the window of the timeline'
    setText(this.words, `${formatCount(count)} of ${plural(info.events, 'event')}: ${which}`)
  }

  /** Else it is the timeline's window. */
  private get isSelected(): boolean {
    return RANGE in this.store.state.options
  }

  private field(label: string): HTMLInputElement {
    const field = h('input.moment-event', { type: 'number', min: 0, step: 1, 'aria-label': label })
    field.addEventListener('change', () => this.choose())
    return field
  }

  private choose(): void {
    const [first, last] = [Number(this.first.value), Number(this.last.value)].sort((a, b) => a - b)
    if (this.isSelected) return this.store.setOption(RANGE, writeEventRange({ first, last }))
    // A window of one event is half an event wide on either side.
    this.store.set({ x: first <= 0 && last >= this.events - 1 ? null : [first - 0.5, last + 0.5] })
  }
}
