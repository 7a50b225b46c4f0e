// A virtual list with a head whose columns sort it: shared by the tables of stacks and of ranks.

import { h } from '../ui/dom'
import { naturalOrder } from './job-model'
import { VirtualList } from '../ui/virtual-list'

export interface ListColumn<T> {
  key: string
  title: string
  isNumber: boolean
  /** What it is sorted by; numbers the greatest first, texts ascending. Null: no order by it. */
  value: ((item: T) => number | string) | null
  /** The cell's content. */
  cell(item: T): Node | string
}

export interface SortedListOwner<T> {
  name: string
  label: string
  columns: readonly ListColumn<T>[]
  /** CSS grid template, and the least width in pixels of all. */
  template: string
  width: number
  onPick(item: T): void
  /** A class of the row. */
  isPicked(item: T): boolean
}

const ROW_HEIGHT = 24

export class SortedList<T> {
  readonly element: HTMLElement
  private readonly list: VirtualList
  private items: readonly T[] = []
  private sorted: T[] = []
  private by: { key: string; isReversed: boolean } | null = null
  private readonly heads = new Map<string, HTMLElement>()

  constructor(private readonly owner: SortedListOwner<T>) {
    this.list = new VirtualList({
      name: owner.name,
      label: owner.label,
      role: 'grid',
      rowHeight: ROW_HEIGHT,
      fill: (row, index) => this.fillRow(row, this.sorted[index]),
      onClick: (index, event) => {
        if (!(event.target instanceof Element && event.target.closest('a'))) owner.onPick(this.sorted[index])
      },
    })
    this.list.setColumns(owner.template, owner.width)
    this.list.head.append(
      h(
        'div.list-row',
        { role: 'row' },
        ...owner.columns.map((column) => {
          const head = h(
            'span',
            { role: 'columnheader', class: column.isNumber ? 'cell number' : 'cell', 'aria-sort': 'none' },
            column.value ? h('button', { onclick: () => this.sortBy(column.key) }, column.title) : column.title,
          )
          this.heads.set(column.key, head)
          return head
        }),
      ),
    )
    this.element = this.list.element
  }

  /** Sets the items, in the given order unless the reader chose one. */
  setItems(items: readonly T[]): void {
    this.items = items
    this.sort()
  }

  key(event: KeyboardEvent): boolean {
    if (event.key === 'Enter' && this.list.cursor >= 0) return (this.owner.onPick(this.sorted[this.list.cursor]), true)
    return this.list.key(event)
  }

  get shown(): readonly T[] {
    return this.sorted
  }

  private sortBy(key: string): void {
    const isAgain = this.by?.key === key
    // Sorts ascending, then descending, then by the order of the map again.
    if (isAgain && this.by!.isReversed) this.by = null
    else this.by = { key, isReversed: isAgain }
    this.sort()
  }

  private sort(): void {
    const { by } = this
    const column = by && this.owner.columns.find(({ key }) => key === by.key)
    this.sorted = [...this.items]
    if (by && column?.value) {
      const { value } = column
      const sign = by.isReversed ? -1 : 1
      this.sorted.sort((a, b) => sign * compare(value(a), value(b)))
    }
    for (const [key, head] of this.heads) {
      const isBy = key === by?.key
      const isDown = isBy && column!.isNumber !== by!.isReversed
      head.setAttribute('aria-sort', isBy ? (isDown ? 'descending' : 'ascending') : 'none')
      const mark = head.querySelector('.sort-mark')
      mark?.remove()
      if (isBy) head.firstElementChild?.append(h('span.sort-mark', { 'aria-hidden': 'true' }, isDown ? '▾' : '▴'))
    }
    this.list.setRows(this.sorted.length)
  }

  private fillRow(row: HTMLElement, item: T): void {
    row.setAttribute('aria-selected', String(this.owner.isPicked(item)))
    row.replaceChildren(
      ...this.owner.columns.map((column) =>
        h('span', { role: 'gridcell', class: column.isNumber ? 'cell number' : 'cell' }, column.cell(item)),
      ),
    )
  }
}

function compare(a: number | string, b: number | string): number {
  if (typeof a === 'number' && typeof b === 'number') return b - a
  return naturalOrder(String(a), String(b))
}
