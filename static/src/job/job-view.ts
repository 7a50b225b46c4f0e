// The view of a job: the heat map, and beside it groups, stacks, categories, findings and ranks, all of what is brushed.

import { formatCount } from '../layout/format'
import { button, menu } from '../ui/controls'
import { append, fill, h } from '../ui/dom'
import type { State } from '../ui/state'
import { readInks } from '../views/shared/inks'
import { CategoriesPanel } from './categories-panel'
import { ColourScale } from './map-heat'
import { FindingsPanel } from './findings-panel'
import { GroupsPanel } from './groups-panel'
import type { JobPage, JobParts } from './interface'
import { JobData, METRICS } from './job-data'
import {
  extremeOf,
  type JobModel,
  METRIC_NAMES,
  METRIC_TITLES,
  orderRows,
  peaksOf,
  rangeName,
  type RowPeaks,
} from './job-model'
import { JobActions, type JobState, readState, type Tab, TABS, type SortKey, SORTS } from './job-state'
import { linkedSentence } from './links'
import { MapView } from './map-view'
import type { Panel } from './panel'
import { RankPanel } from './rank-panel'
import { RanksPanel } from './ranks-panel'
import { StacksPanel } from './stacks-panel'
import { Memo } from '../views/memo'

const SORT_NAMES: Record<SortKey, string> = {
  rank: 'Rank',
  host: 'Host',
  peak: 'Peak allocated',
  reserved: 'Peak reserved',
  group: 'Group',
  oom: 'First OOM',
  above: 'Above its group',
  shown: 'Bars beside the map',
}
const TAB_NAMES: Record<Tab, string> = {
  findings: 'Findings',
  groups: 'Groups',
  stacks: 'Stacks',
  categories: 'Categories',
  ranks: 'Ranks',
  rank: 'Rank',
}

export class JobView implements JobPage {
  readonly element: HTMLElement
  readonly tools: HTMLElement
  private readonly data: JobData
  private readonly actions: JobActions
  private readonly map: MapView
  private readonly panels: Record<Tab, Panel>
  private readonly tabs = new Map<Tab, HTMLButtonElement>()
  private readonly place = h('div.column.fill.job-panel', { role: 'tabpanel' })
  private readonly scale = new ColourScale()
  private readonly metric: HTMLSelectElement
  private readonly axis: HTMLSelectElement
  private readonly sort: HTMLSelectElement
  private readonly against: HTMLButtonElement
  private readonly brushed = h('span.row.job-brushed', { role: 'status' })
  private readonly note = h('p.job-note.soft', { hidden: true })
  private model: JobModel | null = null
  private readonly ordered = new Memo<Pick<JobModel, 'order' | 'place'>>()

  constructor({ manifest, columns, heat, store, openDevice, announce, saved }: JobParts) {
    this.data = new JobData(manifest, columns, heat)
    const { data } = this
    this.actions = new JobActions(store, data, openDevice, announce)
    const { actions } = this
    this.map = new MapView(actions)
    this.panels = {
      groups: new GroupsPanel(actions),
      stacks: new StacksPanel(actions, saved),
      categories: new CategoriesPanel(actions),
      findings: new FindingsPanel(actions),
      ranks: new RanksPanel(actions, saved),
      rank: new RankPanel(actions),
    }
    this.metric = menu(
      'Memory',
      METRICS.map((metric) => [metric, METRIC_NAMES[metric]]),
      (metric) => actions.set({ metric: metric === 'allocated' ? null : metric }),
    )
    this.metric.options[METRICS.indexOf('free')].disabled = !data.knowsFree
    this.axis = menu(
      'Columns',
      manifest.axes.map(({ key, label }) => [key, `By ${label}`]),
      (key) => actions.set({ axis: key === manifest.axes[0].key ? null : key, columns: null, column: null }),
    )
    for (const [i, { note }] of manifest.axes.entries()) this.axis.options[i].title = note
    this.sort = menu(
      'Order of ranks',
      SORTS.map((key) => [key, SORT_NAMES[key]]),
      (key) => actions.set({ sort: key === 'rank' ? null : key }),
    )
    const against = 'Compare each rank with the median of its group: small differences show, too'
    this.against = button('Against its group', against, () =>
      actions.set({ against: this.model?.state.isAgainst ? null : 'group' }),
    )
    this.tools = h(
      'div.row.wrap',
      this.metric,
      this.against,
      this.axis,
      h('label.row', h('span.soft', 'Sort'), this.sort),
      this.brushed,
      this.scale.element,
    )
    const tabs = h('div.tabs.job-tabs', { role: 'tablist', 'aria-label': 'What is beside the map' })
    for (const tab of TABS) {
      const button = h(
        'button',
        { role: 'tab', id: `job-tab-${tab}`, onclick: () => actions.set({ tab }) },
        TAB_NAMES[tab],
      )
      button.addEventListener('keydown', (event) => this.moveTab(event, tab))
      this.tabs.set(tab, button)
      tabs.append(button)
    }
    this.element = h(
      'section.job',
      { 'aria-label': 'Job' },
      h('div.column', this.note, this.map.element),
      h('div.column.job-right', tabs, this.place),
    )
    this.linkHeadline()
  }

  show(state: State, dark: boolean): void {
    const job = readState(this.data, state.options)
    const model = this.modelOf(job, dark)
    this.model = model
    this.metric.value = job.metric
    this.metric.title = METRIC_TITLES[job.metric]
    this.axis.value = job.axis.key
    this.axis.title = job.axis.note
    this.sort.value = job.sort
    this.against.setAttribute('aria-pressed', String(job.isAgainst))
    this.note.textContent = job.axis.note
    this.note.hidden = job.axis.note === ''
    this.renderTabs(model)
    keepFocus(
      this.tools,
      () => this.map.element,
      () => this.renderBrush(model),
    )
    this.map.show(model)
    const { scale, colours } = this.map
    if (scale && colours) this.scale.render(scale, colours, METRIC_NAMES[job.metric])
    const panel = this.panels[job.tab]
    const tab = this.tabs.get(job.tab)!
    if (this.place.firstChild !== panel.element) {
      const hadFocus = this.place.contains(document.activeElement)
      fill(this.place, panel.element)
      if (hadFocus) tab.focus({ preventScroll: true })
    }
    keepFocus(
      this.place,
      () => tab,
      () => panel.render(model),
    )
  }

  async settled(): Promise<void> {
    await this.map.settled()
  }

  key(event: KeyboardEvent): boolean {
    const { model } = this
    if (!model) return false
    if (event.key === 'Escape') return this.escape(model)
    const target = event.target instanceof Element ? event.target : null
    const inPanel = target?.closest('.job-panel')
    if (inPanel) return this.panels[model.state.tab].key?.(event) ?? false
    // The map is what arrow keys are for, unless a control has the focus.
    if (target?.closest('button, select, input, a, .job-right, header')) return false
    return this.map.key(event)
  }

  picture(): HTMLCanvasElement {
    return this.map.picture()
  }

  debug(): unknown {
    const { model, data } = this
    if (!model) return null
    return {
      map: this.map.debug(),
      order: [...model.order].map((row) => data.keyOf(row)),
      rows: model.rows.map((row) => data.keyOf(row)),
      tab: model.state.tab,
      shown: model.shownName,
      panel: this.panels[model.state.tab].debug?.() ?? null,
    }
  }

  private modelOf(state: JobState, dark: boolean): JobModel {
    const { data } = this
    const peaks = peaksOf(data, state.axis, state.columns)
    const strip = stripOf(data, state, peaks)
    const key = [state.sort, state.axis.key, state.columns?.join('-'), state.sort === 'shown' && strip.name]
    const { order, place } = this.ordered.get(key, () => {
      const order = orderRows(data, state.sort, peaks, strip.isLeast ? strip.bytes.map((bytes) => -bytes) : strip.bytes)
      const place = new Int32Array(data.rows)
      for (const [at, row] of order.entries()) place[row] = at
      return { order, place }
    })
    const rows = [...order].filter((row) => row < data.recorded && (state.rows === null || state.rows.has(row)))
    const inks = readInks(document.documentElement, dark)
    return { data, state, order, place, rows, peaks, shown: strip.bytes, shownName: strip.name, dark, inks }
  }

  private renderTabs({ data, state }: JobModel): void {
    const counts: Partial<Record<Tab, number>> = {
      groups: data.manifest.groups.length,
      findings: data.manifest.outliers.length + data.manifest.findings.length,
      ranks: data.rows,
    }
    for (const [tab, button] of this.tabs) {
      const isSelected = tab === state.tab
      // On a narrow screen the tabs scroll.
      if (isSelected && button.getAttribute('aria-selected') !== 'true')
        button.parentElement!.scrollLeft = button.offsetLeft - button.parentElement!.offsetLeft - 40
      button.setAttribute('aria-selected', String(isSelected))
      button.tabIndex = isSelected ? 0 : -1
      const count = counts[tab]
      button.textContent =
        tab === 'rank' && state.row !== null
          ? data.nameOf(state.row)
          : `${TAB_NAMES[tab]}${count === undefined ? '' : ` ${formatCount(count)}`}`
      button.hidden = tab === 'rank' && state.row === null
    }
    this.place.setAttribute('aria-labelledby', `job-tab-${state.tab}`)
  }

  /** What is brushed, and a way back. */
  private renderBrush({ data, state, rows }: JobModel): void {
    const parts: string[] = []
    if (state.rows) parts.push(`${formatCount(rows.length)} of ${formatCount(data.recorded)} ranks`)
    if (state.columns) parts.push(rangeName(state.axis, ...state.columns))
    this.brushed.hidden = parts.length === 0
    if (parts.length === 0) return fill(this.brushed)
    fill(
      this.brushed,
      parts.join(', '),
      button('Zoom', 'Zoom the map to it (Z)', () => this.map.zoomToBrush()),
      button('Clear', 'Select everything (Escape)', () => this.actions.brush(null, null)),
    )
  }

  private moveTab(event: KeyboardEvent, tab: Tab): void {
    if (event.key !== 'ArrowLeft' && event.key !== 'ArrowRight') return
    event.preventDefault()
    event.stopPropagation()
    const shown = TABS.filter((name) => !this.tabs.get(name)!.hidden)
    const by = event.key === 'ArrowRight' ? 1 : shown.length - 1
    const next = shown[(shown.indexOf(tab) + by) % shown.length]
    this.actions.set({ tab: next })
    this.tabs.get(next)?.focus()
  }

  private escape({ state }: JobModel): boolean {
    if (this.map.cancelDrag()) return true
    if (state.rows || state.columns || state.group !== null) return (this.actions.brush(null, null), true)
    if (state.row !== null) return (this.actions.pickRow(null), true)
    if (state.stack !== null || state.category !== null)
      return (this.actions.set({ stack: null, category: null }), true)
    return false
  }

  /** The headline names ranks and stacks: here each is a link of its own. */
  private linkHeadline(): void {
    const { headline } = this.data.manifest
    const paragraphs = document.querySelectorAll('#top .headline')
    if (headline.length === 0 || paragraphs.length === 0) return
    const first = paragraphs[0]
    first.replaceChildren()
    for (const { text } of headline) append(first, linkedSentence(this.data, this.actions, text), ' ')
    for (const paragraph of [...paragraphs].slice(1)) paragraph.remove()
  }
}

/** What the bars beside the map show: a stack, a category, or the peak of what the map shows. `isLeast`: less is worse. */
function stripOf(
  data: JobData,
  { stack, category, metric, axis, columns }: JobState,
  peaks: RowPeaks,
): { bytes: Float64Array; name: string; isLeast?: boolean } {
  const { stack_names, categories } = data.manifest
  const all = (of: (row: number) => number): Float64Array =>
    Float64Array.from({ length: data.rows }, (_, row) => of(row))
  if (stack !== null) return { bytes: all((row) => data.bytesOfStack(stack, row)), name: stack_names[stack].name }
  if (category !== null) return { bytes: all((row) => data.bytesOfCategory(category, row)), name: categories[category] }
  if (metric === 'reserved') return { bytes: peaks.reserved, name: 'Peak reserved' }
  if (metric === 'unused')
    return { bytes: extremeOf(data.matrix(axis.key, metric), columns, Math.max), name: 'Fragmentation' }
  if (metric === 'free')
    return { bytes: extremeOf(data.matrix(axis.key, metric), columns, Math.min), name: 'Least free', isLeast: true }
  return { bytes: peaks.allocated, name: 'Peak allocated' }
}

/** Renders. A link or button within `root` that is replaced hands its focus to the one of its name; what is gone to `otherwise`. */
function keepFocus(root: HTMLElement, otherwise: () => HTMLElement, render: () => void): void {
  const focused = document.activeElement
  if (!(focused instanceof HTMLElement) || !root.contains(focused)) return render()
  const named = (): HTMLElement[] =>
    [...root.querySelectorAll<HTMLElement>('a, button')].filter(
      ({ textContent }) => textContent === focused.textContent,
    )
  const place = named().indexOf(focused)
  render()
  if (root.contains(focused)) return
  const left = place < 0 ? [] : named()
  ;(left[Math.min(place, left.length - 1)] ?? otherwise()).focus({ preventScroll: true })
}
