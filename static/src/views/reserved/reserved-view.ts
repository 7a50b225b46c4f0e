// Reserved memory over events: its segments, and how much of it is allocated, lost to rounding, split or wholly free.

import { partsAt, type Worst, worstMoments } from '../../allocator/curves'
import type { Replay } from '../../allocator/replay'
import type { DeviceData } from '../../data/model'
import { formatBytes } from '../../layout/format'
import { scrollsWhenSmall } from '../../ui/compact'
import { NO_SEGMENTS } from '../../ui/devices'
import { h } from '../../ui/dom'
import { Memo } from '../memo'
import { MomentBar } from '../moment'
import { showFigures } from '../shared/figures'
import { type Groups, groupsOf } from '../shared/groups'
import { type Inks, readInks } from '../shared/inks'
import type { View, ViewContext, ViewParts } from '../view'
import { ReservedChart } from './chart'
import type { ChartChoice, ChartMark } from './chart-layout'
import { type DeviceUse, deviceUseOf } from './device-use'
import { doubtsOf } from './doubts'
import { ReservedLegend } from './legend'
import { figuresOf, largestFigure, momentName } from './reserved-text'
import { ReservedTools } from './reserved-tools'
import { WhatIfPanel } from './what-if-panel'

/** Curves of more positions than this are not copied out for tests. */
const MOST_COPIED = 100_000

interface Prepared {
  replay: Replay | null
  groups: Groups | null
  use: DeviceUse | null
  moments: Worst
  isEmpty: boolean
  doubts: string[]
}

export class ReservedView implements View {
  readonly element: HTMLElement
  readonly tools: HTMLElement
  readonly needsReplay = true
  private readonly moment: MomentBar
  private readonly chart: ReservedChart
  private readonly toolbar: ReservedTools
  private readonly whatIf: WhatIfPanel
  private readonly note = h('p.segments-change.soft.clip', { role: 'status' })
  private readonly doubts = h('p.segments-doubts.warn', { hidden: true })
  private readonly figures = scrollsWhenSmall(h('dl.figures'))
  private readonly legend = new ReservedLegend()
  private readonly nothing = h('p.nothing-here', { hidden: true })
  private readonly body: HTMLElement
  private shown: { context: ViewContext; replay: Replay | null; moments: Worst } | null = null
  private readonly prepared = new Memo<Prepared>()
  private readonly inks = new Memo<Inks>()
  private largest: { data: DeviceData; bytes: Float64Array | null; pending: Promise<void> } | null = null

  constructor(private readonly parts: ViewParts) {
    const { store } = parts
    this.moment = new MomentBar(store)
    this.chart = new ReservedChart(parts)
    this.whatIf = new WhatIfPanel(parts)
    this.whatIf.onChange = () => {
      if (this.shown) this.show(this.shown.context)
    }
    this.chart.onSegment = (row, position) => this.openSegment(row, position)
    this.toolbar = new ReservedTools(store, {
      goToWorstFragmentation: () => this.goTo('fragmentation'),
      goToWorstSplit: () => this.goTo('stuck'),
    })
    this.tools = this.toolbar.element
    this.body = h('div.segments-body', this.chart.element, this.whatIf.element)
    this.element = h(
      'section.column.reserved-view',
      { 'aria-label': 'Reserved memory' },
      h('div.segments-top', this.moment.element, this.figures, this.note, this.doubts),
      this.nothing,
      this.body,
      this.legend.element,
    )
  }

  /** What the whole trace says, whatever is shown of it. */
  prepare({ data, info, replay }: ViewContext): Prepared {
    return this.prepared.get([data], () => ({
      replay,
      groups: replay && groupsOf(info, replay.segments),
      use: deviceUseOf(data),
      moments: worstMoments(data, replay?.whollyFree ?? null),
      isEmpty: data.reserved.every((bytes) => bytes === 0),
      doubts: doubtsOf(data, replay),
    }))
  }

  show(context: ViewContext): void {
    const { data, info, state, position, dark } = context
    this.moment.render(context)
    const { replay, groups, use, moments, isEmpty, doubts } = this.prepare(context)
    this.shown = { context, replay, moments }
    const choice = this.choice(context)
    this.toolbar.render(context, choice, replay !== null)
    this.nothing.hidden = !isEmpty
    this.nothing.textContent = !isEmpty
      ? ''
      : info.profiled
        ? NO_SEGMENTS
        : 'No segment was recorded for this device: reserved memory is not known.'
    this.body.hidden = this.legend.element.hidden = isEmpty
    const figures = isEmpty ? [] : figuresOf(data, replay, use, position)
    if (replay && !isEmpty) figures.push(largestFigure(data, replay, position))
    showFigures(this.figures, figures)
    this.doubts.hidden = isEmpty || doubts.length === 0
    this.doubts.textContent = doubts.join(' ')
    if (isEmpty) return
    if (!replay || state.options['reserved.whatif'] === undefined) this.whatIf.hide()
    else this.whatIf.show(data, info, state.options)
    const inks = this.inks.get([dark, state.theme], () => readInks(this.element, dark))
    this.legend.render({
      inks,
      dark,
      choice,
      groups,
      hasWhatIf: this.whatIf.curve !== null,
      hasDeviceUse: use !== null,
    })
    const largest = choice.parts && choice.fragmentationOnly && replay ? this.largestOf(data) : null
    this.chart.show({
      context,
      replay,
      groups,
      largest,
      whatIf: this.whatIf.curve,
      use,
      inks,
      choice,
      marks: this.marks(inks, context, moments),
    })
  }

  async settled(): Promise<void> {
    await this.largest?.pending
  }

  /** The largest free range by position, requested when first shown; null until it has arrived. */
  private largestOf(data: DeviceData): Float64Array | null {
    if (this.largest?.data !== data) {
      const largest: NonNullable<typeof this.largest> = { data, bytes: null, pending: Promise.resolve() }
      largest.pending = this.parts.client.largestFree(data.info.index).then(
        (bytes) => {
          largest.bytes = bytes
          if (this.shown?.context.data === data) this.show(this.shown.context)
        },
        () => {},
      ) // the line is missing, and nothing else
      this.largest = largest
    }
    return this.largest.bytes
  }

  key(event: KeyboardEvent): boolean {
    if (!this.shown) return false
    switch (event.key.toLowerCase()) {
      case 'f':
        return (this.goTo('fragmentation'), true)
      case 'g':
        return (this.goTo('stuck'), true)
      case 't':
        return (this.toolbar.axis.toggle(), true)
      case 'enter':
        return document.activeElement?.classList.contains('time-plot')
          ? (this.parts.store.set({ view: 'segments' }), true)
          : false
      default:
        return this.chart.key(event) || this.moment.key(event)
    }
  }

  extent(): readonly number[] | null {
    return this.chart.extent
  }

  picture(): HTMLCanvasElement {
    return this.chart.picture()
  }

  debug(): unknown {
    if (!this.shown) return null
    const { replay, moments } = this.shown
    const { data, position } = this.shown.context
    const copied = data.P <= MOST_COPIED
    const { columns } = this.chart
    return {
      position,
      parts: replay && partsAt(replay, position),
      worst: moments,
      nothing: this.nothing.hidden ? null : this.nothing.textContent,
      doubts: this.doubts.hidden ? null : this.doubts.textContent,
      curves:
        replay && copied
          ? {
              reserved: [...data.reserved],
              allocated: [...data.allocated],
              rounding: [...replay.rounding],
              whollyFree: [...replay.whollyFree],
              largestFree: this.largest?.data === data && this.largest.bytes ? [...this.largest.bytes] : null,
            }
          : null,
      columns: columns && [...columns],
      used: copied ? [...(this.prepare(this.shown.context).use?.used ?? [])] : null,
      whatIf: this.whatIf.element.hidden ? null : this.whatIf.debug(),
      boxes: this.chart.boxes(),
    }
  }

  private choice({ state: { options } }: ViewContext): ChartChoice {
    const show = options['reserved.show']
    return {
      parts: show !== 'segments',
      segments: show !== 'parts',
      fragmentationOnly: options['reserved.base'] === 'none',
    }
  }

  private marks(inks: Inks, { data, info }: ViewContext, moments: Worst): ChartMark[] {
    if (info.events === 0) return []
    const lost = data.reserved[moments.fragmentation] - data.allocated[moments.fragmentation]
    const failures: ChartMark[] = info.ooms.slice(0, 20).map(({ event, requested }, i) => ({
      position: event + 1,
      label: i === 0 ? `OOM: ${formatBytes(requested)} requested` : '',
      colour: inks.oom,
    }))
    const worst = {
      position: moments.fragmentation,
      label: `worst fragmentation, ${formatBytes(lost)}`,
      colour: inks.peak,
    }
    // The label of a failure is placed first, before others can take its room.
    return [...failures.slice(0, 1), worst, ...failures.slice(1)]
  }

  private goTo(which: keyof Worst): void {
    if (!this.shown || this.shown.context.info.events === 0) return
    const { moments, replay } = this.shown
    const { data } = this.shown.context
    const position = moments[which]
    this.parts.store.set({ at: position - 1 })
    const unused = data.reserved[position] - data.allocated[position]
    const bytes = which === 'stuck' && replay ? unused - replay.whollyFree[position] : unused
    this.note.textContent = `${which === 'stuck' ? 'Most in rounding and inactive splits' : 'Worst fragmentation'}: ${formatBytes(bytes)} at ${momentName(data, position)}.`
  }

  private openSegment(row: number, position: number): void {
    const { store } = this.parts
    if (!this.shown?.replay) return
    const { 'segments.mode': _, ...options } = store.state.options
    store.set({
      view: 'segments',
      at: position - 1,
      options: { ...options, 'segments.focus': this.shown.replay.space.text(this.shown.replay.segments.start[row]) },
    })
  }
}
