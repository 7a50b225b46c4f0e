// The rows of the table: allocations, groups, and under an opened group its largest allocations.

import { formatCount } from '../../layout/format'
import { fill, h } from '../../ui/dom'
import { cssOf } from '../colouring'
import type { ViewContext } from '../view'
import { childText } from './allocation-table'
import type { Column } from './columns'
import type { Model } from './table-model'

export interface TableRow {
  context: ViewContext
  model: Model
  columns: readonly Column[]
  /** Line of the table. */
  index: number
}

export function cell(text: string, isNumber: boolean, tip = text): HTMLElement {
  return h('div', { role: 'gridcell', class: isNumber ? 'cell number' : 'cell', title: tip }, h('span', {}, text))
}

export function fillTableRow(element: HTMLElement, row: TableRow): void {
  const { context, model, index } = row
  const { data, stacks, colouring, state, matches } = context
  const line = model.plan.at(index)
  if (line.kind === 'row') return fillMain(element, row, line.row)
  element.classList.add('child')
  element.setAttribute('aria-level', '2')
  element.removeAttribute('aria-expanded')
  if (line.kind === 'child') {
    element.setAttribute('aria-selected', String(line.id === state.select))
    element.classList.toggle('dim', matches?.mask[line.id] === 0)
    const made = h(
      'div',
      { role: 'gridcell', class: 'cell wide', title: 'Select this allocation (Enter)' },
      childText(data, stacks, line.id),
    )
    made.prepend(swatch(cssOf(colouring, colouring.keys[line.id])))
    fill(element, made)
  } else {
    element.setAttribute('aria-selected', 'false')
    const words =
      line.kind === 'more'
        ? `${formatCount(line.count)} more: list all (Enter)`
        : `${formatCount(line.count)} more with ${zeroWords(model)}: list them (Enter)`
    fill(element, h('div', { role: 'gridcell', class: 'cell wide soft' }, words))
  }
}

/** An allocation or a group. */
function fillMain(element: HTMLElement, { context, model, columns }: TableRow, row: number): void {
  const { state } = context
  const { table, plan } = model
  const isAllocation = model.groups === null
  const isSelected = isAllocation ? row === state.select : table.queryOf(row) === state.query && state.query !== ''
  element.classList.toggle('dim', table.isDim(row))
  element.setAttribute('aria-level', '1')
  element.setAttribute('aria-selected', String(isSelected))
  if (isAllocation) element.removeAttribute('aria-expanded')
  else element.setAttribute('aria-expanded', String(plan.isOpen(row)))
  fill(
    element,
    ...columns.map((column, i) => {
      const text = column.text(row)
      const made = cell(text, column.isNumber, column.tip?.(row) ?? text)
      if (i === 0 && !isAllocation) {
        const title = 'Largest allocations (Space)'
        const arrow = plan.isOpen(row) ? '▾' : '▸'
        made.prepend(h('span', { class: 'expander', 'aria-hidden': true, title }, arrow))
      }
      const colour = (isAllocation ? column.name === 'stack' : i === 0) ? colourOf(context, model, row) : null
      if (colour) made.insertBefore(swatch(colour), made.lastChild)
      return made
    }),
  )
}

/** The common value of the folded rows: "0 B live". */
function zeroWords({ sorting, table, plan }: Model): string {
  const { title, text } = table.columns.find(({ name }) => name === sorting.column)!
  return `${text(plan.order.at(-1)!)} ${title.toLowerCase()}`
}

/** Of an allocation, or of a group that is one colour. */
function colourOf({ colouring }: ViewContext, { groups, sums, grouping }: Model, row: number): string | null {
  if (groups && grouping !== colouring.by) return null
  return cssOf(colouring, colouring.keys[groups ? sums!.first[row] : row])
}

function swatch(colour: string): HTMLElement {
  const mark = h('span', { class: 'swatch' })
  mark.style.background = colour
  return mark
}
