// Events or time to the right, for views that are not the timeline.

import type { DeviceData, DeviceInfo, Stacks } from '../../data/model'
import { peakWithout } from '../../data/held-memory'
import { formatBytes } from '../../layout/format'
import { evaluateQuery } from '../../search/matches'
import { fill, h } from '../../ui/dom'
import type { Store } from '../../ui/state'
import { Memo } from '../memo'
import type { ViewContext } from '../view'

export class AxisSwitch {
  readonly element: HTMLElement
  private readonly buttons: ['event' | 'time', HTMLButtonElement][]
  private hasTimes = false

  constructor(private readonly store: Store) {
    this.buttons = (
      [
        ['event', 'Events'],
        ['time', 'Time'],
      ] as const
    ).map(([axis, label]) => [axis, h('button', { onclick: () => this.set(axis) }, label)])
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

export class MatchesOnly {
  readonly element: HTMLElement
  private readonly box = h('input', { type: 'checkbox' })

  constructor(onChange: (isOn: boolean) => void) {
    this.element = h('label', { class: 'switch', title: 'Show only what matches the query' }, this.box, 'Matches only')
    this.box.addEventListener('change', () => onChange(this.box.checked))
  }

  /** null: there is no query. */
  render(isOn: boolean | null): void {
    this.element.hidden = isOn === null
    this.box.checked = isOn === true
  }
}

export class WithoutButton {
  readonly element = h('span', { class: 'without', hidden: true })
  private readonly text = new Memo<string>()

  constructor(private readonly store: Store) {}

  /** `query` names the allocations, `label` what they are; null: nothing is chosen. */
  render(query: string | null, label: string, info: DeviceInfo, data: DeviceData, stacks: Stacks): void {
    const isShown = query !== null && query !== '' && data.n > 0
    this.element.hidden = !isShown
    if (!isShown) return
    const words = this.text.get([query, data], () => peakWords(info, data, stacks, query))
    const replay = () =>
      this.store.set({ view: 'reserved', options: { ...this.store.state.options, 'reserved.whatif': query } })
    fill(
      this.element,
      h('button', { title: 'Replay the trace without these allocations', onclick: replay }, label),
      ' ',
      h('span', { class: 'soft' }, words),
    )
  }
}

function peakWords(info: DeviceInfo, data: DeviceData, stacks: Stacks, query: string): string {
  const peak = peakWithout(data, evaluateQuery(data, stacks, info, query).mask)
  const saved = info.peak_bytes - peak
  if (saved <= 0) return `peak allocated stays ${formatBytes(info.peak_bytes)}`
  return `peak allocated ${formatBytes(peak)} (−${formatBytes(saved)})`
}
