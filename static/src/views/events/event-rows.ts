// The head and the rows of the list of events, and the sentence about what is listed.

import type { DeviceInfo } from '../../data/model'
import { formatCount } from '../../layout/format'
import type { Matches } from '../../search/matches'
import { fill, h } from '../../ui/dom'
import { plural } from '../../ui/format'
import { frameLabel, writeFrameLabel } from '../../ui/frame-label'
import { cssOf } from '../colouring'
import type { ViewContext } from '../view'
import { type EventColumn, stackParts } from './event-columns'
import type { EventIndex } from './event-index'
import { recordOf } from './event-record'

/** The most names of steps and regions in a row. */
const NAMED = 2

const LEFT_OUT: readonly [string, string][] = [
  ['requested', 'when each free was requested'],
  ['times', 'the time of each event'],
  ['free_stack', 'who freed each allocation'],
  ['addr_lo', 'addresses of allocations'],
  ['stream', 'streams of allocations'],
]

export interface EventRow {
  context: ViewContext
  index: EventIndex
  event: number
  columns: readonly EventColumn[]
  /** Names of the steps and regions that begin between the row before and this one. */
  begun: readonly string[]
}

/** `listed`: events that are listed; null: all of them. */
export function describeListed(info: DeviceInfo, listed: number | null, matches: Matches | null): string {
  const events = plural(info.events, 'event')
  const left = LEFT_OUT.filter(([name]) => info.leftOut.includes(name)).map(([, words]) => words)
  return (
    (listed === null ? events : `${formatCount(listed)} of ${events} listed`) +
    (matches ? `; ${formatCount(matches.count)} of ${plural(info.allocations, 'allocation')} match` : '') +
    (left.length ? `. Not in this report: ${left.join(', ')}` : '')
  )
}

export function headRow(columns: readonly EventColumn[]): HTMLElement {
  const cells = columns.map(({ title, isNumber }) =>
    h('div', { role: 'columnheader', class: isNumber ? 'cell number' : 'cell' }, h('span', {}, title)),
  )
  return h('div', { role: 'row', class: 'list-row', 'aria-rowindex': 1 }, ...cells)
}

export function fillEventRow(element: HTMLElement, { context, index, event, columns, begun }: EventRow): void {
  const { state, info, data, stacks, matches, position, colouring } = context
  const record = recordOf(info, data, index, event)
  const isSelected =
    (state.select !== null && (record.id === state.select || index.replaced.get(event) === state.select)) ||
    state.oom === event
  element.dataset.event = String(event)
  element.setAttribute('aria-selected', String(isSelected))
  if (event === position - 1) element.setAttribute('aria-current', 'true')
  else element.removeAttribute('aria-current')
  element.classList.toggle('dim', matches !== null && (record.id < 0 || matches.mask[record.id] === 0))
  element.classList.toggle('oom', record.action === 'oom')
  fill(
    element,
    ...columns.map((column) => {
      const text = column.text(record)
      const isStack = column.name === 'stack'
      const words = isStack ? frameLabel('') : h('span', {}, text)
      const made = h(
        'div',
        {
          role: 'gridcell',
          class: isStack ? 'cell named' : column.isNumber ? 'cell number' : 'cell',
          title: column.tip?.(record) ?? text,
          'data-column': column.name,
        },
        words,
      )
      if (isStack) {
        const [before, frames] = stackParts(stacks, record)
        writeFrameLabel(words, frames, before)
        // Without an allocation it has no colour, but the space keeps texts aligned.
        const mark = h('span', { class: 'swatch' })
        if (record.id >= 0) mark.style.background = cssOf(colouring, colouring.keys[record.id])
        made.prepend(mark)
      }
      return made
    }),
  )
  element.classList.toggle('boundary', begun.length > 0)
  if (begun.length === 0) return
  const more = begun.length > NAMED ? ` and ${formatCount(begun.length - NAMED)} more` : ''
  const words = begun.slice(0, NAMED).join(', ') + more
  element.append(h('span', { class: 'boundary-name', title: `Begins here: ${begun.join(', ')}` }, words))
}
