// The table of facts in the details panel, and what it says of an allocation beside its own columns, in one pass over the
// columns each: what had its address before and after, what else its stack allocated, which steps and spans it lived through.

import { type Neighbours, neighboursOf } from '../allocator/neighbours'
import type { DeviceData } from '../data/model'
import { formatAddress, formatBytes, formatBytesExact, formatCount } from '../layout/format'
import { offsetOf } from '../layout/pick'
import { tracksOf } from '../steps/spans'
import { stepsOf } from '../steps/steps'
import { copyButton, h } from '../ui/dom'
import { formatShare, plural } from '../ui/format'
import { describeMoment, describeSpan, nameOfStack } from '../views/shared/describe'
import type { Scene } from '../views/shared/scene'
import { nameOf } from '../views/timeline/span-text'

export type Row = [label: string, value: Node | string | null]

/** What the panel's links do. */
export interface Links {
  showEvent(event: number): void
  select(id: number): void
}

/** Rows without a value are left out. */
export function factsList(rows: readonly Row[]): HTMLElement {
  const list = h('dl')
  for (const [label, value] of rows) {
    if (value === null || value === '') continue
    list.append(h('dt', label), h('dd', value))
  }
  return list
}

const LEFT_OUT = 'not in this report (left out to fit its size)'
const SPANS_SHOWN = 4

export function rowsOf(scene: Scene, data: DeviceData, id: number, links: Links): Row[] {
  const { info } = scene
  const peakPosition = info.peak_event + 1
  const atPeak = data.start[id] <= peakPosition && data.end[id] > peakPosition
  const address = formatAddress(data.addrHi[id], data.addrLo[id])
  const alloc = data.start[id] - 1
  const free = data.end[id] === data.P ? -1 : data.end[id] - 1
  const neighbours = info.left_out.includes('addr_lo') ? { before: -1, after: -1 } : addressHistory(data, id)
  const beside = info.left_out.includes('addr_lo') ? null : neighboursOf(data, id)
  const storedOr = <T>(column: string, value: () => T): T | string =>
    info.left_out.includes(column) ? LEFT_OUT : value()
  const copyAddress = copyButton('Copy', () => address, 'Copy the address')
  const noneAfter = free < 0 ? 'not freed in the trace' : 'nothing recorded'
  const moment = (event: number): Node | null => (event < 0 ? null : momentLink(scene, event, links))
  return [
    ['Allocated at', moment(alloc)],
    [
      'Free requested',
      storedOr('requested', () => (data.freeRequestedEvent[id] === free ? null : moment(data.freeRequestedEvent[id]))),
    ],
    ['Freed at', moment(free) ?? (data.n > 0 ? 'not freed: alive at the end' : null)],
    ['Live for', data.n > 0 ? describeSpan(data, id) : null],
    ['Category', info.categories[data.category[id]] ?? null],
    ['Category from', SOURCE_WORDS[info.category_sources[data.categorySource[id]]] ?? null],
    ['Module', storedOr('module', () => moduleRow(info, data.module[id]))],
    ['Tensor', storedOr('shape', () => tensorRow(info.shapes[data.shape[id]], info.dtypes[data.dtype[id]]))],
    ['Saved by', storedOr('saved_by', () => info.grad_fns[data.savedBy[id]] || null)],
    ['Share of peak', atPeak ? `${formatShare(data.size[id], info.peak_bytes)} of the peak` : 'not live at the peak'],
    ['Origin', originOf(alloc, free)],
    ['Steps', stepsRow(data, id)],
    ['During', duringRow(data, id)],
    ['Address', storedOr('addr_lo', () => h('span.mono', address, ' ', copyAddress))],
    ['Place in stack', placeOf(data, id, atPeak ? peakPosition : data.start[id], atPeak)],
    ['Stream', info.profiled ? null : storedOr('stream', () => info.streams[data.stream[id]] ?? null)],
    ['Pool', storedOr('pool', () => info.pools[data.pool[id]] || null)],
    ['Compile context', storedOr('context', () => info.contexts[data.context[id]] || null)],
    ['Metadata', storedOr('metadata', () => info.metadata[data.metadata[id]] || null)],
    ['Address before', storedOr('addr_lo', () => neighbour(scene, neighbours.before, links, 'nothing recorded'))],
    ['Address after', storedOr('addr_lo', () => neighbour(scene, neighbours.after, links, noneAfter))],
    ['Segment', beside && segmentOf(beside, alloc)],
    ['Below in it', beside && neighbour(scene, beside.below, links, 'nothing')],
    ['Above in it', beside && neighbour(scene, beside.above, links, 'nothing')],
    ['Number', formatCount(id)],
  ]
}

function segmentOf({ bytes, segment }: Neighbours, alloc: number): HTMLElement {
  const when = h('span.soft', alloc < 0 ? '' : ' when it begins')
  return h('span', `${formatBytes(bytes)} at `, h('span.mono', segment), when)
}

function moduleRow({ modules, stats }: Scene['info'], code: number): string | null {
  const path = modules[code]
  return path ? `${path}${stats.modules_source === 'inferred' ? ' (inferred)' : ''}` : null
}

/** A shape that is inferred begins with an asterisk. */
function tensorRow(shape = '', dtype = ''): string | null {
  return shape || dtype
    ? `${[shape, dtype].filter(Boolean).join(' ')}${shape.startsWith('*') ? ' (inferred)' : ''}`
    : null
}

/** Where a category comes from, in words; what is unknown comes from nowhere. */
const SOURCE_WORDS: Readonly<Record<string, string>> = {
  recorded: 'recorded by the program',
  stack: 'its stack trace',
  'freed in': 'how it was freed',
  inferred: 'inferred from phases, sizes and lifetimes',
}

/** An allocation as a link: "16.0 MiB, events 12 – 80" */
export function allocationLink(scene: Scene, id: number, links: Links): HTMLElement {
  const data = scene.data!
  return h(
    'button.link',
    { 'data-allocation': id, title: 'Select this allocation', onclick: () => links.select(id) },
    `${formatBytes(data.size[id])}, ${livedOf(data, id)}`,
  )
}

function livedOf(data: DeviceData, id: number): string {
  const from = data.start[id] === 0 ? 'before the trace' : `event ${formatCount(data.start[id] - 1)}`
  const to = data.end[id] === data.P ? 'alive at the end' : formatCount(data.end[id] - 1)
  return `${from} – ${to}`
}

function neighbour(scene: Scene, id: number, links: Links, none: string): Node | string {
  if (id < 0) return none
  const name = scene.stacks ? nameOfStack(scene.stacks, scene.data!.stack[id]) : ''
  return h('span', allocationLink(scene, id, links), h('span.soft', ` ${name}`))
}

export function momentLink(scene: Scene, event: number, links: Links): HTMLElement {
  const time = describeMoment(scene, event)
  return h(
    'span',
    h(
      'button.link',
      { title: 'Show this event', onclick: () => links.showEvent(event) },
      `event ${formatCount(event)}`,
    ),
    time && h('span.soft', { title: time }, ` ${time}`),
  )
}

function originOf(alloc: number, free: number): string {
  if (alloc >= 0) return 'allocated within the trace'
  return free >= 0
    ? 'from before the trace: only its free was recorded'
    : 'from before the trace: known from the final state'
}

function stepsRow(data: DeviceData, id: number): string | null {
  const lived = stepsLived(data, id)
  if (!lived || lived.count === 0) return null
  const born = data.start[id] === 0 ? 'from before the trace' : `born in ${lived.born ?? 'no step'}`
  const freedText = data.end[id] === data.P ? 'alive at the end' : `freed in ${lived.freed ?? 'no step'}`
  if (lived.born !== null && lived.born === lived.freed) return `${lived.born} alone`
  return `${born}, ${freedText}; lives in ${plural(lived.count, 'step')}`
}

function duringRow(data: DeviceData, id: number): string | null {
  const names = spansAround(data, id)
  if (names.length === 0) return null
  const more = names.length - SPANS_SHOWN
  return names.slice(0, SPANS_SHOWN).join(' › ') + (more > 0 ? ` › ${formatCount(more)} more` : '')
}

function placeOf(data: DeviceData, id: number, position: number, atPeak: boolean): string | null {
  const offset = offsetOf(data, id, position)
  return Number.isNaN(offset)
    ? null
    : `${formatBytesExact(offset)} from the bottom ${atPeak ? 'at the peak' : 'when it begins'}`
}

/** Of the allocations that contained an address: the one before and the one after; -1 for none. */
export interface AddressHistory {
  before: number
  after: number
}

/** Any allocation that covers the first byte counts, not only one that begins there. */
export function addressHistory(d: DeviceData, id: number): AddressHistory {
  const { N, addrHi, addrLo, size, start, end } = d
  const hi = addrHi[id]
  const lo = addrLo[id]
  let before = -1
  let after = -1
  for (let other = 0; other < N; other++) {
    // Exact: addresses near each other differ by less than 2**53.
    const inside = (hi - addrHi[other]) * 2 ** 32 + (lo - addrLo[other])
    if (inside < 0 || (inside >= size[other] && inside !== 0) || other === id) continue
    if (end[other] <= start[id] && (before < 0 || end[other] >= end[before])) before = other
    else if (start[other] >= end[id] && (after < 0 || start[other] < start[after])) after = other
  }
  return { before, after }
}

export interface Siblings {
  /** Allocations with the stack. */
  count: number
  bytes: number
  liveAtPeak: number
  bytesAtPeak: number
  /** At the given position. */
  liveThen: number
  bytesThen: number
  /** The largest of the others, the first born among equals first. */
  largest: number[]
}

/** What a stack allocated; `id`: an allocation left out of the largest, since it is shown already (null: none). */
export function siblingsOf(d: DeviceData, mine: number, id: number | null, most: number, position: number): Siblings {
  const { N, stack, size, start, end } = d
  const peak = d.info.peak_event + 1
  const out: Siblings = { count: 0, bytes: 0, liveAtPeak: 0, bytesAtPeak: 0, liveThen: 0, bytesThen: 0, largest: [] }
  const { largest } = out
  for (let other = 0; other < N; other++) {
    if (stack[other] !== mine) continue
    out.count++
    out.bytes += size[other]
    if (start[other] <= peak && end[other] > peak) {
      out.liveAtPeak++
      out.bytesAtPeak += size[other]
    }
    if (start[other] <= position && end[other] > position) {
      out.liveThen++
      out.bytesThen += size[other]
    }
    if (other === id || (largest.length === most && size[other] <= size[largest[most - 1]])) continue
    let at = largest.length
    while (at > 0 && size[largest[at - 1]] < size[other]) at--
    largest.splice(at, 0, other)
    if (largest.length > most) largest.pop()
  }
  return out
}

/** Names of the steps that it was born in and freed in (null: in none, or alive at the end), and how many it lived through. */
export interface StepsLived {
  born: string | null
  freed: string | null
  count: number
}

/** Null where no steps are known. */
export function stepsLived(d: DeviceData, id: number): StepsLived | null {
  const steps = stepsOf(d.info, d)
  if (!steps) return null
  const from = Math.max(0, d.start[id] - 1)
  const to = Math.min(d.n, d.end[id]) - 1
  let count = 0
  let freed: string | null = null
  for (let step = 0; step < steps.first.length; step++) {
    if (steps.last[step] < from || steps.first[step] > to || steps.last[step] < steps.first[step]) continue
    count++
    if (d.end[id] < d.P && steps.first[step] <= to && to <= steps.last[step]) freed = steps.names[step]
  }
  return { born: steps.of[id] < 0 ? null : steps.names[steps.of[id]], freed, count }
}

/** Annotated spans around its alloc event, the outermost first. */
export function spansAround(d: DeviceData, id: number): string[] {
  const event = d.start[id] - 1
  if (event < 0) return []
  const names: string[] = []
  for (const track of tracksOf(d.info, null)) {
    if (track.kind !== 'annotation') continue
    for (let i = 0; i < track.first.length && track.first[i] <= event; i++)
      if (event <= track.last[i]) names.push(nameOf(track, i))
  }
  return names
}
