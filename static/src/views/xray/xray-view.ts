// The view "xray": the tree of the program's modules with what each holds at a moment, by category, and over the trace.

import type { ModuleMemory } from '../../data/contracts'
import { formatBytes, formatCount, formatShare } from '../../layout/format'
import { quoted } from '../../search/grammar'
import { fill, h, setText } from '../../ui/dom'
import { capital, plural } from '../../ui/format'
import { VirtualList } from '../../ui/virtual-list'
import { Memo } from '../memo'
import { MomentBar } from '../moment'
import { fitting, templateOf, widthOf } from '../shared/column-fit'
import { openMenu, termItems } from '../shared/context-menu'
import type { View, ViewContext, ViewParts } from '../view'
import { listed, type ModuleNode, ModuleRows, moduleTree, openAtFirst, peaksOfParts } from './module-tree'

const ROW_HEIGHT = 26
/** Pixels of a letter of a class, on the average. */
const LETTER = 7.5
/** Lines that are open at first. */
const ROOM = 24
/** Bars of a curve. */
const PARTS = 24
const BARS = '▁▂▃▄▅▆▇█'
/** The others are one column. */
const OWN_COLUMN = ['parameter', 'gradient', 'optimizer state', 'activation', 'temporary']

interface Column {
  name: string
  title: string
  hint: string
  width: number
  grow: number
  most?: number
  level: 1 | 2 | 3
  kind: 'name' | 'text' | 'number' | 'bar' | 'curve'
  text(node: ModuleNode): string
}

interface Model {
  lines: ModuleNode[]
  open: (node: ModuleNode) => boolean
  columns: Column[]
  bytesOf: (node: ModuleNode) => number
  whole: number
  outside: number
}

export class XrayView implements View {
  readonly element: HTMLElement
  readonly tools: HTMLElement
  private readonly moment: MomentBar
  private readonly list: VirtualList
  private readonly note = h('p.table-words', { role: 'status' })
  private readonly fold: HTMLButtonElement
  private readonly rows = new Memo<ModuleRows>()
  private readonly curves = new Memo<Float64Array>()
  private readonly live = new Memo<Float64Array>()
  private readonly tree = new Memo<{ tops: ModuleNode[]; open: Set<ModuleNode> }>()
  private readonly models = new Memo<Model>()
  private context: ViewContext | null = null
  private now: Model | null = null
  private columns: Column[] = []
  private drawn: readonly unknown[] = []

  constructor(private readonly parts: ViewParts) {
    const { store } = parts
    this.moment = new MomentBar(store)
    this.fold = h(
      'button',
      {
        title: 'One row for numbered modules that are built alike, or one for each',
        onclick: () => store.setOption('xray.alike', store.state.options['xray.alike'] ? null : 'apart'),
      },
      'Fold alike',
    )
    this.tools = h('div.row.wrap', this.fold)
    this.list = new VirtualList({
      name: 'xray',
      label: 'Modules',
      role: 'treegrid',
      rowHeight: ROW_HEIGHT,
      fill: (row, index) => this.fillRow(row, index),
      onClick: (index, event) => this.clicked(index, event),
      onMenu: (index, x, y) => openMenu(termItems(store, queryOf(this.now!.lines[index])), x, y),
      onEnter: (index) => this.search(index),
      onSpace: (index) => this.toggle(index),
    })
    this.list.element.classList.add('table', 'xray')
    this.element = h(
      'section.column.table-view',
      { 'aria-label': 'X-ray' },
      this.moment.element,
      this.note,
      this.list.element,
    )
  }

  prepare({ data, info }: ViewContext): void {
    this.rowsOf(data, info.stats.modules ?? [])
  }

  show(context: ViewContext): void {
    const { state, info, position } = context
    this.context = context
    this.moment.render(context)
    const model = this.modelOf(context)
    this.now = model
    this.fold.setAttribute('aria-pressed', String(!state.options['xray.alike']))
    const moment =
      position - 1 === info.peak_event
        ? 'the peak'
        : position === 0
          ? 'the beginning'
          : `event ${formatCount(position - 1)}`
    const modules = info.stats.modules ?? []
    const numbers = modules.some(({ module }) => /\.\d/.test(module)) ? ', with the numbers of layers' : ''
    const origin =
      info.stats.modules_source === 'inferred'
        ? `${plural(modules.length, 'place')} inferred from the lines of forward in stack traces${numbers}`
        : `${plural(modules.length, 'module')} noted by the recorder`
    setText(
      this.note,
      model.lines.length === 0
        ? 'No modules were recorded.'
        : `${formatBytes(model.whole)} at ${moment}, ${formatBytes(model.outside)} of it without a module. ${capital(origin)}. Click one to search for its allocations.`,
    )
    const columns = fitting(model.columns, this.element.clientWidth - 16)
    const key = [model, columns.length, state.query, this.element.clientWidth, this.element.clientHeight]
    if (key.every((part, i) => part === this.drawn[i])) return
    this.drawn = key
    this.columns = columns
    const cells = columns.map(({ title, hint, kind }) =>
      h('div', { role: 'columnheader', class: classOf(kind), title: hint }, h('span', title)),
    )
    fill(this.list.head, h('div.list-row', { role: 'row', 'aria-rowindex': 1 }, ...cells))
    this.list.setColumns(templateOf(columns, 620), widthOf(columns))
    this.list.element.setAttribute('aria-colcount', String(columns.length))
    this.list.setRows(model.lines.length, this.list.cursor < model.lines.length ? this.list.cursor : -1)
  }

  settled(): Promise<void> {
    return this.list.settled()
  }

  key(event: KeyboardEvent): boolean {
    return this.list.key(event) || this.moment.key(event)
  }

  debug(): unknown {
    const { now } = this
    return (
      now && {
        rows: now.lines.map((node) => ({ path: node.path, modules: node.members.length, bytes: now.bytesOf(node) })),
        columns: this.columns.map(({ name }) => name),
        outside: now.outside,
        cursor: this.list.cursor,
      }
    )
  }

  private rowsOf(data: ViewContext['data'], modules: readonly ModuleMemory[]): ModuleRows {
    return this.rows.get([data], () => new ModuleRows(data, modules))
  }

  private modelOf({ data, info, position, state }: ViewContext): Model {
    const modules = info.stats.modules ?? []
    const rows = this.rowsOf(data, modules)
    const { 'xray.alike': apart, 'xray.toggled': changed } = state.options
    const tree = this.tree.get([modules, apart], () => {
      const tops = moduleTree(modules, !apart)
      return { tops, open: openAtFirst(tops, ROOM, modules) }
    })
    const live = this.live.get([rows, position], () => rows.liveAt(position))
    const samples = Math.min(PARTS, data.P)
    const curves = this.curves.get([rows], () => rows.curves(peaksOfParts(data.allocated, samples)))
    return this.models.get([tree, live, curves, changed], () => {
      const toggled = new Set(changed?.split('~'))
      const open = (node: ModuleNode): boolean => tree.open.has(node) !== toggled.has(node.path)
      const kinds = info.categories
      const sum = (node: ModuleNode, has: (kind: string) => boolean): number =>
        node.members.reduce(
          (all, row) =>
            all + kinds.reduce((bytes, kind, k) => bytes + (has(kind) ? live[row * kinds.length + k] : 0), 0),
          0,
        )
      const bytesOf = (node: ModuleNode): number => sum(node, () => true)
      const whole = data.allocated[position]
      const outside = whole - tree.tops.reduce((all, node) => all + bytesOf(node), 0)
      const curve = (node: ModuleNode): string => {
        const values = Array.from({ length: samples }, (_, i) =>
          node.members.reduce((all, row) => all + curves[row * samples + i], 0),
        )
        const most = Math.max(...values)
        return values.map((value) => (value > 0 ? BARS[Math.ceil((value / most) * 8) - 1] : ' ')).join('')
      }
      const column = (
        name: string,
        title: string,
        hint: string,
        level: Column['level'],
        width: number,
        kind: Column['kind'],
        text: Column['text'],
      ): Column => ({ name, title, hint, level, width, kind, text, grow: 0 })
      const bytes = (name: string, level: 2 | 3, hint: string, has: (kind: string) => boolean): Column =>
        column(name, capital(name), hint, level, name === 'optimizer state' ? 138 : 96, 'number', (node) =>
          bytesText(sum(node, has)),
        )
      const longest = Math.max(0, ...modules.map(({ kind }) => kind?.length ?? 0))
      const ofPath = 'The path of a module; "0–9" are ten that are built alike'
      const ofCurve = `Live bytes in ${samples} parts of the trace, each where most is allocated; a full bar is the most of this row`
      const columns: Column[] = [
        { ...column('module', 'Module', ofPath, 1, 236, 'name', nameOf), grow: 1 },
        {
          ...column('class', 'Class', 'Its class', 3, 130, 'text', ({ kind }) => kind),
          grow: 1,
          most: Math.max(130, 16 + LETTER * longest),
        },
        column('live', 'Live', 'Bytes of it and all below it that are live at the moment', 1, 88, 'number', (node) =>
          formatBytes(bytesOf(node)),
        ),
        column('share', 'Share', 'Of what is allocated at the moment', 2, 72, 'bar', (node) =>
          formatShare(bytesOf(node), whole),
        ),
        ...OWN_COLUMN.map((name) =>
          bytes(name, 2, `Of these, ${name === 'activation' ? 'activations' : name}`, (kind) => kind === name),
        ),
        bytes(
          'other',
          3,
          'Of these, all else, such as inputs, workspaces and what has no category',
          (kind) => !OWN_COLUMN.includes(kind),
        ),
        column('curve', 'Over the trace', ofCurve, 2, 208, 'curve', curve),
        column('allocations', 'Allocations', 'Over the whole trace', 3, 104, 'number', ({ members }) =>
          formatCount(members.reduce((all, row) => all + modules[row].allocations, 0)),
        ),
      ]
      // Lines of forward have no class.
      if (longest === 0) columns.splice(1, 1)
      return { lines: listed(tree.tops, open), open, columns, bytesOf, whole, outside }
    })
  }

  private fillRow(element: HTMLElement, index: number): void {
    const { lines, open, bytesOf, whole } = this.now!
    const node = lines[index]
    const isParent = node.below.length > 0
    element.setAttribute('aria-level', String(node.depth + 1))
    element.setAttribute('aria-selected', String(queryOf(node) === this.context!.state.query))
    if (isParent) element.setAttribute('aria-expanded', String(open(node)))
    else element.removeAttribute('aria-expanded')
    const cells = this.columns.map(({ kind, text, name }) => {
      const words = text(node)
      const cell = h(
        'div',
        { role: 'gridcell', class: classOf(kind), title: kind === 'name' ? node.path : words },
        h('span', words),
      )
      if (kind === 'bar') cell.style.setProperty('--bar', `${whole > 0 ? (100 * bytesOf(node)) / whole : 0}%`)
      if (name === 'module') {
        cell.style.paddingLeft = `${8 + 16 * node.depth}px`
        cell.prepend(h('span.expander', { 'aria-hidden': true }, isParent ? (open(node) ? '▾' : '▸') : ''))
      }
      return cell
    })
    fill(element, ...cells)
  }

  private clicked(index: number, event: MouseEvent): void {
    if (event.target instanceof Element && event.target.closest('.expander')) this.toggle(index)
    else this.search(index)
  }

  /** What the module and those below it allocate is what all views search for; a second time it is not. */
  private search(index: number): void {
    const { store, announce } = this.parts
    const query = queryOf(this.now!.lines[index])
    store.set({ query: query === store.state.query ? '' : query })
    announce(store.state.query ? `Query: ${query}` : 'No query')
  }

  private toggle(index: number): void {
    const { store } = this.parts
    const node = this.now!.lines[index]
    if (node.below.length === 0) return
    const toggled = new Set(store.state.options['xray.toggled']?.split('~'))
    if (!toggled.delete(node.path)) toggled.add(node.path)
    store.setOption('xray.toggled', toggled.size > 0 ? [...toggled].join('~') : null)
  }
}

/** A model has the name of its class: what its own lines allocate stands beside its modules. */
function nameOf({ name, kind, members, below }: ModuleNode): string {
  if (name === kind && below.length === 0) return `${name} itself`
  return members.length > 1 ? `${name} × ${members.length}` : name
}

/** In quotes an asterisk would stand for itself. */
function queryOf({ path }: ModuleNode): string {
  return `module:${/^[\w.*-]+$/.test(path) ? path : quoted(path)}`
}

/** Nothing is seen at once as nothing. */
function bytesText(bytes: number): string {
  return bytes === 0 ? '–' : formatBytes(bytes)
}

function classOf(kind: Column['kind']): string {
  if (kind === 'name') return 'cell named'
  return kind === 'bar'
    ? 'cell number bar'
    : kind === 'number'
      ? 'cell number'
      : kind === 'curve'
        ? 'cell curve'
        : 'cell'
}
