// The slider of the batch, and the chart of the peak over it: one replay for each of its values.

import { fill, h } from '../ui/dom'
import type { State } from '../ui/state'
import type { Scene } from '../views/shared/scene'
import { type BatchPoint, drawBatchChart, drawPendingChart } from './batch-chart'
import { atBatch, BATCH, type FixOffers, ON, peakWith, SETTINGS, WITHOUT } from './fix-offers'
import type { Page } from './page'

/** What the slider has, times the recorded batch. */
const FACTORS = [0.125, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 2, 3, 4, 6, 8]
/** A longer trace is replayed only on demand. */
export const MANY_EVENTS = 200_000

export class BatchSlider {
  private readonly input = h('input', { type: 'range', min: '0', max: String(FACTORS.length - 1) })
  private readonly text = h('output')
  readonly label = h('label', 'Batch ', this.input, ' ', this.text)
  readonly note = h(
    'p.soft',
    'An estimate: ',
    h('code', 'snapreport fit'),
    ' with a recording at another batch shows what grows.',
  )
  readonly chart = h('figure.batch-chart', { hidden: true })
  points: BatchPoint[] = []
  private isSeen = false
  /** What the points of the chart belong to; "" for none. */
  private charted = ''

  constructor(
    private readonly page: Page,
    private readonly offers: FixOffers,
    /** What is replayed first. */
    private readonly pending: () => Promise<unknown> | undefined,
  ) {
    this.input.addEventListener('input', () => this.choose(FACTORS[this.input.valueAsNumber]))
    // Twelve replays: not before somebody looks there.
    new IntersectionObserver(([{ isIntersecting }]) => {
      this.isSeen = isIntersecting
      const scene = page.timeline.currentScene
      if (isIntersecting && scene) this.render(page.store.state, scene)
    }).observe(this.label)
  }

  render(state: State, scene: Scene): void {
    const { options, device } = state
    const isHere = scene.info.index === device && scene.data !== null && scene.stacks !== null
    if (!isHere) return
    this.label.hidden = this.note.hidden = !this.offers.hasBatch(device)
    const factor = factorOf(options)
    this.input.value = String(FACTORS.findIndex((each) => each >= factor))
    fill(this.text, `× ${factor}`)
    this.input.setAttribute('aria-valuetext', `${factor} times the recorded batch`)
    this.renderChart(state, scene)
  }

  private choose(factor: number): void {
    this.page.store.setOption(BATCH, factor === 1 ? null : String(factor))
  }

  /** The peak at each batch of the slider, with the other choices: replayed one after the other. */
  private renderChart(state: State, scene: Scene): void {
    const { options, device } = state
    const isQuick = scene.info.events <= MANY_EVENTS
    this.chart.hidden = !this.offers.hasBatch(device) || !(isQuick || options[BATCH] !== undefined)
    const isWanted = this.isSeen && !this.chart.hidden
    const key = isWanted ? [device, options[ON], options[SETTINGS], options[WITHOUT]].join('\n') : ''
    if (key === this.charted) return this.drawChart()
    this.charted = key
    this.points = []
    this.drawChart()
    if (isWanted) this.measure(key, state, scene).catch(() => {}) // a bad query is named by the result
  }

  private async measure(key: string, { options, device }: State, scene: Scene): Promise<void> {
    const remedies = this.offers.remedies(options, scene)
    const data = scene.data!
    const left = this.offers.left(scene, remedies)
    const growth = this.offers.growthIn(scene)
    await this.pending()
    for (const factor of FACTORS) {
      const most = atBatch(data, left, factor, growth, false)
      const least = atBatch(data, left, factor, growth, true)
      const question = { ...most, settings: options[SETTINGS] ?? '', memory: null }
      const { unlimited } = await this.page.client.replayed('change', device, question).answer
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
    if (this.points.length < FACTORS.length) return drawPendingChart(this.chart)
    const factor = factorOf(this.page.store.state.options)
    const failed = this.page.timeline.currentScene?.info.ooms.length
    const fits = `What fits${failed ? ' up to the failure' : ''}`
    drawBatchChart(this.chart, this.points, factor, fits, (chosen) => this.choose(chosen))
  }
}

/** Times the recorded batch. */
export function factorOf(options: State['options']): number {
  const factor = Number(options[BATCH] ?? 1)
  return factor > 0 && factor <= FACTORS[FACTORS.length - 1] ? factor : 1
}
