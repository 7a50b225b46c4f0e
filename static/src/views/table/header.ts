// The head of a table whose columns sort it, and the template that head, rows and foot share.

import { h } from '../../ui/dom'
import type { Column } from './columns'
import type { Sorting } from './table-model'

/** How much room a column wants. */
type Wide = Pick<Column, 'width' | 'grow' | 'level'>

/** Columns that have room: the least telling go first, and of these the last. Those of level 1 stay. */
export function fitting<C extends Wide>(columns: readonly C[], width: number): C[] {
  const kept = [...columns]
  for (let room = width - widthOf(kept), level = 3; level > 1 && room < 0; ) {
    const last = kept.map((column) => column.level === level).lastIndexOf(true)
    if (last < 0) level--
    else room += kept.splice(last, 1)[0].width
  }
  return kept
}

export function widthOf(columns: readonly Wide[]): number {
  return columns.reduce((sum, { width }) => sum + width, 0)
}

export function templateOf(columns: readonly Wide[]): string {
  return columns.map(({ width, grow }) => (grow > 0 ? `minmax(${width}px, ${grow}fr)` : `${width}px`)).join(' ')
}

export function headRow(
  columns: readonly Column[],
  sorting: Sorting,
  onSort: (column: string, descending: boolean) => void,
): HTMLElement {
  return h(
    'div',
    { role: 'row', class: 'list-row', 'aria-rowindex': 1 },
    ...columns.map((column) => {
      const isSorted = column.name === sorting.column
      const button = h(
        'button',
        { type: 'button', title: `${column.hint}. Sort by it.`, 'data-column': column.name },
        column.title,
        isSorted && h('span', { class: 'sort-mark', 'aria-hidden': true }, sorting.descending ? '▾' : '▴'),
      )
      // Numbers begin with the largest, names with the first.
      button.addEventListener('click', () => onSort(column.name, isSorted ? !sorting.descending : column.isNumber))
      return h(
        'div',
        {
          role: 'columnheader',
          class: column.isNumber ? 'cell number' : 'cell',
          'aria-sort': isSorted ? (sorting.descending ? 'descending' : 'ascending') : 'none',
        },
        button,
      )
    }),
  )
}
