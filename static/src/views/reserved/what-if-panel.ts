// The panel beside reserved memory: the trace replayed under other settings of the allocator, as a table. The run that is
// chosen is drawn over the recorded curve.

import type { DeviceData, DeviceInfo } from '../../data/model'
import { peakWithout } from '../../data/held-memory'
import { formatBytes, formatCount } from '../../layout/format'
import { fill, h } from '../../ui/dom'
import { plural } from '../../ui/format'
import type { Options } from '../../ui/state'
import { CARDS } from '../../whatif/cards'
import { byPosition, OWN, STANDARD, type WhatIfAnswer, type WhatIfRun } from '../../whatif/job'
import type { Minimum } from '../../whatif/minimum'
import { maskOf, type ReplayRequest } from '../../worker/data-client'
import { describeStack, requestAt } from '../shared/describe'
import { greatestOf } from '../shared/scene'
import type { ViewParts } from '../view'
import { errorBarText, HEADS, minimumParts, nameOf, recordedRow, runRow } from './what-if-table'

/** Finding the minimum memory takes some 50 replays: for traces with this many events it is searched only on demand. */
const MANY_EVENTS = 200_000

const CHOICES = [...STANDARD, 'expandable_segments:True,garbage_collection_threshold:0.8', 'max_split_size_mb:256']

/** What the fields ask, by the option of the state that holds it. */
const FIELDS = ['reserved.whatif', 'reserved.settings', 'reserved.memory', 'reserved.start'] as const

export class WhatIfPanel {
  readonly element: HTMLElement
  /** Reserved bytes by position (length P) of the chosen run; null: none. */
  curve: Float64Array | null = null
  /** Called when the curve has changed and has to be drawn again. */
  onChange: () => void = () => {}
  private readonly settings = h('input', {
    type: 'text',
    'aria-label': 'Settings',
    placeholder: 'as recorded',
    list: 'what-if-settings',
    title: 'Choose, or write as in PYTORCH_CUDA_ALLOC_CONF',
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
  /** Fills the memory with what a card has for the allocator. */
  private readonly card = h(
    'select',
    { 'aria-label': 'Card' },
    h('option', { value: '' }, 'as recorded'),
    ...CARDS.map(({ name, example, usable }) =>
      h('option', { value: (usable / 2 ** 30).toFixed(3) }, `${name} (${example})`),
    ),
    h('option', { value: 'other' }, 'other'),
  )
  private readonly start = h(
    'select',
    { 'aria-label': 'Start of the replay' },
    h('option', { value: '' }, 'fresh'),
    h('option', { value: 'recorded' }, 'from here on'),
  )
  private readonly memoryLabel = h('label', 'Memory ', this.memory)
  private readonly startLabel = h('label', { hidden: true }, 'Start ', this.start)
  private readonly stop = h('button', { hidden: true, onclick: () => this.cancel() }, 'Cancel')
  private readonly progress = h('progress', { max: '1', value: '0', hidden: true, 'aria-label': 'Replay' })
  private readonly note = h('p.soft', { role: 'status' })
  private readonly rows = h('tbody')
  private readonly table: HTMLElement
  private readonly limits = h('div.what-if-limits.soft', { hidden: true })
  private readonly minimum = h('div.what-if-least')
  private device: { data: DeviceData; info: DeviceInfo } | null = null
  private request: ReplayRequest<unknown> | null = null
  /** Counts requests: a result that arrives after a later request is dropped. */
  private turn = 0
  private answer: WhatIfAnswer | null = null
  private minimums: readonly Minimum[] = []
  private mask: Uint8Array | null = null
  private peak: number | null = null
  private chosen = ''
  /** The question of the last replay, one value for each of `FIELDS`. */
  private asked: readonly string[] = []

  constructor(private readonly parts: ViewParts) {
    this.table = h(
      'table',
      { hidden: true },
      h('thead', h('tr', ...HEADS.map((head) => h('th', { scope: 'col' }, head)))),
      this.rows,
    )
    const form = h(
      'form.row.wrap.what-if-form',
      h('label', 'Settings ', this.settings),
      h('datalist', { id: 'what-if-settings' }, ...CHOICES.map((value) => h('option', { value }))),
      h('label', 'Without ', this.without),
      h('label', 'Card ', this.card),
      this.memoryLabel,
      this.startLabel,
      h('button', { type: 'submit' }, 'Replay'),
      this.stop,
      this.progress,
    )
    this.card.addEventListener('change', () => {
      this.memory.value = this.card.value === 'other' ? '' : this.card.value
      this.showCard()
      if (this.card.value === 'other') this.memory.focus()
      else this.ask()
    })
    form.addEventListener('submit', (event) => {
      event.preventDefault()
      this.ask()
    })
    this.element = h(
      'aside.what-if',
      { 'aria-label': 'What if', hidden: true },
      h('h2', 'What if'),
      form,
      this.note,
      this.table,
      this.limits,
      this.minimum,
    )
  }

  /** Show the panel for a device; its replays begin when it is first shown, and anew where the state asks something else. */
  show(data: DeviceData, info: DeviceInfo, options: Options): void {
    this.element.hidden = false
    const question = FIELDS.map((name) => options[name] ?? '')
    if (this.device?.data === data && question.join('\n') === this.asked.join('\n')) return
    this.asked = question
    for (const [i, field] of this.fields.entries()) field.value = question[i]
    this.showCard()
    this.device = { data, info }
    this.startLabel.hidden = data.reserved[0] === 0
    void this.replay()
  }

  /** The card that has the memory in the field, which is hidden where a card says it. */
  private showCard(): void {
    const { card, memory, memoryLabel } = this
    const values = [...card.options].map(({ value }) => value)
    if (memory.value !== '' || card.value !== 'other')
      card.value = values.includes(memory.value) ? memory.value : 'other'
    memoryLabel.hidden = card.value !== 'other'
  }

  private get fields(): (HTMLInputElement | HTMLSelectElement)[] {
    return [this.without, this.settings, this.memory, this.start]
  }

  /** Replays what is in the fields, which the address holds from then on. */
  private ask(): void {
    const { store } = this.parts
    this.asked = this.fields.map((field) => field.value.trim())
    const options = { ...store.state.options }
    FIELDS.forEach((name, i) => {
      options[name] = this.asked[i]
      if (i > 0 && this.asked[i] === '') delete options[name]
    })
    store.set({ options })
    void this.replay()
  }

  hide(): void {
    this.element.hidden = true
    this.choose(null)
  }

  /** For tests. */
  debug(): unknown {
    return {
      words: this.note.textContent,
      limits: this.limits.textContent,
      least: this.minimum.textContent,
      minimums: this.minimums,
      chosen: this.chosen,
      busy: !this.stop.hidden,
      rows: [...this.rows.children].map((row) => [...row.children].map((cell) => cell.textContent)),
      curvePeak: this.curve && greatestOf(this.curve),
    }
  }

  private cancel(): void {
    this.turn++
    this.request?.cancel()
    this.request = null
    this.busy(false)
    this.note.textContent = 'Cancelled.'
  }

  private async replay(): Promise<void> {
    const { device, parts } = this
    if (!device) return
    this.cancel()
    const { turn } = this
    const own = this.settings.value.trim()
    const settings = own && !STANDARD.includes(own) ? [...STANDARD, own] : STANDARD
    const gib = Number(this.memory.value)
    const fromRecorded = !this.startLabel.hidden && this.start.value !== ''
    this.busy(true)
    this.note.textContent = 'Replaying the trace…'
    fill(this.minimum)
    try {
      const query = this.without.value.trim()
      const mask = query ? await maskOf(parts.client, device.info.index, query) : null
      if (turn !== this.turn) return
      this.mask = mask
      this.peak = mask?.includes(1) ? peakWithout(device.data, mask) : null
      if (mask) this.note.textContent = `${this.peakWords()}Replaying the trace…`
      const question = { settings, without: mask, memory: gib > 0 ? gib * 2 ** 30 : null, fromRecorded }
      const request = parts.client.replayed('whatIf', device.info.index, question, this.onProgress)
      this.request = request
      const answer = await request.answer
      if (turn !== this.turn) return
      this.answer = answer
      const first = own || (answer.check.settings.expandable ? OWN : STANDARD[0])
      this.chosen = nameOf({ settings: first, without: mask !== null })
      this.render()
      this.busy(false)
      if (!answer.check.exact) return
      if (device.info.events <= MANY_EVENTS) await this.searchMinimum()
      else fill(this.minimum, this.searchButton())
    } catch (error) {
      this.failed(turn, error)
    }
  }

  private readonly onProgress = (share: number): void => {
    this.progress.value = share
  }

  private searchButton(): HTMLElement {
    const search = () => void this.searchMinimum()
    return h('button', { onclick: search }, 'Search the minimum memory')
  }

  /** The minimum memory for the settings in the field, on devices of any size. */
  private async searchMinimum(): Promise<void> {
    const { device, parts, turn } = this
    if (!device) return
    this.busy(true)
    fill(this.minimum, 'Searching the minimum memory…')
    try {
      const question = {
        settings: this.settings.value.trim(),
        without: this.mask,
        peakAllocated: this.peak ?? device.info.peak_bytes,
      }
      const request = parts.client.replayed('leastMemory', device.info.index, question, this.onProgress)
      this.request = request
      const found = await request.answer
      if (turn !== this.turn) return
      this.minimums = found
      fill(this.minimum, ...minimumParts(found))
      this.busy(false)
    } catch (error) {
      if (turn === this.turn) fill(this.minimum)
      this.failed(turn, error)
    }
  }

  private failed(turn: number, error: unknown): void {
    if (turn !== this.turn) return
    this.note.textContent = `${error instanceof Error ? error.message : String(error)}.`
    this.busy(false)
  }

  private busy(is: boolean): void {
    this.stop.hidden = this.progress.hidden = !is
    if (is) this.progress.value = 0
  }

  private peakWords(): string {
    if (this.mask && this.peak === null) return 'No allocation matches the query, so nothing is left out. '
    return this.peak === null ? '' : `Peak allocated without them: ${formatBytes(this.peak)}. `
  }

  private render(): void {
    const { answer, device } = this
    if (!answer || !device) return
    const { check, runs, capacity, limits, placements, residual } = answer
    this.table.hidden = this.limits.hidden = !check.exact
    if (!check.exact) {
      this.note.textContent = `Not replayed: the replay under the recorded settings is not exact: ${check.reason}.`
      this.choose(null)
      return
    }
    const room = capacity === Infinity ? 'unlimited memory' : `${formatBytes(capacity)} for the allocator`
    const counts = `${plural(check.allocations, 'allocation')}, ${plural(check.segmentEvents, 'segment event')}`
    this.note.textContent = `${this.peakWords()}The same requests and frees, in the same order, on a device with ${room}. Self-check: the replay under the recorded settings is exact (${counts}).`
    fill(this.limits, ...limits.map((text) => h('p', text)), h('p', errorBarText(placements, residual)))
    this.renderRows()
    this.choose(runs.find((run) => nameOf(run) === this.chosen) ?? null)
  }

  private renderRows(): void {
    const runs = this.answer?.runs ?? []
    const base = runs[0]?.peakReserved ?? null
    if (!this.device) return
    const { data, info } = this.device
    const recorded = recordedRow(greatestOf(data.reserved), info.ooms[0]?.event ?? null)
    fill(
      this.rows,
      recorded,
      ...runs.map((run) =>
        runRow(
          run,
          base,
          nameOf(run) === this.chosen,
          () => this.pick(run),
          (event) => this.failure(data, event),
        ),
      ),
    )
  }

  /** A link to the request that fails, on the timeline. */
  private failure(data: DeviceData, event: number): HTMLElement {
    const { client, store } = this.parts
    const { size, stack } = requestAt(data, event)
    const show = (): void => {
      const oom = data.info.ooms.some((one) => one.event === event) ? event : null
      store.jump({ view: 'timeline', at: event, ...(oom === null ? { stack } : { oom }) })
      this.parts.centreOn(event)
    }
    const button = h('button.link', { onclick: show }, `event ${formatCount(event)}`)
    void client.stacks().then((stacks) => {
      button.title = `${formatBytes(size)} requested in ${describeStack(stacks, stack) ?? 'no stack trace'}`
    })
    return button
  }

  private pick(run: WhatIfRun): void {
    const name = nameOf(run)
    const isDrawn = this.chosen === name && this.curve !== null
    this.chosen = isDrawn ? '' : name
    this.renderRows()
    this.choose(isDrawn ? null : run)
  }

  private choose(run: WhatIfRun | null): void {
    const { device, curve } = this
    this.curve = run && device && run.reserved.length ? byPosition(run, device.data.P) : null
    if (curve || this.curve) this.onChange()
  }
}
