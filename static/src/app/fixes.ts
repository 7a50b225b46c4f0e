// "Try a fix": remedies and settings as check boxes beside the timeline, and another batch with a slider. All of it is
// replayed together: the stack is drawn with what is left, and the allocator is replayed in the worker. Under them, the
// list of findings.

import { formatBytes, formatCount } from '../layout/format'
import { fill, h } from '../ui/dom'
import { capital } from '../ui/format'
import type { State } from '../ui/state'
import { describeStack, requestAt } from '../views/shared/describe'
import { peakName, type Scene } from '../views/shared/scene'
import { type Card, CARDS } from '../whatif/cards'
import { byPosition, type ChangeAnswer, STANDARD } from '../whatif/job'
import { peakOf, type Remedy } from '../whatif/remedies'
import type { ReplayRequest } from '../worker/data-client'
import { BatchSlider, factorOf, MANY_EVENTS } from './batch-slider'
import { atBatch, BATCH, CARD, FixOffers, type Offer, ON, peakWith, SETTINGS, WITHOUT } from './fix-offers'
import type { Page } from './page'

const OPEN = 'fix.open'
/** Beside the timeline where both have room, unless it was closed. */
const ROOMY = '(min-width: 1200px) and (min-height: 600px)'

export class Fixes {
  readonly element: HTMLElement
  private readonly offers = new FixOffers()
  private readonly roomy = matchMedia(ROOMY)
  private readonly list = h('ol.fixes')
  private readonly settings = h('ul.fixes')
  private readonly result = h('output.fix-result')
  private readonly without = h('input', {
    type: 'text',
    'aria-label': 'Without allocations that match',
    placeholder: 'func:attention',
    spellcheck: 'false',
  })
  private readonly batch: BatchSlider
  /** Where the first chips say which card a remedy fits. */
  private readonly places: { place: HTMLElement; offer: Offer }[]
  /** Whether the chips say all that they will say. */
  private isFitted = this.offers.list.length === 0
  private readonly card = h(
    'select',
    { 'aria-label': 'Card' },
    h('option', { value: '' }, 'the recorded device'),
    ...CARDS.map(({ name, example }) => h('option', { value: name }, `${name} (${example})`)),
  )
  private shown = ''
  private applied = ''
  private request: ReplayRequest<ChangeAnswer> | null = null
  /** The last answer and the question it belongs to. */
  private answer: ChangeAnswer | string | null = null
  private peak = 0
  /** The peak if what may grow with the batch does not, or shrinks. */
  private least = 0

  constructor(private readonly page: Page) {
    const { store } = page
    this.without.addEventListener('change', () => store.setOption(WITHOUT, this.without.value.trim() || null))
    this.batch = new BatchSlider(page, this.offers, () => this.request?.answer)
    this.card.addEventListener('change', () => store.setOption(CARD, this.card.value || null))
    this.roomy.addEventListener('change', () => this.render(store.state, page.timeline.currentScene))
    const close = () => store.setOption(OPEN, 'no')
    this.element = h(
      'aside.side',
      { 'aria-label': 'Try a fix', tabindex: 0, hidden: true },
      h('header.row', h('h2', 'Try a fix'), h('button.close', { 'aria-label': 'Close fixes', onclick: close }, '✕')),
      this.result,
      this.list,
      this.settings,
      this.batch.label,
      this.batch.note,
      this.batch.chart,
      h('label', 'Without ', this.without),
      h('label', 'On ', this.card),
      ...findingsList(),
    )
    this.places = this.appendPlaces()
  }

  /** Whether there is anything to show beside the timeline. */
  get hasContent(): boolean {
    return this.offers.list.length > 0 || this.element.querySelector('.side-findings') !== null
  }

  toggle(): void {
    const { store } = this.page
    store.setOption(OPEN, this.isOpen(store.state) ? 'no' : 'yes')
  }

  isOpen({ options, view }: State): boolean {
    const choice = options[OPEN]
    return view === 'timeline' && (choice === 'yes' || (choice !== 'no' && this.roomy.matches && this.hasContent))
  }

  render(state: State, scene: Scene | null): void {
    this.element.hidden = !this.isOpen(state)
    const isHere = scene?.info.index === state.device && scene.data !== null && scene.stacks !== null
    if (!isHere) return
    const question = [ON, SETTINGS, WITHOUT, BATCH, CARD].map((name) => state.options[name] ?? '')
    const key = `${state.device}\n${question.join('\n')}`
    if (key === this.shown) return
    this.shown = key
    this.renderChoices(state)
    this.apply(state, scene)
    this.batch.render(state, scene)
  }

  /** For tests: bytes that the choices leave, replayed. */
  debug(): unknown {
    const { answer, peak, least, isFitted } = this
    const { points } = this.batch
    const busy = this.applied !== '' && answer === null
    return { busy, peak, least, answer, points, isFitted, text: this.result.textContent }
  }

  private renderChoices({ device, options }: State): void {
    const box = (name: string, value: string, label: (Node | string)[]): HTMLElement => {
      const chosen = new Set((options[name] ?? '').split(',').filter(Boolean))
      const input = h('input', { type: 'checkbox', checked: chosen.has(value) })
      input.addEventListener('change', () => {
        if (input.checked) chosen.add(value)
        else chosen.delete(value)
        this.page.store.setOption(name, [...chosen].join(',') || null)
      })
      return h('li', h('label', input, h('span', ...label)))
    }
    const here = this.offers.of(device)
    const focused =
      document.activeElement instanceof HTMLInputElement ? [...this.element.querySelectorAll('input')] : []
    const at = focused.indexOf(document.activeElement as HTMLInputElement)
    fill(this.list, ...here.map(({ rule, element }) => box(ON, rule, [...element.cloneNode(true).childNodes])))
    fill(this.settings, ...STANDARD.map((text) => box(SETTINGS, text, [h('code', text)])))
    if (at >= 0) this.element.querySelectorAll('input')[at]?.focus()
    this.without.value = options[WITHOUT] ?? ''
    this.card.value = options[CARD] ?? ''
  }

  /** Draws the stack with what the choices leave, and has the allocator replayed. */
  private apply(state: State, scene: Scene): void {
    const { client, timeline } = this.page
    const data = scene.data!
    const { options, device } = state
    this.request?.cancel()
    this.request = null
    this.answer = null
    const isOn = [ON, SETTINGS, WITHOUT, BATCH, CARD].some((name) => options[name])
    this.applied = isOn ? this.shown : ''
    if (!isOn) {
      timeline.setSizes(null, null, null)
      this.renderRecorded(scene)
      return
    }
    let remedies: Remedy[]
    try {
      remedies = this.offers.remedies(options, scene)
    } catch (error) {
      fill(this.result, String(error instanceof Error ? error.message : error))
      return
    }
    const left = this.offers.left(scene, remedies)
    const factor = factorOf(options)
    const growth = factor === 1 ? null : this.offers.growthIn(scene)
    const { size, requests } = atBatch(data, left, factor, growth, false)
    timeline.setSizes(size ?? data.size, null, requests)
    const peak = peakWith(data, size, requests)
    const low = atBatch(data, left, factor, growth, true)
    this.peak = peak
    this.least = growth ? peakWith(data, low.size, low.requests) : peak
    this.renderResult(scene, peak)
    const usable = CARDS.find(({ name }) => name === options[CARD])?.usable ?? null
    const question = { settings: options[SETTINGS] ?? '', size, requests, memory: usable }
    const { applied } = this
    const request = client.replayed('change', device, question)
    this.request = request
    request.answer.then(
      (answer) => {
        if (this.applied !== applied) return
        this.answer = answer
        const reserved = answer.unlimited && byPosition(answer.unlimited, data.P)
        timeline.setSizes(size ?? data.size, reserved, requests)
        this.renderResult(scene, peak)
      },
      (error: unknown) => {
        if (this.applied !== applied) return
        this.answer = error instanceof Error ? error.message : String(error)
        this.renderResult(scene, peak)
      },
    )
  }

  /** Says beside the first chips' remedies whether they then fit a card. */
  async fitChips(scene: Scene): Promise<void> {
    await this.appendFits(scene).finally(() => {
      this.isFitted = true
    })
  }

  /** As large as what they will say, so that the page does not move when that is replayed. */
  private appendPlaces(): Fixes['places'] {
    const chips = document.querySelectorAll<HTMLElement>('#top > .verdict > .chip[data-rule]')
    return [...chips].flatMap((chip) => {
      const { rule, device } = chip.dataset
      const offer = this.offers.of(Number(device)).find((one) => one.rule === rule)
      const info = this.page.client.devices[Number(device)]
      const isSaid = info && info.events <= MANY_EVENTS && cardOf(info.stats.peak_reserved_bytes) !== CARDS[0]
      if (!offer || !isSaid) return []
      const place = h('span.fits')
      ;(chip.querySelector('.remedy') ?? chip).append(place)
      return [{ place, offer }]
    })
  }

  private async appendFits(scene: Scene): Promise<void> {
    for (const { place, offer } of this.places) {
      if (offer.device !== scene.info.index || place.textContent) continue
      const remedies = this.offers.remedies({ [ON]: offer.rule }, scene)
      const question = { ...this.offers.left(scene, remedies), settings: '', memory: null }
      const { unlimited } = await this.page.client.replayed('change', scene.info.index, question).answer
      if (!unlimited) return
      // It ran with less, releasing cached memory whenever the device was full: this says nothing of what it needs.
      if (unlimited.peakReserved > scene.info.stats.peak_reserved_bytes) continue
      place.textContent = ` · ${fitText(unlimited.peakReserved)}`
    }
  }

  private peakBefore(scene: Scene): number {
    return peakOf(scene.data!.allocated, this.offers.left(scene, []).requests)
  }

  /** With the request that failed, as in the first chips. */
  private peakName(scene: Scene): string {
    if (this.peakBefore(scene) > scene.info.stats.peak_allocated_bytes) return 'Needed at the failure'
    return capital(peakName(scene.info))
  }

  private renderRecorded(scene: Scene): void {
    const line = (label: string, bytes: number) => h('p', `${label} `, h('b', formatBytes(bytes)))
    const hint = h('p.soft', 'Choose what to change: the trace is replayed.')
    const reserved = line('Peak reserved', scene.info.stats.peak_reserved_bytes)
    fill(this.result, line(this.peakName(scene), this.peakBefore(scene)), reserved, hint)
  }

  private renderResult(scene: Scene, peak: number): void {
    const { answer } = this
    const { info } = scene
    const before = this.peakBefore(scene)
    const line = (label: string, from: number, to: string): HTMLElement =>
      h('p', `${label} `, `${formatBytes(from)} → `, h('b', to))
    const [least, most] = [this.least, peak].map(formatBytes)
    const range = least === most ? most : `${least} to ${most}`
    const parts: Node[] = [line(this.peakName(scene), before, range)]
    if (answer === null) parts.push(h('p.soft', 'Replaying the allocator…'))
    else if (typeof answer === 'string') parts.push(h('p.soft', `${answer}.`))
    else if (!answer.unlimited) parts.push(h('p.soft', `Reserved memory is not replayed: ${answer.check.reason}.`))
    else {
      const { peakReserved } = answer.unlimited
      parts.push(line('Peak reserved', info.stats.peak_reserved_bytes, formatBytes(peakReserved)))
      const until = info.ooms.length ? ', up to the failure: what comes after it is not recorded' : ''
      const cached = peakReserved > info.stats.peak_reserved_bytes ? ' without releasing cached segments' : ''
      parts.push(h('p', `It ${fitText(peakReserved)}${cached}${until}.`))
      if (answer.failedEvent !== null) parts.push(this.failure(scene, answer))
      else if (info.ooms.length && answer.capacity !== Infinity)
        parts.push(h('p', `Nothing fails with ${formatBytes(answer.capacity)} for the allocator.`))
    }
    fill(this.result, ...parts)
  }

  /** Which request fails, and where: a link to it. */
  private failure(scene: Scene, { failedEvent, capacity }: ChangeAnswer): HTMLElement {
    const room = `${formatBytes(capacity)} for the allocator`
    if (failedEvent! < 0) return h('p.fix-fails', `What was live at the start needs more than ${room}.`)
    const { data, info, stacks } = scene
    const { size, stack } = requestAt(data!, failedEvent!)
    const show = (): void => {
      const oom = info.ooms.some(({ event }) => event === failedEvent) ? failedEvent : null
      this.page.store.jump({ at: failedEvent, ...(oom === null ? { stack } : { oom }) })
      this.page.centreOn(failedEvent!)
    }
    return h(
      'p.fix-fails',
      `Fails with ${room}: `,
      h('button.link', { onclick: show }, `event ${formatCount(failedEvent!)}`),
      ` requests ${formatBytes(size)} in `,
      h('code', describeStack(stacks, stack) ?? 'no stack trace'),
    )
  }
}

/** "fits 24 GB with 1.2 GiB to spare" */
function fitText(reserved: number): string {
  const card = cardOf(reserved)
  if (!card) return `fits no card up to ${CARDS[CARDS.length - 1].name}`
  return `fits ${card.name} with ${formatBytes(card.usable - reserved)} to spare`
}

/** The smallest card with so much for the allocator. */
function cardOf(reserved: number): Card | undefined {
  return CARDS.find(({ usable }) => usable >= reserved)
}

/** The summary's findings that are no remedies, each a link to what it is about. */
function findingsList(): HTMLElement[] {
  const cards = [...document.querySelectorAll('#summary article.finding:not([data-remedy])')]
  if (cards.length === 0) return []
  const items = cards.map((card) => {
    const href = card.querySelector('a.show')?.getAttribute('href') ?? '#'
    const title = [...(card.querySelector('h3')?.cloneNode(true).childNodes ?? [])]
    return h('li', { class: card.classList[1] }, h('span', ...title), ' ', h('a', { href }, 'Show it'))
  })
  return [h('h2', 'Findings'), h('ol.side-findings', ...items)]
}
