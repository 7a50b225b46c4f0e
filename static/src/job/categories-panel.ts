// Categories across ranks: what the peak of each brushed rank, or of each group's median rank, consists of.

import { formatBytes } from '../layout/format'
import { Segmented, swatch } from '../ui/controls'
import { fill, h } from '../ui/dom'
import { formatShare } from '../ui/format'
import { VirtualList } from '../ui/virtual-list'
import { categoryColour } from '../views/colours/palettes'
import { css } from '../views/shared/inks'
import type { JobModel } from './job-model'
import type { JobActions } from './job-state'
import { beyondWords, type Panel } from './panel'
import { clippedEnd, medianOf } from './statistics'

/** One bar: bytes by category. `row`: of a rank; null: of a group. */
interface Bar {
  name: string
  row: number | null
  group: number
  bytes: number[]
  total: number
}

export class CategoriesPanel implements Panel {
  readonly element: HTMLElement
  private readonly list: VirtualList
  private readonly legend = h('ul.row.wrap.job-legend', { 'aria-label': 'Categories' })
  private readonly modes = new Segmented<'group' | 'rank'>(
    'Bars',
    [
      ['group', 'Per group'],
      ['rank', 'Per rank'],
    ],
    (mode) => this.setMode(mode),
  )
  private readonly words = h('p.job-words')
  private model: JobModel | null = null
  private bars: Bar[] = []
  private end = 1
  private mode: 'group' | 'rank' | null = null

  constructor(private readonly actions: JobActions) {
    this.list = new VirtualList({
      name: 'job-categories',
      label: 'Categories across ranks',
      role: 'grid',
      rowHeight: 24,
      fill: (row, index) => this.fillRow(row, this.bars[index]),
      onClick: (index) => this.pick(this.bars[index]),
    })
    // Each row is a grid of its own: only fixed widths and shares keep their bars under each other.
    this.list.setColumns('minmax(72px, 22%) minmax(160px, 1fr) 84px', 330)
    this.element = h(
      'div.column.job-categories',
      h('div.row.wrap.job-bar', this.modes.element, this.words),
      this.legend,
      this.list.element,
    )
  }

  render(model: JobModel): void {
    this.model = model
    const { data, rows, state } = model
    const { groups, categories } = data.manifest
    const mode = this.mode ?? (rows.length <= 16 || groups.length < 2 ? 'rank' : 'group')
    this.modes.show(mode)
    const bytesOf = (row: number): number[] => categories.map((_, category) => data.bytesOfCategory(category, row))
    this.bars =
      mode === 'rank'
        ? rows.map((row) => barOf(data.nameOf(row), row, data.group[row], bytesOf(row)))
        : groups.map((group, index) => {
            const members = group.rows.filter((row) => state.rows === null || state.rows.has(row))
            const medians = categories.map((_, category) =>
              Math.round(medianOf(members.map((row) => data.bytesOfCategory(category, row)))),
            )
            return barOf(group.name, null, index, members.length ? medians : categories.map(() => 0))
          })
    const totals = this.bars.map(({ total }) => total)
    this.end = Math.max(1, clippedEnd(totals))
    this.words.textContent = [
      'Bytes at the peak.',
      beyondWords('Bars', totals, this.end, (index) => this.bars[index].name),
    ]
      .filter(Boolean)
      .join(' ')
    const isUsed = categories.map((_, category) => this.bars.some(({ bytes }) => bytes[category] > 0))
    fill(
      this.legend,
      ...categories.map((name, category) => isUsed[category] && h('li', this.legendButton(model, name, category))),
    )
    this.list.setRows(this.bars.length)
  }

  key(event: KeyboardEvent): boolean {
    if (event.key === 'Enter' && this.list.cursor >= 0) return (this.pick(this.bars[this.list.cursor]), true)
    return this.list.key(event)
  }

  debug(): unknown {
    return this.bars
  }

  private setMode(mode: 'group' | 'rank'): void {
    this.mode = mode
    if (this.model) this.render(this.model)
  }

  private pick({ row, group }: Bar): void {
    if (row === null) this.actions.brushGroup(this.model?.state.group === group ? null : group)
    else this.actions.pickRow(row)
  }

  private legendButton({ state, dark }: JobModel, name: string, category: number): HTMLElement {
    const isShown = state.category === category
    return h(
      'button',
      {
        'aria-pressed': String(isShown),
        title: isShown ? 'Show the peak beside the map' : 'Show this category beside the map',
        onclick: () => this.actions.pickCategory(isShown ? null : category),
      },
      swatch(css(categoryColour(name, category, dark))),
      name,
    )
  }

  private fillRow(row: HTMLElement, { name, bytes, total, row: index }: Bar): void {
    const { data, dark, state } = this.model!
    row.setAttribute('aria-selected', String(index !== null && index === state.row))
    const bar = h('span', { class: total > this.end ? 'job-stacked clipped' : 'job-stacked' })
    const lines: string[] = []
    let room = this.end
    bytes.forEach((value, category) => {
      if (value <= 0) return
      const title = `${data.manifest.categories[category]}: ${formatBytes(value)}, ${formatShare(value, total)}`
      const part = h('span', { title })
      part.style.width = `${(100 * Math.min(value, room)) / this.end}%`
      room = Math.max(0, room - value)
      part.style.background = css(categoryColour(data.manifest.categories[category], category, dark))
      bar.append(part)
      lines.push(title)
    })
    row.replaceChildren(
      h('span.cell', { role: 'gridcell' }, h('span', { title: name }, name)),
      h('span.cell', { role: 'gridcell', 'aria-label': lines.join('; ') }, bar),
      h('span.cell.number', { role: 'gridcell' }, formatBytes(total)),
    )
  }
}

function barOf(name: string, row: number | null, group: number, bytes: number[]): Bar {
  return { name, row, group, bytes, total: bytes.reduce((sum, value) => sum + value, 0) }
}
