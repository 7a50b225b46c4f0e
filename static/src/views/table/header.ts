// The head of a table whose columns sort it.

import { append, h } from '../../ui/dom'
import type { Column } from './columns'
import type { Sorting } from './table-model'

/** `onSort`: a click on a column. */
export function headRow(columns: readonly Column[], onSort: (column: Column) => void): HTMLElement {
  return h(
    'div.list-row',
    { role: 'row', 'aria-rowindex': 1 },
    ...columns.map((column) => {
      const button = h(
        'button',
        { title: [`${column.hint}. Sort by it.`, column.note].filter(Boolean).join('\n'), 'data-column': column.name },
        column.title,
        column.note ? h('span.soft.mono', ` ${column.note}`) : null,
      )
      button.addEventListener('click', () => onSort(column))
      return h('div', { role: 'columnheader', class: column.isNumber ? 'cell number' : 'cell' }, button)
    }),
  )
}

/** Says by which column and in which direction the table is sorted. */
export function markSorted(head: Element, columns: readonly Column[], { column, descending }: Sorting): void {
  const cells = head.firstElementChild!.children
  columns.forEach(({ name }, i) => {
    const isSorted = name === column
    const order = isSorted ? (descending ? 'descending' : 'ascending') : 'none'
    if (cells[i].getAttribute('aria-sort') === order) return
    cells[i].setAttribute('aria-sort', order)
    const button = cells[i].firstElementChild!
    button.querySelector('.sort-mark')?.remove()
    if (isSorted) append(button, h('span.sort-mark', { 'aria-hidden': true }, descending ? '▾' : '▴'))
  })
}
