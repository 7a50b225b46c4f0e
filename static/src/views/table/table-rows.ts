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
  const cells = cellsOf(element, columns.length)
  columns.forEach((column, i) => {
    const text = column.text(row)
    const colour = (isAllocation ? column.name === 'stack' : i === 0) ? colourOf(context, model, row) : null
    const marks: HTMLElement[] = []
    if (i === 0 && !isAllocation) {
      const title = 'Largest allocations (Space)'
      marks.push(h('span', { class: 'expander', 'aria-hidden': true, title }, plan.isOpen(row) ? '▾' : '▸'))
    }
    if (colour) marks.push(swatch(colour))
    writeCell(cells[i], text, column.isNumber, column.tip?.(row) ?? text, marks)
  })
}

/** The cells of a row; those of the row that the element showed before, where there are as many. */
function cellsOf(element: HTMLElement, count: number): HTMLElement[] {
  const cells = [...element.children] as HTMLElement[]
  if (cells.length === count && !cells[0]?.classList.contains('wide')) return cells
  const made = Array.from({ length: count }, () => cell('', false))
  fill(element, ...made)
  return made
}

/** Writes what changes: a new cell would be styled and laid out whatever it says. */
function writeCell(
  made: HTMLElement,
  text: string,
  isNumber: boolean,
  tip: string,
  marks: readonly HTMLElement[],
): void {
  const name = isNumber ? 'cell number' : 'cell'
  if (made.className !== name) made.className = name
  if (made.title !== tip) made.title = tip
  const words = made.lastElementChild!
  if (words.textContent !== text) words.textContent = text
  while (made.firstElementChild !== words) made.firstElementChild!.remove()
  for (const mark of marks) made.insertBefore(mark, words)
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
