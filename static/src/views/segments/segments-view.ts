// The segments view: segments and their blocks at one moment, or over time.

import type { Replay } from '../../allocator/replay'
import { type AllocatorState, stateAt } from '../../allocator/state'
import { scrollsWhenSmall } from '../../ui/compact'
import { NO_SEGMENTS } from '../../ui/devices'
import { button, menu, Segmented } from '../../ui/controls'
import { fill, h } from '../../ui/dom'
import { Memo } from '../memo'
import { MomentBar } from '../moment'
import { AxisSwitch } from '../shared/controls'
import { type Groups, groupsOf } from '../shared/groups'
import { css, type Inks, mix, readInks } from '../shared/inks'
import { describeOom } from '../shared/describe'
import { showFigures } from '../shared/figures'
import type { View, ViewContext, ViewParts } from '../view'
import { changeOf, debugState, doubtsOf, figuresOf } from './state-text'
import type { Sort } from './map-layout'
import { type MapChoice, MomentMap } from './moment-map'
import { TimeMap } from './time-map'

const SORTS: readonly [Sort, string][] = [
  ['address', 'by address'],
  ['size', 'by size'],
  ['free', 'by free bytes'],
]
const MOST_ZOOM = 12

export class SegmentsView implements View {
  readonly element: HTMLElement
  readonly tools: HTMLElement
  readonly needsReplay = true
  private readonly moment: MomentBar
  private readonly map: MomentMap
  private readonly time: TimeMap
  private readonly axis: AxisSwitch
  private readonly legend = new Legend()
  private readonly change = h('p.segments-change.soft')
  private readonly doubts = h('p.segments-doubts.warn', { hidden: true })
  private readonly figures = scrollsWhenSmall(h('dl.figures'))
  private readonly nothing = h('p.nothing-here', { hidden: true })
  private readonly body: HTMLElement
  private readonly modes: Segmented<string | null>
  private readonly sort: HTMLSelectElement
  private readonly mapTools: HTMLElement
  private readonly whole: HTMLButtonElement
  private shown: { context: ViewContext; replay: Replay; state: AllocatorState; groups: Groups } | null = null
  private readonly states = new Memo<AllocatorState>()
  private readonly groups = new Memo<Groups>()
  private readonly inks = new Memo<Inks>()

  constructor(private readonly parts: ViewParts) {
    const { store } = parts
    this.moment = new MomentBar(store)
    this.map = new MomentMap(parts)
    this.time = new TimeMap(parts)
    this.axis = new AxisSwitch(store)
    this.map.onFocus = (address) =>
      store.setOption('segments.focus', address === null ? null : (this.shown?.replay.space.text(address) ?? null))
    this.modes = new Segmented(
      'Segments',
      [
        [null, 'At a moment', 'Segments and blocks at one moment (V)'],
        ['time', 'Over time', 'Blocks by address over events (V)'],
      ],
      (mode) => store.setOption('segments.mode', mode),
    )
    this.sort = menu('Order of segments', SORTS, (sort) =>
      store.setOption('segments.sort', sort === 'address' ? null : sort),
    )
    this.whole = button('All segments', 'Show all segments again (Z)', () => store.setOption('segments.focus', null))
    this.mapTools = h(
      'div.row.wrap',
      this.sort,
      h(
        'div.segmented',
        { role: 'group', 'aria-label': 'Scale' },
        button('−', 'Smaller (−)', () => this.zoomBy(-1)),
        button('+', 'Larger (+)', () => this.zoomBy(1)),
      ),
      this.whole,
    )
    this.tools = h('div.row.wrap', this.modes.element, this.mapTools, this.axis.element)
    this.body = h('div.segments-body', this.map.element, this.time.element)
    this.element = h(
      'section.column.segments-view',
      { 'aria-label': 'Segments' },
      h('div.segments-top', this.moment.element, this.change, this.figures, this.doubts),
      this.nothing,
      this.body,
      this.legend.element,
    )
  }

  prepare({ info, replay, position }: ViewContext): void {
    if (!replay) return
    this.states.get([replay, position], () => stateAt(replay, position))
    this.groups.get([replay], () => groupsOf(info, replay.segments))
  }

  show(context: ViewContext): void {
    const { data, info, state, position, replay } = context
    this.moment.render(context)
    const byTime = state.options['segments.mode'] === 'time'
    this.modes.show(byTime ? 'time' : null)
    this.mapTools.hidden = byTime
    this.axis.element.hidden = !byTime
    this.axis.render(state, info)
    if (!replay)
      return this.showNothing(
        'This report leaves out addresses to stay under its size limit (--max-size): blocks cannot be shown.',
      )
    const allocator = this.states.get([replay, position], () => stateAt(replay, position))
    const groups = this.groups.get([replay], () => groupsOf(info, replay.segments))
    this.shown = { context, replay, state: allocator, groups }
    if (info.profiled) return this.showNothing(NO_SEGMENTS)
    if (replay.segments.count === 0 && data.N === 0)
      return this.showNothing('Nothing was recorded for this device: no segments and no blocks.')
    this.nothing.hidden = allocator.segments > 0 || byTime
    this.nothing.textContent = this.nothing.hidden ? '' : 'No segment exists at this moment.'
    this.body.hidden = false
    this.showNumbers()
    const inks = this.inks.get([context.dark, state.theme], () => readInks(this.element, context.dark))
    this.legend.render(inks, context.colouring.by, byTime)
    this.map.element.hidden = byTime
    this.time.element.hidden = !byTime
    if (byTime) this.time.show(context, replay, groups, inks)
    else
      this.map.show(
        context,
        { replay, state: allocator, colouring: context.colouring, matches: context.matches, inks },
        groups,
        this.choice(context, replay),
      )
  }

  key(event: KeyboardEvent): boolean {
    const { shown } = this
    if (!shown) return false
    const byTime = shown.context.state.options['segments.mode'] === 'time'
    if (event.key.toLowerCase() === 'v')
      return (this.parts.store.setOption('segments.mode', byTime ? null : 'time'), true)
    if (byTime && event.key.toLowerCase() === 't') return (this.axis.toggle(), true)
    if (byTime ? this.time.key(event) : this.map.key(event)) return true
    if (!byTime && (event.key === '+' || event.key === '=')) return (this.zoomBy(1), true)
    if (!byTime && (event.key === '-' || event.key === '_')) return (this.zoomBy(-1), true)
    return this.moment.key(event)
  }

  /** Over time every address has a place of its own: panes need no common extent. */
  extent(): readonly number[] | null {
    const byTime = this.shown?.context.state.options['segments.mode'] === 'time'
    return byTime ? null : (this.map.layout?.scale ?? null)
  }

  picture(): HTMLCanvasElement {
    return this.shown?.context.state.options['segments.mode'] === 'time' ? this.time.picture() : this.map.picture()
  }

  debug(): unknown {
    if (!this.shown) return { nothing: this.nothing.textContent }
    const { context, replay, state, groups } = this.shown
    const byTime = context.state.options['segments.mode'] === 'time'
    let largest = -1
    for (const id of state.blockId)
      if (id >= 0 && (largest < 0 || replay.data.size[id] > replay.data.size[largest])) largest = id
    return {
      ...debugState(state, replay, groups),
      mode: byTime ? 'time' : 'moment',
      nothing: this.nothing.hidden ? null : this.nothing.textContent,
      doubts: this.doubts.hidden ? null : this.doubts.textContent,
      largest:
        largest < 0 ? null : { id: largest, ...(byTime ? this.time.placeOf(largest) : this.map.placeOf(largest)) },
      seen: this.time.seen,
      lineBytes: this.map.layout?.scale ?? null,
    }
  }

  private choice({ state }: ViewContext, replay: Replay): MapChoice {
    const { 'segments.sort': sort, 'segments.zoom': zoom, 'segments.focus': focus } = state.options
    this.sort.value = SORTS.some(([value]) => value === sort) ? sort : 'address'
    const choice = {
      sort: this.sort.value as Sort,
      zoom: /^\d{1,2}$/.test(zoom ?? '') ? Math.min(MOST_ZOOM, Number(zoom)) : 0,
      focus: focus ? replay.space.read(focus) : null,
    }
    this.whole.hidden = choice.focus === null
    return choice
  }

  private zoomBy(by: number): void {
    if (!this.shown) return
    const { zoom } = this.choice(this.shown.context, this.shown.replay)
    const next = Math.min(MOST_ZOOM, Math.max(0, zoom + by))
    this.parts.store.setOption('segments.zoom', next === 0 ? null : String(next))
  }

  private showNumbers(): void {
    const { state, replay, context } = this.shown!
    showFigures(this.figures, figuresOf(state, replay))
    const oom = context.info.ooms.find(({ event }) => event === context.position - 1)
    const change = changeOf(state, replay)
    this.change.classList.toggle('alarm', oom !== undefined)
    fill(
      this.change,
      oom ? `${describeOom(oom)}. ` : change ? `This event ${change}.` : null,
      oom ? this.oomLink(oom.event) : null,
    )
    const doubts = doubtsOf(state, replay, context.info)
    this.doubts.hidden = doubts.length === 0
    this.doubts.textContent = doubts.join(' ')
  }

  private oomLink(event: number): HTMLElement {
    const open = (): void => this.parts.store.set({ oom: event })
    return h('button.link', { onclick: open }, 'Stack trace and details')
  }

  private showNothing(why: string): void {
    this.shown = null
    this.nothing.textContent = why
    this.nothing.hidden = false
    this.body.hidden = true
    this.legend.element.hidden = true
    fill(this.figures)
    this.change.textContent = ''
    this.doubts.hidden = true
  }
}

class Legend {
  readonly element = scrollsWhenSmall(h('ul.row.wrap.segments-legend', { 'aria-label': 'Legend' }))
  private drawn = ''

  /** `byTime`: of the map over time, which draws less. */
  render(inks: Inks, by: string, byTime: boolean): void {
    const { element } = this
    element.hidden = false
    const key = JSON.stringify([inks, by, byTime])
    if (key === this.drawn) return
    this.drawn = key
    const item = (label: string, style: Partial<CSSStyleDeclaration>): HTMLElement => {
      const mark = h('span.swatch')
      Object.assign(mark.style, style)
      return h('li', mark, label)
    }
    const stripes = `repeating-linear-gradient(135deg, ${css(inks.pending)} 0 2px, ${css(inks.allocated)} 2px 4px)`
    const shared = [
      item(`Allocated (coloured by ${by})`, { background: css(inks.allocated) }),
      item('Pending free', { background: stripes }),
    ]
    if (byTime) {
      fill(
        element,
        ...shared,
        item('Free in a segment', { background: css(inks.split) }),
        item('No segment then', { background: css(inks.panel), outline: `1px solid ${css(inks.line)}` }),
      )
      return
    }
    fill(
      element,
      ...shared,
      item('Rounding', { background: css(inks.rounding) }),
      item('Free, inactive split', { background: css(inks.split) }),
      item('Unused segment', {
        background: css(inks.whole),
        outline: `1px dashed ${css(mix(inks.panel, inks.soft, 0.55))}`,
      }),
      item('Allocated by this event', { outline: `2px solid ${css(inks.oom)}`, background: 'transparent' }),
      item('Freed by it', { outline: `2px dashed ${css(inks.oom)}`, background: 'transparent' }),
    )
  }
}
