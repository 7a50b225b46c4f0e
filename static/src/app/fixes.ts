// "Try a fix": remedies and settings as check boxes beside the timeline, and another batch with a slider. All of it is
// replayed together: the stack is drawn with what is left, and the allocator is replayed in the worker. Under them, the
// list of findings.

import { allocatedCurve } from '../data/device'
import type { DeviceData } from '../data/model'
import { formatBytes, formatCount } from '../layout/format'
import { evaluateQuery } from '../search/matches'
import { fill, h } from '../ui/dom'
import type { State, Store } from '../ui/state'
import { describeStack, requestAt } from '../views/shared/describe'
import type { Scene } from '../views/shared/scene'
import type { TimelineView } from '../views/timeline/timeline-view'
import { type Card, CARDS } from '../whatif/cards'
import { byPosition, type ChangeAnswer, type ChangeQuestion, STANDARD } from '../whatif/job'
import { type BatchGrowth, doubtful, peakOf, type Remedy, requestsLeft, sizesAt, sizesLeft } from '../whatif/remedies'
import type { DataClient, ReplayRequest } from '../worker/data-client'
import { type BatchPoint, drawBatchChart } from './batch-chart'

/** Options of the state: rules of the remedies and settings that are on, a query, times the recorded batch, a card. */
const [ON, SETTINGS, WITHOUT, BATCH, CARD] = ['fix.on', 'fix.settings', 'fix.without', 'fix.batch', 'fix.card']
const OPEN = 'fix.open'
/** What the slider has, times the recorded batch. */
const FACTORS = [0.125, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 2, 3, 4, 6, 8]
/** Beside the timeline where both have room, unless it was closed. */
const ROOMY = '(min-width: 1200px) and (min-height: 600px)'

/** A longer trace is replayed only on demand. */
const MANY_EVENTS = 200_000

/** A remedy that the report holds (templates/body.html.j2). */
interface Offer {
  rule: string
  device: number
  query: string
  fraction: number
  isProportional: boolean
  failedEvents: ReadonlySet<number>
  countedEvents: ReadonlySet<number>
  element: HTMLElement
}

interface Page {
  client: DataClient
  store: Store
  timeline: TimelineView
  /** Shows the timeline with an event in its middle. */
  centreOn(event: number): void
}

export class Fixes {
  readonly element: HTMLElement
  private readonly offers = offersOf()
  private readonly roomy = matchMedia(ROOMY)
  private readonly list = h('ol', { class: 'fixes' })
  private readonly settings = h('ul', { class: 'fixes' })
  private readonly result = h('output', { class: 'fix-result' })
  private readonly without = h('input', {
    type: 'text',
    'aria-label': 'Without allocations that match',
    placeholder: 'func:attention',
    spellcheck: 'false',
  })
  private readonly growth = growthOf()
  private readonly batch = h('input', { type: 'range', min: '0', max: String(FACTORS.length - 1) })
  private readonly batchText = h('output', {})
  private readonly batchLabel = h('label', {}, 'Batch ', this.batch, ' ', this.batchText)
  private readonly chart = h('figure', { class: 'batch-chart', hidden: true })
  private isChartSeen = false
  /** Whether the chips say all that they will say; they grow with it, and what stands below moves. */
  private isFitted = this.offers.length === 0
  /** What the points of the chart belong to; "" for none. */
  private charted = ''
  private points: BatchPoint[] = []
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
    this.batch.addEventListener('input', () => this.setBatch(FACTORS[this.batch.valueAsNumber]))
    this.card.addEventListener('change', () => store.setOption(CARD, this.card.value || null))
    this.roomy.addEventListener('change', () => this.render(store.state, page.timeline.currentScene))
    const close = () => store.setOption(OPEN, 'no')
    this.element = h(
      'aside',
      { class: 'side', 'aria-label': 'Try a fix', tabindex: 0, hidden: true },
      h(
        'header',
        { class: 'row' },
        h('h2', {}, 'Try a fix'),
        h('button', { type: 'button', class: 'close', 'aria-label': 'Close fixes', onclick: close }, '✕'),
      ),
      this.result,
      this.list,
      this.settings,
      this.batchLabel,
      this.chart,
      h('label', {}, 'Without ', this.without),
      h('label', {}, 'On ', this.card),
      ...findingsList(),
    )
    // Twelve replays: not before somebody looks there.
    new IntersectionObserver(([{ isIntersecting }]) => {
      this.isChartSeen = isIntersecting
      const scene = page.timeline.currentScene
      if (isIntersecting && scene && this.shown) this.renderChart(store.state, scene)
    }).observe(this.batchLabel)
  }

  /** Whether there is anything to show beside the timeline. */
  get hasContent(): boolean {
    return this.offers.length > 0 || this.element.querySelector('.side-findings') !== null
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
    this.renderChart(state, scene)
  }

  /** For tests: bytes that the choices leave, replayed. */
  debug(): unknown {
    const { answer, peak, least, points, isFitted } = this
    const busy = this.applied !== '' && answer === null
    return { busy, peak, least, answer, points, isFitted, text: this.result.textContent }
  }

  private setBatch(factor: number): void {
    this.page.store.setOption(BATCH, factor === 1 ? null : String(factor))
  }

  /** The peak at each batch of the slider, with the other choices: replayed one after the other. */
  private renderChart(state: State, scene: Scene): void {
    const { options, device } = state
    const isQuick = scene.info.events <= MANY_EVENTS
    const isWanted = this.isChartSeen && this.growth.has(device) && (isQuick || options[BATCH] !== undefined)
    const key = isWanted ? [device, options[ON], options[SETTINGS], options[WITHOUT]].join('\n') : ''
    if (key === this.charted) return this.drawChart()
    this.charted = key
    this.points = []
    this.drawChart()
    if (isWanted) this.measureBatches(key, state, scene).catch(() => {}) // a bad query is named by the result
  }

  private async measureBatches(key: string, { options, device }: State, scene: Scene): Promise<void> {
    const remedies = this.remediesOf(options, scene)
    const data = scene.data!
    const left = this.left(scene, remedies)
    const growth = this.growthIn(scene)
    await this.request?.answer
    for (const factor of FACTORS) {
      const most = atBatch(data, left, factor, growth, false)
      const least = atBatch(data, left, factor, growth, true)
      const question = { ...most, settings: options[SETTINGS] ?? '', memory: null }
      const { unlimited } = await this.page.client.change(device, question).answer
      if (this.charted !== key) return
      this.points.push({
        factor,
        least: peakWith(data, least.size, least.requests),
        allocated: peakWith(data, most.size, most.requests),
        reserved: unlimited?.peakReserved ?? null,
      })
    }
    this.drawChart()
  }

  private drawChart(): void {
    this.chart.hidden = this.points.length < FACTORS.length
    if (this.chart.hidden) return
    const factor = factorOf(this.page.store.state.options)
    drawBatchChart(this.chart, this.points, factor, (chosen) => this.setBatch(chosen))
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
      return h('li', {}, h('label', {}, input, h('span', {}, ...label)))
    }
    const here = this.offers.filter((offer) => offer.device === device)
    const focused =
      document.activeElement instanceof HTMLInputElement ? [...this.element.querySelectorAll('input')] : []
    const at = focused.indexOf(document.activeElement as HTMLInputElement)
    fill(this.list, ...here.map(({ rule, element }) => box(ON, rule, [...element.cloneNode(true).childNodes])))
    fill(this.settings, ...STANDARD.map((text) => box(SETTINGS, text, [h('code', {}, text)])))
    if (at >= 0) this.element.querySelectorAll('input')[at]?.focus()
    this.without.value = options[WITHOUT] ?? ''
    this.batchLabel.hidden = !this.growth.has(device)
    const factor = factorOf(options)
    this.batch.value = String(FACTORS.findIndex((each) => each >= factor))
    fill(this.batchText, `× ${factor}`)
    this.batch.setAttribute('aria-valuetext', `${factor} times the recorded batch`)
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
      fill(this.result, this.offers.length ? 'Choose what to change: the trace is replayed.' : null)
      return
    }
    let remedies: Remedy[]
    try {
      remedies = this.remediesOf(options, scene)
    } catch (error) {
      fill(this.result, String(error instanceof Error ? error.message : error))
      return
    }
    const left = this.left(scene, remedies)
    const factor = factorOf(options)
    const growth = factor === 1 ? null : this.growthIn(scene)
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
    const request = client.change(device, question)
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

  /** Null where nothing is known to grow with the batch. */
  private growthIn({ data, stacks, info }: Scene): BatchGrowth | null {
    const queries = this.growth.get(info.index)
    if (!queries) return null
    const [growing, unsure] = queries.map((query) => evaluateQuery(data!, stacks!, info, query).mask)
    return { growing, unsure }
  }

  private remediesOf(options: State['options'], { data, stacks, info }: Scene): Remedy[] {
    const on = (options[ON] ?? '').split(',')
    const chosen = this.offers.filter((offer) => offer.device === info.index && on.includes(offer.rule))
    const maskOf = (query: string): Uint8Array => evaluateQuery(data!, stacks!, info, query).mask
    const remedies: Remedy[] = chosen.map((offer) => ({ ...offer, mask: maskOf(offer.query) }))
    const without = options[WITHOUT]
    if (without)
      remedies.push({ mask: maskOf(without), fraction: 1, isProportional: false, failedEvents: new Set<number>() })
    return remedies
  }

  /** What remedies leave of allocations (null: all of each) and of failed requests. */
  private left({ data, info }: Scene, remedies: readonly Remedy[]): Pick<ChangeQuestion, 'size' | 'requests'> {
    const counted = this.offers.find((offer) => offer.device === info.index)?.countedEvents ?? new Set<number>()
    const size = remedies.length ? sizesLeft(data!.size, remedies) : null
    return { size, requests: requestsLeft(info.ooms, counted, remedies) }
  }

  /** Says beside the first chips' remedies whether they then fit a card. */
  async fitChips(scene: Scene): Promise<void> {
    await this.appendFits(scene).finally(() => {
      this.isFitted = true
    })
  }

  private async appendFits(scene: Scene): Promise<void> {
    const { client } = this.page
    if (scene.info.events > MANY_EVENTS || cardOf(scene.info.stats.peak_reserved_bytes) === CARDS[0]) return
    for (const chip of document.querySelectorAll<HTMLElement>('#top > .verdict > .chip[data-rule]')) {
      const { rule, device } = chip.dataset
      if (!this.offers.some((offer) => offer.rule === rule && offer.device === Number(device))) continue
      if (Number(device) !== scene.info.index || chip.querySelector('.fits')) continue
      const remedies = this.remediesOf({ [ON]: rule! }, scene)
      const question = { ...this.left(scene, remedies), settings: '', memory: null }
      const { unlimited } = await client.change(scene.info.index, question).answer
      if (!unlimited) return
      const text = ` · ${fitText(unlimited.peakReserved)}`
      ;(chip.querySelector('.remedy') ?? chip).append(h('span', { class: 'fits' }, text))
    }
  }

  private renderResult(scene: Scene, peak: number): void {
    const { answer } = this
    const data = scene.data!
    const { info } = scene
    const before = peakOf(data.allocated, this.left(scene, []).requests)
    const line = (label: string, from: number, to: string): HTMLElement =>
      h('p', {}, `${label} `, `${formatBytes(from)} → `, h('b', {}, to))
    const [least, most] = [this.least, peak].map(formatBytes)
    const range = least === most ? most : `${least} to ${most}`
    const parts: Node[] = [line('Peak allocated', before, range)]
    if (answer === null) parts.push(h('p', { class: 'soft' }, 'Replaying the allocator…'))
    else if (typeof answer === 'string') parts.push(h('p', { class: 'soft' }, `${answer}.`))
    else if (!answer.unlimited)
      parts.push(h('p', { class: 'soft' }, `Reserved memory is not replayed: ${answer.check.reason}.`))
    else {
      const { peakReserved } = answer.unlimited
      parts.push(line('Reserved', Math.max(...[info.stats.peak_reserved_bytes]), formatBytes(peakReserved)))
      const until = info.ooms.length ? ', up to the failure: what comes after it is not recorded.' : '.'
      parts.push(h('p', {}, `It ${fitText(peakReserved)}${until}`))
      if (this.page.store.state.options[BATCH]) parts.push(estimateNote())
      if (answer.failedEvent !== null) parts.push(this.failure(scene, answer))
      else if (info.ooms.length && answer.capacity !== Infinity)
        parts.push(h('p', {}, `Nothing fails with ${formatBytes(answer.capacity)} for the allocator.`))
    }
    fill(this.result, ...parts)
  }

  /** Which request fails, and where: a link to it. */
  private failure(scene: Scene, { failedEvent, capacity }: ChangeAnswer): HTMLElement {
    const room = `${formatBytes(capacity)} for the allocator`
    if (failedEvent! < 0) return h('p', { class: 'fix-fails' }, `What was live at the start needs more than ${room}.`)
    const { data, info, stacks } = scene
    const { size, stack } = requestAt(data!, failedEvent!)
    const show = (): void => {
      const oom = info.ooms.some(({ event }) => event === failedEvent) ? failedEvent : null
      this.page.store.jump({ at: failedEvent, ...(oom === null ? { stack } : { oom }) })
      this.page.centreOn(failedEvent!)
    }
    return h(
      'p',
      { class: 'fix-fails' },
      `Fails with ${room}: `,
      h('button', { type: 'button', class: 'link', onclick: show }, `event ${formatCount(failedEvent!)}`),
      ` requests ${formatBytes(size)} in `,
      h('code', {}, describeStack(stacks, stack) ?? 'no stack trace'),
    )
  }
}

function estimateNote(): HTMLElement {
  const command = h('code', {}, 'snapreport fit')
  return h('p', { class: 'soft' }, 'An estimate: ', command, ' with a recording at another batch shows what grows.')
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

function factorOf(options: State['options']): number {
  const factor = Number(options[BATCH] ?? 1)
  return factor > 0 && factor <= FACTORS[FACTORS.length - 1] ? factor : 1
}

/** Sizes (null: as recorded) and failed requests at another batch. */
function atBatch(
  data: DeviceData,
  { size, requests }: Pick<ChangeQuestion, 'size' | 'requests'>,
  factor: number,
  growth: BatchGrowth | null,
  isLeast: boolean,
): Pick<ChangeQuestion, 'size' | 'requests'> {
  if (!growth || factor === 1) return { size, requests }
  const times = doubtful(factor, isLeast)
  return {
    size: sizesAt(size ?? data.size, factor, growth, isLeast),
    requests: new Map([...requests].map(([event, bytes]) => [event, Math.round(bytes * times)])),
  }
}

function peakWith(data: DeviceData, size: Float64Array | null, requests: ReadonlyMap<number, number>): number {
  return peakOf(size ? allocatedCurve(data.start, data.end, size, data.P) : data.allocated, requests)
}

/** Device → the queries of what grows with the batch, and of what may (templates/body.html.j2). */
function growthOf(): Map<number, [string, string]> {
  const items = [...document.querySelectorAll<HTMLElement>('#growth > li')]
  return new Map(
    items.map(({ dataset: { device, growing, unsure } }) => [Number(device), [growing ?? '', unsure ?? '']]),
  )
}

function offersOf(): Offer[] {
  const numbers = (text = ''): Set<number> => new Set(text.split(' ').filter(Boolean).map(Number))
  return [...document.querySelectorAll<HTMLElement>('#remedies > li')].map((element) => {
    const { rule = '', device, query = '', fraction, proportional, failed, counted } = element.dataset
    return {
      rule,
      device: Number(device),
      query,
      fraction: Number(fraction),
      isProportional: proportional !== undefined,
      failedEvents: numbers(failed),
      countedEvents: numbers(counted),
      element,
    }
  })
}

/** The summary's findings that are no remedies, each a link to what it is about. */
function findingsList(): HTMLElement[] {
  const cards = [...document.querySelectorAll('#summary article.finding:not([data-remedy])')]
  if (cards.length === 0) return []
  const items = cards.map((card) => {
    const href = card.querySelector('a.show')?.getAttribute('href') ?? '#'
    const title = [...(card.querySelector('h3')?.cloneNode(true).childNodes ?? [])]
    return h('li', { class: card.classList[1] }, h('span', {}, ...title), ' ', h('a', { href }, 'Show it'))
  })
  return [h('h2', {}, 'Findings'), h('ol', { class: 'side-findings' }, ...items)]
}
