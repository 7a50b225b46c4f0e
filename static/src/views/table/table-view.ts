// The view "table": allocations, or groups of them, sorted, filtered, opened, and saved as files.

import { dominantStack, stackShares } from '../../data/held-memory'
import { deviceName } from '../../ui/devices'
import { copyText, fill, h } from '../../ui/dom'
import { download, fileName } from '../../ui/download'
import { VirtualList } from '../../ui/virtual-list'
import { MomentBar } from '../moment'
import { allocationItems, openMenu, termItems } from '../shared/context-menu'
import { fitting, templateOf, widthOf } from '../shared/column-fit'
import type { View, ViewContext, ViewParts } from '../view'
import type { Column } from './columns'
import { type Heading, momentWords, tableCsv, tableJson, tableMarkdown } from './exports'
import { headRow, markSorted } from './header'
import { warmSorting } from './order'
import { type Model, openOf, TableModel } from './table-model'
import { RangeBar } from './range'
import { cell, fillTableRow } from './table-rows'
import { TableTools } from './table-tools'
import { TableWords, whyEmpty } from './table-words'

const ROW_HEIGHT = 26
/** Pixels of a name's column: on a very wide screen nobody finds from a name to numbers that lie farther away. */
const MOST_NAME = 1100
/** From so many rows on a first sort is worth 8 ms of preparation. */
const WARMED_ROWS = 1 << 16

export class TableView implements View {
  readonly element: HTMLElement
  readonly tools: HTMLElement
  private readonly moment: MomentBar
  private readonly range: RangeBar
  private readonly model = new TableModel()
  private readonly list: VirtualList
  private readonly toolbar: TableTools
  private readonly words: TableWords
  private readonly empty = h('p.view-empty', { hidden: true })
  private context: ViewContext | null = null
  private now: Model | null = null
  private columns: Column[] = []
  private drawn: readonly unknown[] = []

  constructor(private readonly parts: ViewParts) {
    const { store } = parts
    this.moment = new MomentBar(store)
    this.range = new RangeBar(store)
    this.words = new TableWords(parts)
    this.list = new VirtualList({
      name: 'table',
      label: 'Allocations',
      role: 'treegrid',
      rowHeight: ROW_HEIGHT,
      fill: (row, index) => this.fillRow(row, index),
      onClick: (index, event) => this.clicked(index, event),
      onMenu: (index, x, y) => this.openMenu(index, x, y),
      onEnter: (index) => this.run(index),
      onSpace: (index) => this.toggle(index),
    })
    this.list.element.classList.add('table')
    this.toolbar = new TableTools(store, {
      save: (format) => void this.save(format),
      copy: () => void this.copy(),
    })
    this.tools = this.toolbar.element
    this.element = h(
      'section.column.table-view',
      { 'aria-label': 'Table' },
      this.moment.element,
      this.range.element,
      this.words.query,
      this.words.note,
      this.list.element,
      this.empty,
    )
  }

  prepare(context: ViewContext): void {
    this.model.of(context)
    if (context.data.N > WARMED_ROWS) warmSorting()
  }

  show(context: ViewContext): void {
    const { state, info, data, matches, colouring } = context
    const fresh = this.context?.data !== data
    this.context = context
    this.moment.render(context)
    const model = this.model.of(context)
    this.range.render(model.range, info)
    if (model.range) this.moment.element.hidden = true
    const before = this.now
    this.now = model
    this.toolbar.render(info, data, model.grouping, matches && model.matchesOnly, model.range !== null)
    this.words.render(context, model)
    const isEmpty = model.plan.count === 0
    this.empty.hidden = !isEmpty
    this.list.element.hidden = isEmpty
    if (isEmpty) this.empty.textContent = whyEmpty(context, model)
    const columns = fitting(model.table.columns, this.element.clientWidth - 16)
    if (model.table !== before?.table || columns.length !== this.columns.length) this.showHead(columns)
    markSorted(this.list.head, columns, model.sorting)
    // The cursor stays on its row, wherever that has moved to.
    const cursor =
      model.plan === before?.plan
        ? this.list.cursor
        : before && !fresh && before.grouping === model.grouping
          ? this.follow(before, model)
          : -1
    const key = [
      model.plan,
      model.table,
      state.select,
      matches,
      state.noise,
      colouring,
      this.element.clientWidth,
      this.element.clientHeight,
      columns.length,
    ]
    if (key.every((part, i) => part === this.drawn[i])) return
    this.drawn = key
    this.list.element.setAttribute(
      'aria-label',
      `${model.word} table of ${deviceName(this.parts.client.manifest, info)}`,
    )
    this.list.setRows(model.plan.count, cursor)
    if (before?.grouping !== model.grouping || fresh) this.list.moveBy('Home')
  }

  settled(): Promise<void> {
    return this.list.settled()
  }

  key(event: KeyboardEvent): boolean {
    return this.list.key(event) || (!this.now?.range && this.moment.key(event))
  }

  debug(): unknown {
    const model = this.now
    return (
      model && {
        group: model.grouping,
        sort: model.sorting,
        rows: model.plan.order.length,
        lines: model.plan.count,
        columns: this.columns.map(({ name }) => name),
        visible: this.list.visible,
        cursor: this.list.cursor,
        matchesOnly: model.matchesOnly,
        range: model.range,
      }
    )
  }

  private showHead(columns: Column[]): void {
    this.columns = columns
    const active = document.activeElement instanceof HTMLElement ? document.activeElement.dataset.column : undefined
    fill(
      this.list.head,
      headRow(columns, (column) => this.sort(column)),
    )
    if (active) this.list.head.querySelector<HTMLElement>(`[data-column="${active}"]`)?.focus()
    const cells = columns.map(({ total, isNumber }, i) => cell(i === 0 ? 'Total' : (total ?? ''), isNumber))
    fill(this.list.foot, h('div.list-row', { role: 'row' }, ...cells))
    this.list.setColumns(templateOf(columns, MOST_NAME), widthOf(columns))
    this.list.element.setAttribute('aria-colcount', String(columns.length))
  }

  /** Numbers begin with the largest, names with the first; a second time it is the other direction. */
  private sort({ name, isNumber }: Column): void {
    const { column, descending } = this.now!.sorting
    this.parts.store.setOption('table.sort', ((column === name ? !descending : isNumber) ? '-' : '') + name)
  }

  // Rows

  private fillRow(element: HTMLElement, index: number): void {
    fillTableRow(element, { context: this.context!, model: this.now!, columns: this.columns, index })
  }

  /** Line of the row that the cursor was on. */
  private follow(before: Model, now: Model): number {
    if (this.list.cursor < 0 || this.list.cursor >= before.plan.count) return -1
    return now.plan.lineOf(before.plan.at(this.list.cursor).row)
  }

  // Actions

  private clicked(index: number, event: MouseEvent): void {
    if (event.target instanceof Element && event.target.closest('.expander')) this.toggle(index)
    else this.run(index)
  }

  /** Selects an allocation; of a group, sets the query that names it, and leaves the other rows in sight. */
  private run(index: number): void {
    const { store, announce } = this.parts
    const { plan, table, groups } = this.now!
    const line = plan.at(index)
    if (line.kind === 'child') return store.set({ select: line.id })
    if (line.kind === 'folded') return store.setOption('table.zeros', 'all')
    if (!groups) return store.set({ select: line.row })
    const query = table.queryOf(line.row)
    if (query === null) {
      announce('No query names this group')
      return store.set({ stack: this.stackOf(line.row) })
    }
    const { options } = store.state
    if (line.kind === 'more') {
      const { 'table.matches': _, 'table.sort': __, ...rest } = options
      store.set({ query, options: { ...rest, 'table.group': 'allocation' } })
    } else if (query === store.state.query) store.set({ query: '', stack: null })
    else {
      // Besides the query, the stack with the most bytes of it is shown beside the table.
      store.set({ query, stack: this.stackOf(line.row), options: { ...options, 'table.matches': 'all' } })
      announce(`Query: ${query}`)
    }
  }

  /** Searches for a row, or leaves it out; of an allocation for its stack and category. */
  private openMenu(index: number, x: number, y: number): void {
    const { store } = this.parts
    const { plan, table, groups } = this.now!
    const line = plan.at(index)
    if (line.kind === 'folded') return
    const id = line.kind === 'child' ? line.id : groups ? -1 : line.row
    const items = id < 0 ? termItems(store, table.queryOf(line.row)) : allocationItems(store, this.context!.data, id)
    openMenu(items, x, y)
  }

  /** The stack with the most bytes of a group at the moment; 0 where none of it has a trace. */
  private stackOf(row: number): number {
    const { data, position } = this.context!
    const { of } = this.now!.groups!
    return dominantStack(stackShares(data, position, (id) => of[id] === row)) ?? 0
  }

  private toggle(index: number): void {
    const { plan, groups } = this.now!
    if (!groups) return this.run(index)
    const { kind, row } = plan.at(index)
    if (kind === 'folded') return this.run(index)
    const { store } = this.parts
    const open = openOf(store.state.options['table.open'])
    const next = open.includes(row) ? open.filter((other) => other !== row) : [...open, row]
    store.setOption('table.open', next.length ? next.join(',') : null)
  }

  // Files

  private heading(): Heading {
    const { state, info, data, position, matches } = this.context!
    const { manifest } = this.parts.client
    const allocated = data.allocated[position]
    return {
      title: manifest.title,
      device: deviceName(manifest, info),
      moment: momentWords(info, position, allocated),
      event: position - 1,
      allocated,
      query: matches && this.now!.matchesOnly ? state.query : '',
      grouping: this.now!.grouping,
    }
  }

  private async save(format: 'csv' | 'json'): Promise<void> {
    if (!this.now) return
    const { table, plan, word } = this.now
    const heading = this.heading()
    this.parts.announce('Writing the file')
    const parts = format === 'csv' ? await tableCsv(table, plan.order) : await tableJson(table, plan.order, heading)
    this.parts.saved(
      download(
        `${fileName(heading.title, heading.device, word)}.${format}`,
        format === 'csv' ? 'text/csv;charset=utf-8' : 'application/json',
        parts,
      ),
    )
  }

  private async copy(): Promise<void> {
    if (!this.now) return
    const copied = await copyText(tableMarkdown(this.now.table, this.now.plan.order, this.heading()))
    this.parts.announce(copied ? 'Copied as Markdown' : 'The browser does not allow copying')
  }
}
