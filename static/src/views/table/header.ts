// The head of a table whose columns sort it.

import { h } from '../../ui/dom'
import type { Column } from './columns'
import type { Sorting } from './table-model'

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
