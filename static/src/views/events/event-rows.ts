// The head and the rows of the list of events, and the sentence about what is listed.

import type { DeviceInfo, Stacks } from '../../data/model'
import { formatBytes, formatCount } from '../../layout/format'
import type { Matches } from '../../search/matches'
import { swatch } from '../../ui/controls'
import { fill, h } from '../../ui/dom'
import { csvLine } from '../../ui/download'
import { formatOffset, plural } from '../../ui/format'
import { frameLabel, writeFrameLabel } from '../../ui/frame-label'
import { cssOf } from '../colouring'
import { framesLine } from '../shared/describe'
import type { ViewContext } from '../view'
import type { EventIndex } from './event-index'
import { type EventRecord, recordOf } from './event-record'

/** The most names of steps and regions in a row. */
const NAMED = 2

const LEFT_OUT: readonly [string, string][] = [
  ['requested', 'when each free was requested'],
  ['times', 'the time of each event'],
  ['free_stack', 'who freed each allocation'],
  ['addr_lo', 'addresses of allocations'],
  ['stream', 'streams of allocations'],
]

interface EventRow {
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
  const left = LEFT_OUT.filter(([name]) => info.left_out.includes(name)).map(([, words]) => words)
  return (
    (listed === null ? events : `${formatCount(listed)} of ${events} listed`) +
    (matches ? `; ${formatCount(matches.count)} of ${plural(info.allocations, 'allocation')} match` : '') +
    (left.length ? `. Not in this report: ${left.join(', ')}` : '')
  )
}

export function headRow(columns: readonly EventColumn[]): HTMLElement {
  const cells = columns.map(({ title, isNumber }) =>
    h('div', { role: 'columnheader', class: isNumber ? 'cell number' : 'cell' }, h('span', title)),
  )
  return h('div.list-row', { role: 'row', 'aria-rowindex': 1 }, ...cells)
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
      const words = isStack ? frameLabel('') : h('span', text)
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
        made.prepend(swatch(record.id < 0 ? null : cssOf(colouring, colouring.keys[record.id])))
      }
      return made
    }),
  )
  element.classList.toggle('boundary', begun.length > 0)
  if (begun.length === 0) return
  const more = begun.length > NAMED ? ` and ${formatCount(begun.length - NAMED)} more` : ''
  const words = begun.slice(0, NAMED).join(', ') + more
  element.append(h('span.clip.boundary-name', { title: `Begins here: ${begun.join(', ')}` }, words))
}

export interface EventColumn {
  name: string
  title: string
  width: number
  /** Width that it should have before a column of level 3 has any. */
  wanted?: number
  grow: number
  /** 1: always shown; 2, 3: dropped where the window is narrow. */
  level: 1 | 2 | 3
  isNumber: boolean
  text(record: EventRecord): string
  tip?(record: EventRecord): string
}

/** `hasTimes`: the report holds the times of this device, or will. */
export function eventColumns(info: DeviceInfo, stacks: Stacks, hasTimes: boolean): EventColumn[] {
  const column = (
    name: string,
    title: string,
    level: 1 | 2 | 3,
    width: number,
    text: EventColumn['text'],
    more: Partial<EventColumn> = {},
  ): EventColumn => ({ name, title, level, width, text, grow: 0, isNumber: true, ...more })
  const missing = (what: string, value: string | null): string =>
    info.left_out.includes(what) ? 'left out' : (value ?? '–')
  return [
    column('event', 'Event', 1, widthOfCount(info.events), ({ event }) => formatCount(event)),
    ...(hasTimes ? [column('time', 'Time', 2, 116, ({ us }) => (us === null ? '…' : formatOffset(us)))] : []),
    column('action', 'Action', 1, 118, ({ action }) => action, { isNumber: false }),
    column('size', 'Size', 1, 80, ({ size }) => (size === null ? 'left out' : formatBytes(size)), {
      tip: ({ size }) => (size === null ? '' : `${formatCount(size)} B`),
    }),
    column('address', 'Address', 3, 132, ({ address }) => missing('addr_lo', address)),
    column('stream', 'Stream', 3, 84, ({ stream }) => missing('stream', stream)),
    column('allocated', 'Allocated', 2, 92, ({ allocated }) => formatBytes(allocated), {
      tip: ({ allocated }) => `${formatCount(allocated)} B`,
    }),
    column('stack', 'Stack', 1, 80, (record) => stackWords(stacks, record), {
      grow: 1,
      wanted: 220,
      isNumber: false,
      tip: (record) => stackTip(stacks, record),
    }),
  ]
}

/** Pixels for numbers up to `most`: on a phone, what is saved here shows more of the file's name in the last column. */
function widthOfCount(most: number): number {
  return Math.max(58, 20 + 7.5 * String(most).length)
}

function stackWords(stacks: Stacks, record: EventRecord): string {
  return stackParts(stacks, record).join('')
}

/** What is said before the frames, and the frames in one line. */
function stackParts(stacks: Stacks, { stack, isRequests, deviceFree }: EventRecord): [string, string] {
  const frames = stack === null ? 'left out' : framesLine(stacks, stack)
  const free = deviceFree === null ? '' : `${formatBytes(deviceFree)} free on the device; `
  return [free + (isRequests && stack !== null && frames ? 'requested by ' : ''), frames ?? '–']
}

function stackTip(stacks: Stacks, record: EventRecord): string {
  return (
    stackWords(stacks, record) +
    (record.isRequests ? '\nThe stack of the free request. That of its completion is not in the report.' : '')
  )
}

export const CSV_HEAD = csvLine([
  'event',
  'time_us',
  'action',
  'size',
  'address',
  'stream',
  'allocated_after',
  'allocation',
  'device_free',
  'stack',
  'stack_of',
  'function',
  'file',
  'line',
])

/** One event of the file; `time_us` on the recorder's clock. */
export function csvRow(info: DeviceInfo, stacks: Stacks, record: EventRecord): string {
  const { event, us, action, size, address, stream, allocated, id, deviceFree, stack, isRequests } = record
  const top = stack === null ? null : stacks.top(stack)
  return csvLine([
    event,
    us === null || info.time0 === null ? null : info.time0 + us,
    action,
    size,
    address,
    stream,
    allocated,
    id < 0 ? null : id,
    deviceFree,
    stack,
    top ? (isRequests ? 'request' : 'event') : null,
    top?.name ?? null,
    top?.filename ?? null,
    top?.line ?? null,
  ])
}
