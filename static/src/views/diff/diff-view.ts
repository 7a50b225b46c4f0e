// The difference between two snapshots: both curves, and what appeared, vanished, grew and shrank at corresponding moments.

import type { Frame } from '../../data/model'
import { formatBytes, formatCount } from '../../layout/format'
import { button, menu, Segmented } from '../../ui/controls'
import { fill, h, setText } from '../../ui/dom'
import { csvLine, download, fileName } from '../../ui/download'
import { foldedStack } from '../../ui/folded-stack'
import { capital, formatChange, formatShare, plural } from '../../ui/format'
import { VirtualList } from '../../ui/virtual-list'
import { quoted } from '../../search/grammar'
import { Memo } from '../memo'
import { openMenu, termItems } from '../shared/context-menu'
import { readInks } from '../shared/inks'
import { FONT } from '../shared/canvas-view'
import type { View, ViewContext, ViewParts } from '../view'
import type { Baseline } from '../baseline'
import { changeOf, compare, deltaOf, type Group, GROUPS, type Row, withWeight } from './compare'
import { movedFrames, paintCurves } from './curves'
import { growthChart, seriesTable } from './growth-chart'

const GROUP_NAMES: Record<Group, string> = {
  stack: 'Stacks',
  function: 'Functions',
  file: 'Files',
  category: 'Categories',
}
const TERMS = { function: 'func', file: 'file', category: 'category' }
const ROW_HEIGHT = 24
const COLUMNS = ['Change', 'Before', 'After', '', 'How', 'Where']

export class DiffView implements View {
  readonly element: HTMLElement
  readonly tools: HTMLElement
  private readonly note = h('p.diff-words')
  private readonly canvas = h('canvas.diff-curves', { role: 'img' })
  private readonly legend = h('p.diff-key')
  private readonly pane = h('div.diff-pane', { tabindex: 0, 'aria-label': 'Stack of the row', hidden: true })
  private readonly series = h('div', { hidden: true })
  private readonly empty = h('p.diff-empty', { hidden: true })
  private readonly body: HTMLElement
  private readonly list: VirtualList
  private readonly moment = menu('Moments that are compared', [], (moment) =>
    this.parts.store.setOption('diff.moment', this.moment.selectedIndex === 0 ? null : moment),
  )
  private readonly groups: Segmented<Group>
  /** What the names of rows leave out. */
  private readonly common = h('span.soft.mono')
  private readonly rowsOf = new Memo<ReturnType<typeof compare>>()
  private rows: Row[] = []
  /** Those that are listed: the others are folded into a last line. */
  private listed: Row[] = []
  private most = 1
  private context: ViewContext | null = null
  private filled = ''

  constructor(private readonly parts: ViewParts) {
    const { store } = parts
    this.list = new VirtualList({
      name: 'diff',
      label: 'What changed',
      role: 'grid',
      rowHeight: ROW_HEIGHT,
      fill: (row, index) => this.fillRow(row, this.listed[index]),
      onClick: (index) => (index < this.listed.length ? this.open(index) : this.listAll()),
      onCursor: (index) => this.open(index),
      onEnter: (index) => {
        if (index >= this.listed.length) this.listAll()
      },
      onMenu: (index, x, y) => this.openMenu(this.listed[index], x, y),
    })
    this.list.setColumns('96px 88px 88px minmax(56px, 140px) 86px minmax(200px, 1fr)', 620)
    this.list.head.append(
      h(
        'div.list-row',
        { role: 'row' },
        ...COLUMNS.map((text, i) =>
          h(
            'span',
            { role: 'columnheader', class: i < 3 ? 'cell number' : 'cell' },
            text || h('span.offscreen', 'Size of the change'),
            i === COLUMNS.length - 1 ? this.common : null,
          ),
        ),
      ),
    )
    this.body = h('div.diff-body.fill', this.list.element, this.pane)
    this.element = h(
      'section.column.diff',
      { 'aria-label': 'Difference' },
      this.note,
      this.series,
      this.legend,
      this.canvas,
      this.empty,
      this.body,
    )
    this.groups = new Segmented(
      'Rows',
      GROUPS.map((group) => [group, GROUP_NAMES[group]]),
      (group) => store.setOption('diff.group', group === GROUPS[0] ? null : group),
    )
    this.tools = h(
      'div.row.wrap',
      this.moment,
      this.groups.element,
      button('As flame graph', 'The same as a flame graph of differences', () => this.toFlame()),
      button('CSV', 'Save all rows as CSV', () => this.saveCsv()),
    )
  }

  show(context: ViewContext): void {
    this.context = context
    const { baseline } = context
    const reason = baseline ? null : this.whyNot(context)
    this.empty.hidden = reason === null
    this.empty.textContent = reason
    for (const part of [this.note, this.canvas, this.legend, this.body]) part.hidden = reason !== null
    this.renderSeries(baseline)
    if (!baseline) return
    const group = groupOf(context)
    this.renderTools(baseline, group)
    const { data, stacks } = context
    const { rows, common } = this.rowsOf.get([data, stacks, baseline, group], () =>
      compare(data, stacks, baseline, group),
    )
    this.rows = rows
    setText(this.common, common && ` … is ${common}`)
    const { before } = baseline
    const [was, is] = [before.allocated[baseline.beforePosition], data.allocated[baseline.afterPosition]]
    this.note.textContent = `${capital(baseline.moment.name)}: ${formatBytes(was)} before, ${formatBytes(is)} after, ${formatChange(is - was)}${was > 0 ? ` (${is >= was ? '+' : '−'}${formatShare(Math.abs(is - was), was)})` : ''}. ${this.counts()}`
    const isAll = context.state.options['diff.rows'] === 'all'
    this.listed = isAll ? this.rows : withWeight(this.rows, group, Math.max(was, is))
    this.most = Math.max(1, ...this.listed.slice(0, 1).map((row) => Math.abs(deltaOf(row))))
    this.paint(context, baseline)
    const filled = `${group}/${baseline.moment.name}/${data.info.index}`
    const isFolded = this.listed.length < this.rows.length
    this.list.setRows(this.listed.length + (isFolded ? 1 : 0), filled === this.filled ? this.list.cursor : -1)
    if (filled !== this.filled) this.pane.hidden = true
    this.filled = filled
  }

  settled(): Promise<void> {
    const { context } = this
    if (!context || context.baseline || this.whyNot(context) !== READING) return this.list.settled()
    return new Promise((resolve) => setTimeout(resolve, 20)).then(() => this.settled())
  }

  key(event: KeyboardEvent): boolean {
    return this.list.key(event)
  }

  picture(): HTMLCanvasElement {
    return this.canvas
  }

  debug(): unknown {
    return {
      listed: this.listed.length,
      rows: this.rows.map((row) => ({ ...row, delta: deltaOf(row), change: changeOf(row) })),
      words: this.note.textContent,
    }
  }

  private whyNot({ state }: ViewContext): string | null {
    const { manifest } = this.parts.client
    const { diff } = manifest
    if (!diff || diff.devices.length === 0) return 'The two snapshots have no device in common.'
    if (diff.devices.some(({ after }) => after === state.device)) return READING
    const pair = diff.devices.find(({ before }) => before === state.device)
    return pair
      ? 'This is the earlier snapshot: choose the device of the later one above to see what changed.'
      : 'Only one of the two snapshots has this device.'
  }

  private counts(): string {
    const parts: string[] = []
    for (const change of ['appeared', 'grew', 'shrank', 'vanished'] as const) {
      const count = this.rows.filter((row) => changeOf(row) === change).length
      if (count > 0) parts.push(`${formatCount(count)} ${change}`)
    }
    return parts.length ? `${capital(parts.join(', '))}.` : 'Nothing changed.'
  }

  private renderSeries(baseline: Baseline | null): void {
    const row =
      baseline && this.parts.client.manifest.diff?.series.find(({ device }) => device === baseline.pair.device)
    this.series.hidden = !row
    if (row && this.series.dataset.device !== String(row.device)) {
      this.series.dataset.device = String(row.device)
      const { announce, store } = this.parts
      const showStack = (stack: number): void =>
        store.set({ view: 'timeline', device: baseline.pair.after, query: `stack:${stack}` })
      fill(this.series, growthChart(row, { announce, showStack }), seriesTable(row))
    }
  }

  private renderTools({ pair, moment }: Baseline, group: Group): void {
    const values = pair.moments.map(({ name }) => name.replace(' ', '-'))
    if (this.moment.options.length !== values.length || this.moment.options[0]?.value !== values[0]) {
      fill(
        this.moment,
        ...pair.moments.map(({ name }, i) =>
          h('option', { value: values[i] }, i === 0 ? 'At the peaks' : i === 1 ? 'At the ends' : `In ${name}`),
        ),
      )
    }
    this.moment.value = moment.name.replace(' ', '-')
    this.groups.show(group)
  }

  private paint({ data, info, dark }: ViewContext, { before, beforePosition, afterPosition }: Baseline): void {
    const { canvas } = this
    const ratio = window.devicePixelRatio || 1
    const [width, height] = [canvas.clientWidth, canvas.clientHeight]
    canvas.width = Math.max(1, Math.round(width * ratio))
    canvas.height = Math.max(1, Math.round(height * ratio))
    const ctx = canvas.getContext('2d')!
    ctx.scale(ratio, ratio)
    ctx.font = FONT
    const style = getComputedStyle(canvas)
    const [was, is] = ['--snapshot', '--accent'].map((name) => style.getPropertyValue(name).trim())
    paintCurves(
      ctx,
      { width, height },
      [
        { data: before, css: was, position: beforePosition },
        { data, css: is, position: afterPosition },
      ],
      readInks(canvas, dark),
    )
    const { snapshots } = this.parts.client.manifest
    const name = (snapshot: number): string => snapshots[snapshot]?.file ?? ''
    fill(
      this.legend,
      h('span', swatch('before'), `${name(before.info.snapshot)}, peak ${formatBytes(before.info.peak_bytes)}`),
      h('span', swatch('after'), `${name(info.snapshot)}, peak ${formatBytes(info.peak_bytes)}.`),
      'Each over its own events, on one scale of bytes.',
    )
    canvas.setAttribute(
      'aria-label',
      `Allocated bytes of both: before at most ${formatBytes(before.info.peak_bytes)}, after at most ${formatBytes(info.peak_bytes)}`,
    )
  }

  private fillRow(element: HTMLElement, row: Row | undefined): void {
    if (!row) {
      const words = `${formatCount(this.rows.length - this.listed.length)} more: of less than 0.1%, or of a line whose bytes stay the same (Enter lists them)`
      return fill(element, h('span.cell.wide.soft', { role: 'gridcell', title: words }, words))
    }
    const delta = deltaOf(row)
    const bar = h('span', { class: delta < 0 ? 'diff-bar loss' : 'diff-bar' })
    bar.style.width = `${(46 * Math.abs(delta)) / this.most}%`
    bar.hidden = delta === 0
    fill(
      element,
      h('span.cell.number', { role: 'gridcell' }, formatChange(delta)),
      h('span.cell.number', { role: 'gridcell' }, formatBytes(row.before)),
      h('span.cell.number', { role: 'gridcell' }, formatBytes(row.after)),
      h('span.cell.diff-bars', { role: 'gridcell' }, bar),
      h('span', { role: 'gridcell', class: `cell diff-${changeOf(row)}` }, changeOf(row)),
      h('span.cell.mono', { role: 'gridcell', title: row.name }, row.short || row.name || 'no stack trace'),
    )
  }

  /** Searches for a row on the side that is shown, or leaves it out. */
  private openMenu(row: Row | undefined, x: number, y: number): void {
    if (!row || !this.context) return
    const group = groupOf(this.context)
    const term =
      group === 'stack'
        ? `stack:${row.countAfter > 0 ? row.stack : row.stackBefore}`
        : row.name && `${TERMS[group]}:${quoted(group === 'function' ? row.name.split(' ')[0] : row.name)}`
    openMenu(termItems(this.parts.store, term), x, y)
  }

  private listAll(): void {
    this.parts.store.setOption('diff.rows', 'all')
  }

  private open(index: number): void {
    const row = this.listed[index]
    const { context } = this
    if (!row || !context?.baseline) return
    const group = groupOf(context)
    const { store } = this.parts
    const { stacks, state } = context
    const { pair } = context.baseline
    const queryOf = (stack: number): string => (group === 'category' ? `category:"${row.name}"` : `stack:${stack}`)
    const toTimeline = (device: number, query: string): void => store.set({ view: 'timeline', device, query })
    const after = row.stack >= 0 ? stacks.frames(row.stack) : []
    const before = row.stackBefore >= 0 && row.stackBefore !== row.stack ? stacks.frames(row.stackBefore) : []
    const moved = movedFrames(after, before)
    const wasAt = (frame: Frame): HTMLElement | null => {
      const was = moved.get(frame)
      if (!was) return null
      return h('span.diff-was', { title: `${was.filename}:${was.line}` }, `before: ${was.file}:${was.line}`)
    }
    const which = group === 'function' || group === 'file' ? 'that stack' : 'it'
    this.pane.hidden = false
    fill(
      this.pane,
      h('h3', row.name || 'no stack trace'),
      h(
        'p',
        `${formatChange(deltaOf(row))}: ${formatBytes(row.before)} in ${plural(row.countBefore, 'allocation')} before, ${formatBytes(row.after)} in ${plural(row.countAfter, 'allocation')} after.`,
      ),
      h(
        'p.row.wrap',
        row.countBefore > 0 &&
          (group === 'category' || row.stackBefore >= 0) &&
          h(
            'button',
            { onclick: () => toTimeline(pair.before, queryOf(row.stackBefore)) },
            `Show ${which} in the timeline before`,
          ),
        row.countAfter > 0 &&
          (group === 'category' || row.stack !== row.stackBefore) &&
          h(
            'button',
            { onclick: () => toTimeline(pair.after, queryOf(row.stack)) },
            `Show ${which} in the timeline after`,
          ),
      ),
      row.stack >= 0 &&
        h(
          'h4',
          `${group === 'stack' ? 'Stack' : 'The stack that changed most'}${moved.size > 0 ? ', as it is after and where it stood before' : ''}`,
        ),
      row.stack >= 0 && foldedStack(after, null, state.noise, null, wasAt),
    )
    this.parts.announce(`${row.name}: ${formatChange(deltaOf(row))}`)
  }

  private toFlame(): void {
    const { store, client } = this.parts
    const pair = this.context?.baseline?.pair ?? client.manifest.diff?.devices[0]
    if (pair)
      store.set({ view: 'flame', device: pair.after, options: { ...store.state.options, 'flame.measure': 'diff' } })
  }

  private saveCsv(): void {
    const lines = [
      csvLine(['name', 'change', 'before_bytes', 'after_bytes', 'delta_bytes', 'before_count', 'after_count']),
    ]
    for (const row of this.rows)
      lines.push(
        csvLine([row.name, changeOf(row), row.before, row.after, deltaOf(row), row.countBefore, row.countAfter]),
      )
    this.parts.saved(download(`${fileName('difference', this.parts.client.manifest.title)}.csv`, 'text/csv', lines))
  }
}

const READING = 'Reading …'

function groupOf({ state }: ViewContext): Group {
  const group = state.options['diff.group'] as Group
  return GROUPS.includes(group) ? group : GROUPS[0]
}

function swatch(kind: string): HTMLElement {
  return h('span', { class: `swatch diff-${kind}` })
}
