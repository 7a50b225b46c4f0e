// Controls of several views: events or time to the right, matches only, and what a peak would be without some allocations.

import type { Axis, DeviceData, DeviceInfo, Stacks } from '../../data/model'
import { peakWithout } from '../../data/held-memory'
import { formatBytes } from '../../layout/format'
import { evaluateQuery } from '../../search/matches'
import { button, Segmented } from '../../ui/controls'
import { fill, h } from '../../ui/dom'
import type { State, Store } from '../../ui/state'
import { Memo } from '../memo'

export class AxisSwitch {
  private hasTimes = false
  private readonly axes = new Segmented<Axis>(
    'X axis',
    [
      ['event', 'Events'],
      ['time', 'Time'],
    ],
    (axis) => this.set(axis),
  )
  readonly element = this.axes.element

  constructor(private readonly store: Store) {}

  render({ axis }: State, info: DeviceInfo | undefined): void {
    this.hasTimes = info !== undefined && info.time0 !== null && info.events > 0
    for (const [each, button] of this.axes.buttons) {
      button.disabled = each === 'time' && !this.hasTimes
      button.title = button.disabled ? 'This snapshot was recorded without times' : 'Switch axis (T)'
    }
    this.axes.show(this.hasTimes ? axis : 'event')
  }

  toggle(): void {
    this.set(this.store.state.axis === 'event' ? 'time' : 'event')
  }

  private set(axis: Axis): void {
    if (axis === 'event' || this.hasTimes) this.store.set({ axis })
  }
}

export class MatchesOnly {
  readonly element: HTMLElement
  private readonly box = h('input', { type: 'checkbox' })

  constructor(onChange: (isOn: boolean) => void) {
    this.element = h('label.switch', { title: 'Show only what matches the query' }, this.box, 'Matches only')
    this.box.addEventListener('change', () => onChange(this.box.checked))
  }

  /** null: there is no query. */
  render(isOn: boolean | null): void {
    this.element.hidden = isOn === null
    this.box.checked = isOn === true
  }
}

export class WithoutButton {
  readonly element = h('span.without', { hidden: true })
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
    fill(this.element, button(label, 'Replay the trace without these allocations', replay), ' ', h('span.soft', words))
  }
}

function peakWords(info: DeviceInfo, data: DeviceData, stacks: Stacks, query: string): string {
  const peak = peakWithout(data, evaluateQuery(data, stacks, info, query).mask)
  const saved = info.peak_bytes - peak
  if (saved <= 0) return `peak allocated stays ${formatBytes(info.peak_bytes)}`
  return `peak allocated ${formatBytes(peak)} (−${formatBytes(saved)})`
}
