// Stacks across ranks: the least, the median and the most that a brushed rank holds of each, and which rank that is.

import { formatBytes, formatCount } from '../layout/format'
import { button, swatch } from '../ui/controls'
import { fill, h } from '../ui/dom'
import { csvLine, download, fileName } from '../ui/download'
import { categoryColour } from '../views/colours/palettes'
import { css } from '../views/shared/inks'
import type { JobStackName } from '../data/contracts'
import type { JobModel } from './job-model'
import type { JobActions } from './job-state'
import { rankLink } from './links'
import type { Panel } from './panel'
import { SortedList } from './sorted-list'
import { spreadOf } from './statistics'

/** Share of the largest peak below which a stack says nothing on any rank. */
const NO_WEIGHT = 0.001

/** A stack over the brushed rows. */
interface StackRow {
  stack: number
  min: number
  median: number
  max: number
  maxRow: number
  /** Rows that hold any of it. */
  count: number
}

export class StacksPanel implements Panel {
  readonly element: HTMLElement
  private readonly list: SortedList<StackRow>
  private readonly detail = h('div.job-stack', { hidden: true })
  private readonly note = h('p.job-words')
  private readonly fold = h('button.link', { onclick: () => this.toggle() })
  private folded = 0
  private model: JobModel | null = null
  private listed = ''

  constructor(
    private readonly actions: JobActions,
    private readonly saved: (text: string) => void,
  ) {
    const bytes = (value: (row: StackRow) => number) => ({
      isNumber: true,
      value,
      cell: (row: StackRow) => formatBytes(Math.round(value(row))),
    })
    this.list = new SortedList<StackRow>({
      name: 'job-stacks',
      label: 'Stacks across ranks',
      template: 'minmax(156px, 1fr) 78px 78px 78px 78px 56px 72px',
      width: 596,
      columns: [
        {
          key: 'stack',
          title: 'Stack',
          isNumber: false,
          value: (row) => this.nameOf(row.stack),
          cell: (row) => this.nameCell(row.stack),
        },
        { key: 'min', title: 'Min', ...bytes((row) => row.min) },
        { key: 'median', title: 'Median', ...bytes((row) => row.median) },
        { key: 'max', title: 'Max', ...bytes((row) => row.max) },
        { key: 'spread', title: 'Spread', ...bytes((row) => row.max - row.min) },
        {
          key: 'ranks',
          title: 'Ranks',
          isNumber: true,
          value: (row) => row.count,
          cell: (row) => formatCount(row.count),
        },
        {
          key: 'most',
          title: 'Most on',
          isNumber: false,
          value: null,
          cell: (row) => rankLink(this.model!.data, actions, row.maxRow),
        },
      ],
      onPick: ({ stack }) => actions.pickStack(this.model?.state.stack === stack ? null : stack),
      isPicked: ({ stack }) => this.model?.state.stack === stack,
    })
    const csv = button('CSV', 'Save all rows as CSV', () => this.saveCsv())
    this.element = h(
      'div.column.job-stacks',
      h('div.row.wrap.job-bar', this.note, this.fold, csv),
      this.detail,
      this.list.element,
    )
  }

  render(model: JobModel): void {
    this.model = model
    const { data, rows, state } = model
    const listed = `${rows.join()}/${state.isWhole}`
    if (listed !== this.listed || this.list.shown.length === 0) {
      this.listed = listed
      const stacks: StackRow[] = []
      const among = new Set(rows)
      const least = NO_WEIGHT * Math.max(...rows.map((row) => data.peakAllocated[row]))
      this.folded = 0
      for (let stack = 0; stack < data.stackMax.length; stack++) {
        const values = rows.map((row) => data.bytesOfStack(stack, row))
        const [min, , median, , max] = spreadOf(values) ?? [0, 0, 0, 0, 0]
        if (max === 0) continue
        if (max < least) this.folded++
        if (max < least && !state.isWhole) continue
        const most = data.stackMaxRow[stack]
        const maxRow = among.has(most) ? most : rows[values.indexOf(max)]
        stacks.push({ stack, min, median, max, maxRow, count: values.filter((bytes) => bytes > 0).length })
      }
      this.list.setItems(stacks)
    } else this.list.setItems(this.list.shown)
    this.fold.hidden = this.folded === 0
    this.fold.textContent = `${state.isWhole ? 'Fold' : 'List'} the ${formatCount(this.folded)} of less than 0.1%`
    this.note.textContent = `Bytes at each rank's peak, over ${state.rows ? `${formatCount(rows.length)} selected` : `all ${formatCount(rows.length)}`} ranks.`
    this.renderDetail(model)
  }

  key(event: KeyboardEvent): boolean {
    return this.list.key(event)
  }

  debug(): unknown {
    return this.list.shown.map((row) => ({ ...row, name: this.nameOf(row.stack) }))
  }

  /** The chosen stack from the line that allocates; its bytes by rank are the strip beside the map. */
  private renderDetail({ data, state }: JobModel): void {
    this.detail.hidden = state.stack === null
    if (state.stack === null) return
    const { name, frames } = data.manifest.stack_names[state.stack]
    fill(
      this.detail,
      h(
        'div.row.wrap.job-bar',
        h('p.soft', 'The bars beside the map show this stack, innermost frame first:'),
        button('Sort by it', 'Sort the map by this stack', () => this.actions.set({ sort: 'shown' })),
        h('button', { onclick: () => this.actions.pickStack(null) }, 'Clear'),
      ),
      h('ol.mono', ...[name, ...frames].map((frame) => h('li', frame))),
    )
  }

  private toggle(): void {
    this.actions.set({ rows: this.model!.state.isWhole ? null : 'all' })
  }

  private nameOf(stack: number): string {
    return this.model?.data.manifest.stack_names[stack]?.name ?? ''
  }

  private nameCell(stack: number): Node {
    const { data, dark } = this.model!
    const index = data.stackCategory[stack]
    const category = data.manifest.categories[index] ?? 'unknown'
    const mark = swatch(css(categoryColour(category, index, dark)), category)
    const named = data.manifest.stack_names[stack]
    const { frames, name } = named
    return h('span', { title: [name, category, ...frames].join('\n') }, mark, ...labelOf(named))
  }

  private saveCsv(): void {
    const { model } = this
    if (!model) return
    const { data } = model
    const lines = [
      csvLine(['stack', 'category', 'min_bytes', 'median_bytes', 'max_bytes', 'max_rank', 'ranks']),
      ...this.list.shown.map((row) =>
        csvLine([
          this.nameOf(row.stack),
          data.manifest.categories[data.stackCategory[row.stack]] ?? '',
          row.min,
          Math.round(row.median),
          row.max,
          data.keyOf(row.maxRow),
          row.count,
        ]),
      ),
    ]
    this.saved(download(`${fileName(document.title, 'stacks')}.csv`, 'text/csv', lines))
  }
}

/** Its line first, which tells it from others where there is little room, then its function. */
function labelOf({ line, file, name }: JobStackName): (string | Node)[] {
  if (file === '') return ['no stack trace']
  const [first, ...rest] = name.split(' ')
  return line > 0 && rest.length > 0 && first !== '<module>'
    ? [`${rest.join(' ')} `, h('span.soft', first)]
    : [rest.length > 0 && first === '<module>' ? rest.join(' ') : name]
}
