// The table of single allocations.

import type { DeviceData, DeviceInfo, Stacks } from '../../data/model'
import { formatAddress, formatBytes, formatCount } from '../../layout/format'
import { nameOfStack } from '../shared/describe'
import { type Column, bytes, type Field, field, numbers, plain, shares, spans, type Table } from './columns'
import { frameFields } from './group-table'
import { keysOfWords, NONE, ranksOf } from './order'
import { eventsLived, usLived } from './sums'

export interface AllocationParts {
  info: DeviceInfo
  data: DeviceData
  stacks: Stacks
  /** Ids, ascending. */
  rows: Int32Array
  /** 1 for what matches the query; null without one. */
  matched: Uint8Array | null
  position: number
}

/** `mask`: 1 for allocations that count; null: all. */
export function allocationRows({ N }: DeviceData, mask: Uint8Array | null): Int32Array {
  const rows = new Int32Array(N)
  let count = 0
  for (let id = 0; id < N; id++) if (!mask || mask[id] === 1) rows[count++] = id
  return rows.slice(0, count)
}

export function allocationTable(parts: AllocationParts): Table {
  const { rows, matched } = parts
  return {
    columns: columnsOf(parts, rows),
    fields: fieldsOf(parts, rows),
    rows,
    isDim: (id) => matched !== null && matched[id] === 0,
    queryOf: () => null,
  }
}

function columnsOf(parts: AllocationParts, rows: Int32Array): Column[] {
  const { info, data, stacks } = parts
  const { size, start, end, P } = data
  const live = liveBytes(data, parts.position)
  const peak = liveBytes(data, info.peak_event + 1)
  const isOpen = (id: number): boolean => start[id] === 0 || end[id] === P
  const event = (number: number): number => (number < 0 ? NaN : number)
  const timeUs = data.n > 0 ? data.timeUs : null
  const columns: Column[] = [
    numbers(
      { name: 'id', title: 'Number', hint: 'Allocations in the order in which they were made', level: 1, width: 86 },
      (id) => id,
      formatCount,
    ),
    bytes(
      { name: 'size', title: 'Size', hint: 'Bytes as the program requested them', level: 1 },
      (id) => size[id],
      sum(rows, (id) => size[id]),
    ),
    text(
      {
        name: 'stack',
        title: 'Stack top',
        hint: 'The line of the program in its stack trace',
        level: 1,
        width: 150,
        wanted: 240,
        grow: 1,
        isFrame: true,
      },
      data.stack,
      stacks.count,
      (stack) => nameOfStack(stacks, stack),
    ),
    text(
      { name: 'category', title: 'Category', hint: 'What it is for, by its stack and lifetime', level: 2, width: 104 },
      data.category,
      info.categories.length,
      (i) => info.categories[i] ?? '',
    ),
    ...metadataColumn(parts),
    numbers(
      { name: 'alloc', title: 'Allocated', hint: 'Event at which it begins', level: 2, width: 90 },
      (id) => event(start[id] - 1),
      formatCount,
    ),
    numbers(
      { name: 'free', title: 'Freed', hint: 'Event at which it ends', level: 2, width: 90 },
      (id) => (end[id] === P ? NaN : end[id] - 1),
      formatCount,
    ),
    spans(
      {
        name: 'lifetime',
        title: 'Events',
        hint: 'Lifetime in events; at least that where an end lies outside the trace',
        level: 3,
        width: 92,
      },
      (id) => (data.n > 0 ? eventsLived(data, id) : NaN),
      isOpen,
      'events',
      null,
    ),
  ]
  if (timeUs) {
    columns.push(
      spans(
        {
          name: 'time',
          title: 'Time',
          hint: 'Lifetime; at least that where an end lies outside the trace',
          level: 3,
          width: 92,
        },
        (id) => usLived(data, timeUs, id),
        isOpen,
        'us',
        null,
      ),
    )
  }
  if (!info.left_out.includes('addr_lo')) columns.push(addressColumn(data))
  if (!info.left_out.includes('stream'))
    columns.push(
      text(
        { name: 'stream', title: 'Stream', hint: 'Stream it was allocated on', level: 3, width: 74 },
        data.stream,
        info.streams.length,
        (i) => info.streams[i] ?? '',
      ),
    )
  if (!info.left_out.includes('pool'))
    columns.push(
      text(
        { name: 'pool', title: 'Pool', hint: 'Memory pool', level: 3, width: 74 },
        data.pool,
        info.pools.length,
        (i) => info.pools[i] ?? '',
      ),
    )
  columns.push(
    bytes(
      { name: 'live', title: 'Live', hint: 'Bytes live at the moment', level: 3, width: 84 },
      live,
      sum(rows, live),
    ),
    bytes(
      { name: 'peak', title: 'At peak', hint: 'Bytes live at the peak', level: 3, width: 84 },
      peak,
      sum(rows, peak),
    ),
    shares(
      { name: 'share', title: 'Of peak', hint: 'Share of the bytes that were allocated at the peak', level: 3 },
      peak,
      info.peak_bytes,
      sum(rows, peak),
    ),
  )
  return columns
}

/** None where the recording names nothing: an annotated tensor's name, or what the program set as metadata. */
function metadataColumn({ info, data }: AllocationParts): Column[] {
  if (!info.metadata.some(Boolean)) return []
  return [
    text(
      { name: 'metadata', title: 'Metadata', hint: 'Names and other metadata in the recording', level: 2, width: 120 },
      data.metadata,
      info.metadata.length,
      (i) => info.metadata[i],
    ),
  ]
}

function liveBytes({ start, end, size }: DeviceData, position: number): (id: number) => number {
  return (id) => (start[id] <= position && end[id] > position ? size[id] : 0)
}

function sum(rows: Int32Array, of: (row: number) => number): number {
  let all = 0
  for (let i = 0; i < rows.length; i++) all += of(rows[i])
  return all
}

/** A column of few texts, which rows name by number. */
function text(
  shape: Pick<Column, 'name' | 'title' | 'hint' | 'level' | 'width'> & Partial<Column>,
  numberOf: ArrayLike<number>,
  count: number,
  nameOf: (number: number) => string,
): Column {
  return {
    grow: 0,
    isNumber: false,
    tip: null,
    total: null,
    text: (row) => nameOf(numberOf[row]) || '–',
    keys: (rows) => {
      // Names of the numbers that occur alone: finding a stack's top takes a walk through its frames.
      const used = new Uint8Array(count)
      for (let i = 0; i < rows.length; i++) used[numberOf[rows[i]]] = 1
      const numbers = [...used.keys()].filter((number) => used[number])
      const rankOf = new Uint32Array(count)
      ranksOf(numbers.map(nameOf)).forEach((rank, i) => {
        rankOf[numbers[i]] = nameOf(numbers[i]) === '' ? NONE : rank
      })
      const lo = new Uint32Array(rows.length)
      for (let i = 0; i < rows.length; i++) lo[i] = rankOf[numberOf[rows[i]]]
      return { hi: null, lo }
    },
    ...shape,
  }
}

function addressColumn({ addrHi, addrLo }: DeviceData): Column {
  return {
    name: 'address',
    title: 'Address',
    hint: 'Where it began',
    level: 3,
    width: 146,
    grow: 0,
    isNumber: true,
    tip: null,
    total: null,
    text: (id) => formatAddress(addrHi[id], addrLo[id]),
    keys: (rows) => {
      const hi = new Uint32Array(rows.length)
      const lo = new Uint32Array(rows.length)
      for (let i = 0; i < rows.length; i++) {
        hi[i] = addrHi[rows[i]]
        lo[i] = addrLo[rows[i]]
      }
      return keysOfWords(hi, lo)
    },
  }
}

function fieldsOf({ info, data, stacks, position }: AllocationParts, rows: Int32Array): Field[] {
  const live = liveBytes(data, position)
  const peak = liveBytes(data, info.peak_event + 1)
  const timeUs = data.n > 0 ? data.timeUs : null
  const share = (bytes: number): number | null => (info.peak_bytes > 0 ? bytes / info.peak_bytes : null)
  const event = (number: number): number | null => (number < 0 ? null : number)
  const has = (column: string): boolean => !info.left_out.includes(column)
  return [
    field('id', (id) => id),
    field(
      'size',
      (id) => data.size[id],
      sum(rows, (id) => data.size[id]),
    ),
    field('address', (id) => (has('addr_lo') ? formatAddress(data.addrHi[id], data.addrLo[id]) : null)),
    field('alloc_event', (id) => event(data.start[id] - 1)),
    field('free_requested_event', (id) => event(data.freeRequestedEvent[id])),
    field('free_event', (id) => (data.end[id] === data.P ? null : data.end[id] - 1)),
    field('lifetime_events', (id) => (data.n > 0 ? eventsLived(data, id) : null)),
    field('lifetime_us', (id) => (timeUs ? plain(usLived(data, timeUs, id)) : null)),
    field('open_ended', (id) => (data.start[id] === 0 || data.end[id] === data.P ? 1 : 0)),
    field('stack', (id) => data.stack[id]),
    ...frameFields(stacks, (id) => data.stack[id]),
    field('category', (id) => info.categories[data.category[id]] || null),
    field('category_source', (id) => info.category_sources[data.categorySource[id]] || null),
    field('user_metadata', (id) => info.metadata[data.metadata[id]] || null),
    field('stream', (id) => (has('stream') ? info.streams[data.stream[id]] || null : null)),
    field('pool', (id) => info.pools[data.pool[id]] || null),
    field('origin', (id) => (id < info.ghosts ? 'ghost' : id < info.ghosts + info.freed ? 'freed' : 'traced')),
    field('live_bytes', live, sum(rows, live)),
    field('peak_bytes', peak, sum(rows, peak)),
    field('peak_share', (id) => share(peak(id)), share(sum(rows, peak))),
  ]
}

/** One line for an allocation under its group. */
export function childText(data: DeviceData, stacks: Stacks, id: number): string {
  return `#${formatCount(id)}  ${formatBytes(data.size[id])}  ${nameOfStack(stacks, data.stack[id])}`
}
