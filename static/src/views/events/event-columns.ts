// The columns of the list of events, on screen and in its file.

import type { DeviceInfo, Stacks } from '../../data/model'
import { formatBytes, formatCount } from '../../layout/format'
import { csvLine } from '../../ui/download'
import { formatOffset } from '../../ui/format'
import { framesLine } from '../shared/describe'
import type { EventRecord } from './event-record'

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
    info.leftOut.includes(what) ? 'left out' : (value ?? '–')
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
export function stackParts(stacks: Stacks, { stack, isRequests, deviceFree }: EventRecord): [string, string] {
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
