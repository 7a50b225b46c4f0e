// The panel beside reserved memory: the trace replayed under other settings of the allocator, as a table. The run that is
// chosen is drawn over the recorded curve.

import type { DeviceData, DeviceInfo } from '../../data/model'
import { maskOf } from '../../whatif/query'
import { CARDS } from '../../whatif/cards'
import type { WhatIfAnswer, WhatIfRun } from '../../whatif/job'
import { formatBytes, formatCount, formatShare } from '../../layout/format'
import { fill, h } from '../../ui/dom'
import { plural } from '../../ui/format'
import type { WhatIfRequest } from '../../worker/data-client'
import type { ViewParts } from '../view'

/** The settings that everybody tries; '' are the recorded ones. */
const STANDARD = [
  '',
  'expandable_segments:True',
  'max_split_size_mb:128',
  'max_split_size_mb:512',
  'roundup_power2_divisions:4',
  'garbage_collection_threshold:0.8',
]

export class WhatIfPanel {
  readonly element: HTMLElement
  /** Reserved bytes by position (length P) of the run that is chosen; null: none. */
  curve: Float64Array | null = null
  /** The curve is another one: draw again. */
  onChange: () => void = () => {}
  private readonly settings = h('input', {
    type: 'text',
    'aria-label': 'Settings',
    placeholder: 'max_split_size_mb:256',
    spellcheck: 'false',
  })
  private readonly without = h('input', {
    type: 'text',
    'aria-label': 'Without allocations that match',
    placeholder: 'query, e.g. func:attention',
    spellcheck: 'false',
  })
  private readonly memory = h('input', {
    type: 'number',
    min: '0.01',
    step: 'any',
    'aria-label': 'Memory for the allocator in GiB',
    placeholder: 'GiB',
  })
  private readonly run = h('button', { type: 'submit' }, 'Replay')
  private readonly stop = h('button', { type: 'button', hidden: true, onclick: () => this.cancel() }, 'Cancel')
  private readonly progress = h('progress', { max: '1', value: '0', hidden: true, 'aria-label': 'Replay' })
  private readonly words = h('p', { class: 'soft', role: 'status' })
  private readonly rows = h('tbody', {})
  private readonly table: HTMLElement
  private readonly card = h('p', { class: 'soft' })
  private device: { data: DeviceData; info: DeviceInfo } | null = null
  private request: WhatIfRequest | null = null
  private answer: WhatIfAnswer | null = null
  private chosen = ''

  constructor(private readonly parts: ViewParts) {
    const heads = ['Settings', 'Peak reserved', 'Change', 'Retries', 'Out of memory']
    this.table = h(
      'table',
      { hidden: true },
      h('thead', {}, h('tr', {}, ...heads.map((head) => h('th', { scope: 'col' }, head)))),
      this.rows,
    )
    const form = h(
      'form',
      { class: 'what-if-form' },
      h('label', {}, 'Settings ', this.settings),
      h('label', {}, 'Without ', this.without),
      h('label', {}, 'Memory ', this.memory),
      this.run,
      this.stop,
      this.progress,
    )
    form.addEventListener('submit', (event) => {
      event.preventDefault()
      void this.replay()
    })
    this.element = h(
      'aside',
      { class: 'what-if', 'aria-label': 'What if', hidden: true },
      h('h2', {}, 'What if'),
      form,
      this.words,
      this.table,
      this.card,
    )
  }

  /** Show the panel for a device; its replays begin when it is first shown. */
  show(data: DeviceData, info: DeviceInfo, without: string | null): void {
    this.element.hidden = false
    const isOther = this.device?.data !== data
    const isAsked = without !== null && without !== this.without.value
    if (without !== null) this.without.value = without
    if (!isOther && !isAsked) return
    this.device = { data, info }
    void this.replay()
  }

  hide(): void {
    this.element.hidden = true
    if (this.curve) {
      this.curve = null
      this.onChange()
    }
  }

  /** For tests. */
  debug(): unknown {
    return {
      words: this.words.textContent,
      card: this.card.textContent,
      chosen: this.chosen,
      rows: [...this.rows.children].map((row) => [...row.children].map((cell) => cell.textContent)),
      curvePeak: this.curve?.reduce((most, bytes) => Math.max(most, bytes), 0),
    }
  }

  private cancel(): void {
    this.request?.cancel()
  }

  private async replay(): Promise<void> {
    const { device, parts } = this
    if (!device) return
    this.cancel()
    const own = this.settings.value.trim()
    const settings = own && !STANDARD.includes(own) ? [...STANDARD, own] : STANDARD
    const gib = Number(this.memory.value)
    this.busy(true)
    this.words.textContent = 'Replaying the trace…'
    let request: WhatIfRequest | null = null
    try {
      const query = this.without.value.trim()
      const mask = query ? await maskOf(parts.client, device.info.index, query) : null
      const question = { settings, without: mask, memory: gib > 0 ? gib * 2 ** 30 : null, fromRecorded: false }
      request = parts.client.whatIf(device.info.index, question, (share) => {
        this.progress.value = share
      })
      this.request = request
      const answer = await request.answer
      if (this.request !== request) return
      this.answer = answer
      this.chosen = own || 'expandable_segments:True'
      this.render(query ? withoutPeak(device.data, mask!) : null)
    } catch (error) {
      if (request && this.request !== request) return
      const message = error instanceof Error ? error.message : String(error)
      this.words.textContent = /cancelled|wanted/.test(message) ? 'Cancelled.' : `${message}.`
    }
    this.busy(false)
  }

  private busy(is: boolean): void {
    this.run.disabled = is
    this.stop.hidden = this.progress.hidden = !is
    if (is) this.progress.value = 0
  }

  private render(allocated: number | null): void {
    const { answer, device } = this
    if (!answer || !device) return
    const { check, runs, startsEmpty, capacity } = answer
    this.table.hidden = this.card.hidden = !check.exact
    if (!check.exact) {
      this.words.textContent = `Not replayed: the replay under the recorded settings is not exact: ${check.reason}.`
      this.choose(null)
      return
    }
    const room = capacity === Infinity ? 'unlimited memory' : `${formatBytes(capacity)} for the allocator`
    const start = startsEmpty ? '' : ' What was live at the start is allocated first.'
    const peak = allocated === null ? '' : `Peak allocated without them: ${formatBytes(allocated)}. `
    this.words.textContent = `${peak}The same requests and frees in the same order, ${room}.${start} The replay under the recorded settings is exact: ${plural(check.allocations, 'allocation')}.`
    const base = runs[0]?.peakReserved ?? null
    fill(this.rows, ...runs.map((run) => this.row(run, base)))
    this.card.textContent = cardText(runs[0])
    this.choose(runs.find((run) => run.settings === this.chosen) ?? null)
  }

  private row(run: WhatIfRun, base: number | null): HTMLElement {
    const { peakReserved: peak, low, high, oomEvent, retries, note } = run
    const bar = low !== null && high !== null && low !== high ? `${formatBytes(low)} to ${formatBytes(high)}` : 'exact'
    const row = h(
      'tr',
      { 'aria-selected': String(run.settings === this.chosen) },
      h(
        'th',
        { scope: 'row' },
        h(
          'button',
          { type: 'button', title: 'Draw this run over the recorded curve', onclick: () => this.pick(run) },
          run.settings || 'recorded settings',
        ),
      ),
      h('td', { title: peak === null ? note : bar }, peak === null ? note || '–' : formatBytes(peak)),
      h('td', {}, changeText(peak, base, run.settings === '')),
      h('td', {}, note ? '' : formatCount(retries)),
      h('td', {}, note ? '' : oomEvent === null ? 'no' : `event ${formatCount(oomEvent)}`),
    )
    return row
  }

  private pick(run: WhatIfRun): void {
    this.chosen = this.chosen === run.settings && this.curve ? 'none' : run.settings
    this.render(null)
  }

  private choose(run: WhatIfRun | null): void {
    const { device } = this
    this.curve = run && device && run.reserved.length ? byPosition(run, device.data.P) : null
    this.onChange()
  }
}

function changeText(peak: number | null, base: number | null, isBase: boolean): string {
  if (peak === null || base === null || isBase) return ''
  if (peak === base) return 'none'
  const sign = peak < base ? '−' : '+'
  const bytes = Math.abs(peak - base)
  return `${sign}${formatBytes(bytes)} (${sign}${formatShare(bytes, base)})`
}

/** The smallest card that has more than the run reserves, on which it fits without a retry. */
function cardText(run: WhatIfRun | undefined): string {
  // A run that failed says how much memory there was, not how much it needs.
  if (!run || run.peakReserved === null || run.oomEvent !== null) return ''
  const peak = run.high ?? run.peakReserved
  const card = CARDS.find(({ usable }) => usable >= peak)
  if (!card) return 'No card in the table has that much memory.'
  return `Fits on a ${card.name} card (${card.example}) with ${formatBytes(card.usable - peak)} to spare.`
}

/** The curve of a run by position: after its last known event it stays as it is. */
function byPosition({ events, reserved }: WhatIfRun, P: number): Float64Array {
  const curve = new Float64Array(P)
  let row = 0
  for (let position = 0; position < P; position++) {
    while (row + 1 < events.length && events[row + 1] < position) row++
    curve[position] = reserved[row]
  }
  return curve
}

/** Peak allocated bytes without the allocations that match. */
function withoutPeak({ start, end, size, P }: DeviceData, mask: Uint8Array): number {
  const change = new Float64Array(P + 1)
  for (let id = 0; id < size.length; id++) {
    if (mask[id]) continue
    change[start[id]] += size[id]
    change[end[id]] -= size[id]
  }
  let now = 0
  let most = 0
  for (let position = 0; position < P; position++) {
    now += change[position]
    if (now > most) most = now
  }
  return most
}
