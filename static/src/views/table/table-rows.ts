// The rows of the table: allocations, groups, and under an opened group its largest allocations.

import { formatCount } from '../../layout/format'
import { swatch } from '../../ui/controls'
import { fill, h, setText } from '../../ui/dom'
import { frameLabel, writeFrameLabel } from '../../ui/frame-label'
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
  return h('div', { role: 'gridcell', class: isNumber ? 'cell number' : 'cell', title: tip }, h('span', text))
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
      'div.cell.wide',
      { role: 'gridcell', title: 'Select this allocation (Enter)' },
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
    fill(element, h('div.cell.wide.soft', { role: 'gridcell' }, words))
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
  const cells = cellsOf(element, columns)
  columns.forEach((column, i) => {
    const made = cells[i]
    const text = column.text(row)
    writeCell(made, column, text, column.tip?.(row) ?? text, column.bar?.(row))
    if (i === 0 && !isAllocation) writeExpander(made, plan.isOpen(row))
    const isColoured = isAllocation ? column.name === 'stack' : i === 0
    if (isColoured) writeSwatch(made, colourOf(context, model, row))
    else if (column.name === 'category' && !isAllocation) writeSwatch(made, categoryColour(context, model, row))
  })
}

/** The cells of a row; those of the row that the element showed before, where there are as many. */
function cellsOf(element: HTMLElement, columns: readonly Column[]): HTMLElement[] {
  const cells = [...element.children] as HTMLElement[]
  // Lines of one cell are those under a group.
  const isSame = cells.length === columns.length && cells.every((one, i) => one.className === classOf(columns[i]))
  if (isSame) return cells
  const made = columns.map((column) => {
    const words = column.isFrame ? frameLabel('') : h('span')
    return h('div', { role: 'gridcell', class: classOf(column) }, words)
  })
  fill(element, ...made)
  return made
}

function classOf({ isNumber, isFrame, bar }: Column): string {
  return isFrame ? 'cell named' : bar ? 'cell number bar' : isNumber ? 'cell number' : 'cell'
}

/** Writes what changes: a new cell would be styled and laid out whatever it says. */
function writeCell(made: HTMLElement, { isFrame }: Column, text: string, tip: string, bar: number | undefined): void {
  if (made.title !== tip) made.title = tip
  if (bar !== undefined) made.style.setProperty('--bar', `${(100 * bar).toFixed(1)}%`)
  const words = made.lastElementChild as HTMLElement
  if (isFrame) writeFrameLabel(words, text)
  else setText(words, text)
}

function writeExpander(made: HTMLElement, isOpen: boolean): void {
  let mark = made.querySelector('.expander')
  if (!mark) {
    mark = h('span.expander', { 'aria-hidden': true, title: 'Largest allocations (Space)' })
    made.prepend(mark)
  }
  setText(mark, isOpen ? '▾' : '▸')
}

/** null: none. */
function writeSwatch(made: HTMLElement, colour: string | null): void {
  const mark = made.querySelector<HTMLElement>('.swatch')
  if (!colour) mark?.remove()
  else if (mark) mark.style.background = colour
  else made.insertBefore(swatch(colour), made.lastElementChild)
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

/** Of a group's main category, where colours stand for categories. */
function categoryColour({ colouring }: ViewContext, { mainCategory }: Model, row: number): string | null {
  const category = mainCategory?.[row] ?? -1
  return colouring.by === 'category' && category >= 0 ? cssOf(colouring, category) : null
}
