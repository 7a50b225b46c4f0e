// The moment that a view of one moment shows: a slider over the events, steps, and notable moments.

import type { DeviceInfo } from '../data/model'
import { formatBytes, formatCount } from '../layout/format'
import { describeOom } from './shared/describe'
import type { ViewContext } from './view'
import { button } from '../ui/controls'
import { h, setText } from '../ui/dom'
import type { Store } from '../ui/state'

export class MomentBar {
  readonly element: HTMLElement
  private readonly slider = h('input', { type: 'range', min: -1, step: 1, 'aria-label': 'Moment: event' })
  private readonly field = h('input.moment-event', {
    type: 'number',
    min: -1,
    step: 1,
    'aria-label': 'Moment: event number',
  })
  /** Which event: in a small window the field beside it says so. */
  private readonly place = h('span.moment-place')
  private readonly bytes = h('span')
  private readonly text = h('span.soft.moment-words', this.place, this.bytes)
  private readonly peak: HTMLButtonElement
  private readonly oom: HTMLButtonElement
  private info: DeviceInfo | null = null

  constructor(private readonly store: Store) {
    this.peak = button('Peak', 'The moment of the peak (P)', () => store.set({ at: null }))
    this.oom = button('OOM', 'The moment of the next out-of-memory error (O)', () => this.toOom())
    this.oom.classList.add('alarm')
    this.slider.addEventListener('input', () => this.goTo(Number(this.slider.value)))
    this.field.addEventListener('change', () => this.field.value !== '' && this.goTo(Number(this.field.value)))
    this.element = h(
      'div.row.wrap.moment',
      { role: 'group', 'aria-label': 'Moment' },
      button('‹', 'One event back (←)', () => this.step(-1)),
      this.slider,
      button('›', 'One event on (→)', () => this.step(1)),
      this.field,
      this.peak,
      this.oom,
      button('End', 'The end of the trace (E)', () => this.goTo(Infinity)),
      this.text,
    )
  }

  render({ state, info, data, position }: Pick<ViewContext, 'state' | 'info' | 'data' | 'position'>): void {
    this.info = info
    const event = position - 1
    this.slider.max = this.field.max = String(info.events - 1)
    this.slider.value = String(event)
    if (document.activeElement !== this.field) this.field.value = String(event)
    this.slider.setAttribute('aria-valuetext', event < 0 ? 'before the first event' : `event ${formatCount(event)}`)
    this.element.hidden = info.events === 0
    this.peak.setAttribute('aria-pressed', String(state.at === null || event === info.peak_event))
    this.oom.hidden = info.ooms.length === 0
    const here = info.ooms.find((oom) => oom.event === event)
    this.oom.setAttribute('aria-pressed', String(here !== undefined))
    this.oom.title = here
      ? `${describeOom(here)} (O: the next one)`
      : 'The next out-of-memory error, with its details (O)'
    const place = event < 0 ? 'before the first event' : `event ${formatCount(event)} of ${formatCount(info.events)}`
    setText(this.place, `${place}, `)
    setText(this.bytes, `${formatBytes(data.allocated[position])} allocated`)
  }

  /** Arrow keys, P, O and E; true when used. */
  key(event: KeyboardEvent): boolean {
    if (!this.info || this.info.events === 0) return false
    const by = event.shiftKey ? Math.max(1, Math.round(this.info.events / 100)) : 1
    switch (event.key.length === 1 ? event.key.toLowerCase() : event.key) {
      case 'ArrowLeft':
        return (this.step(-by), true)
      case 'ArrowRight':
        return (this.step(by), true)
      case 'p':
        return (this.store.set({ at: null }), true)
      case 'o':
        return (this.toOom(), true)
      case 'e':
        return (this.goTo(Infinity), true)
      default:
        return false
    }
  }

  private step(by: number): void {
    this.goTo((this.store.state.at ?? this.info?.peak_event ?? 0) + by)
  }

  private goTo(event: number): void {
    const last = (this.info?.events ?? 0) - 1
    this.store.set({ at: Math.max(-1, Math.min(last, Math.round(Math.min(event, last)))) })
  }

  private toOom(): void {
    const events = this.info?.stats.oom_events ?? []
    const { at, oom } = this.store.state
    // At a failure whose details are closed, the first press opens them.
    const here = at !== null && events.includes(at) && oom !== at ? at - 1 : (at ?? -Infinity)
    const next = events.find((event) => event > here) ?? events[0]
    if (next !== undefined) this.store.set({ at: next, oom: next })
  }
}
