// The button that replays the trace without some allocations, and beside it the peak without them.

import type { DeviceData, DeviceInfo, Stacks } from '../../data/model'
import { peakWithout } from '../../data/peak-without'
import { formatBytes } from '../../layout/format'
import { evaluateQuery } from '../../search/matches'
import { fill, h } from '../../ui/dom'
import type { Store } from '../../ui/state'
import { Memo } from '../memo'

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
      h('button', { type: 'button', title: 'Replay the trace without these allocations', onclick: replay }, label),
      ' ',
      h('span', { class: 'soft' }, words),
    )
  }
}

function peakWords(info: DeviceInfo, data: DeviceData, stacks: Stacks, query: string): string {
  const peak = peakWithout(data, evaluateQuery(data, stacks, info, query).mask)
  const saved = info.peakBytes - peak
  if (saved <= 0) return `peak allocated stays ${formatBytes(info.peakBytes)}`
  return `peak allocated ${formatBytes(peak)} (−${formatBytes(saved)})`
}
