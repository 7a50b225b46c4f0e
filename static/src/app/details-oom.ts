// The details of an out-of-memory event: which code requested how much, what was free, and what memory was used for.

import { heldByCategory, heldByLine } from '../data/held-memory'
import type { OomEntry } from '../data/contracts'
import { oomFigures } from '../data/manifest'
import type { DeviceData, OomFigures, Stacks } from '../data/model'
import { formatBytes, formatBytesExact, formatCount } from '../layout/format'
import { h } from '../ui/dom'
import { formatShare, plural } from '../ui/format'
import { quoted } from '../search/grammar'
import { describeFrame } from '../views/shared/describe'
import type { Scene } from '../views/shared/scene'
import { factsList, momentLink, type Row } from './details-rows'
import { type DetailsParts, stackPart } from './details-stack'
import { remediesPart } from './verdict'

/** Rows of a breakdown; all of them are in the table. */
const MOST = 6
/** The part of all memory below which a part explains nothing: functions are in sight instead of categories of a few KiB. */
const LEAST = 0.01

export function oomTitle({ requested }: OomEntry): string {
  return `Out of memory: ${formatBytes(requested)} requested`
}

export function oomDetails(parts: DetailsParts, scene: Scene, data: DeviceData, stacks: Stacks, oom: OomEntry): Node[] {
  const { event, requested } = oom
  const figures = oomFigures(oom)
  const row = data.other.event.indexOf(event)
  const stack = row < 0 ? 0 : data.other.stack[row]
  const rows: Row[] = [['Requested', withExact(requested)], ...(figures ? figureRows(figures) : [])]
  rows.push(['At', momentLink(scene, event, parts.links)])
  const facts = factsList(rows)
  facts.classList.add('pairs')
  // Values too long for half a line have a line of their own.
  for (const label of facts.querySelectorAll('dt'))
    if (label.textContent === 'Allocated' || label.textContent === 'At') label.classList.add('long')
  return [
    ...(figures ? [h('p.oom-cause', verdictSentence(figures))] : []),
    ...(stacks.frames(stack).length
      ? stackPart(parts, stacks, stack, 'Stack trace of the request')
      : [h('p.soft', 'No stack trace was recorded with the request.'), ...lastStackPart(parts, data, stacks, event)]),
    facts,
    ...(figures ? [] : [h('p.soft', 'Free memory is computed for the first 32 failures of a device.')]),
    ...heldPart(parts, data, stacks, event),
    ...remediesPart(parts.store.state),
  ]
}

/** Why it failed, in a sentence; see snapreport/findings/oom.py for what each verdict means. */
export function verdictSentence(figures: OomFigures): string {
  const { verdict, shortfall, largest_usable, usable, other_stream, other_pool, other_size, device_free } = figures
  const locked = other_stream + other_pool + other_size
  switch (verdict) {
    case 'demand':
      return `Not enough memory: the request was ${formatBytes(shortfall)} larger than all free, cached and pending memory.`
    case 'fragmentation':
      return `Fragmentation: ${formatBytes(usable)} cached for it, but the largest free block was ${formatBytes(largest_usable)}.`
    case 'pool-locked':
      return `${formatBytes(locked)} were cached, but for other streams, private pools or requests of another size.`
    case 'mixed':
      return `${formatBytes(usable + locked)} were cached, but in pieces or where this request could not use them.`
    case 'limit':
      return `${formatBytes(device_free ?? 0)} were free on the device: the process had a limit, or the driver refused.`
    case 'unclear':
      return `A free block of ${formatBytes(largest_usable)} was cached: the recording does not show why it was not used.`
  }
}

/** "68.0 MiB", and every byte of it when pointed at. */
function withExact(bytes: number): HTMLElement {
  return h('span', { title: formatBytesExact(bytes) }, formatBytes(bytes))
}

/** Parts that explain nothing are left out. */
function figureRows(figures: OomFigures): Row[] {
  const { segment, device_free, usable, largest_usable, other_stream, other_pool, other_size, pending, reserved } =
    figures
  const some = (bytes: number): string | null => (bytes >= LEAST * reserved && bytes > 0 ? formatBytes(bytes) : null)
  return [
    ['Segment needed', segment === null ? null : formatBytes(segment)],
    ['Free on the device', device_free === null ? 'not recorded' : formatBytes(device_free)],
    ['Cached and usable', formatBytes(usable)],
    ['Largest free block', usable > 0 ? formatBytes(largest_usable) : null],
    ['Cached, other streams', some(other_stream)],
    ['Cached, other pools', some(other_pool)],
    ['Cached, other sizes', some(other_size)],
    ['Pending free', some(pending)],
    ['Shortfall', figures.shortfall > 0 ? formatBytes(figures.shortfall) : 'none in total'],
    ['Allocated', `${formatBytes(figures.allocated)} of ${formatBytes(reserved)} reserved`],
    ['Rounding', some(figures.rounding)],
  ]
}

/** Where the request has no stack: the last event before it that has one, usually near it in the program. */
function lastStackPart(parts: DetailsParts, data: DeviceData, stacks: Stacks, event: number): Node[] {
  let last = -1
  // Birth order: no allocation starts before an older one.
  for (let id = 0; id < data.N && data.start[id] <= event; id++) if (data.stack[id] > 0) last = id
  if (last < 0 || data.start[last] === 0) return []
  const title = `Last stack trace before it, event ${formatCount(data.start[last] - 1)}`
  return stackPart(parts, stacks, data.stack[last], title)
}

function heldPart({ store }: DetailsParts, data: DeviceData, stacks: Stacks, event: number): Node[] {
  const position = event + 1
  const total = data.allocated[position]
  if (total <= 0) return []
  const { info } = data
  const button = (name: string, bytes: number, title: string, run: () => void): HTMLElement =>
    h(
      'li',
      h(
        'button.quiet.small.row.held',
        { title, onclick: run },
        h('span.clip.fill', name),
        h('span.held-bytes', `${formatBytes(bytes)}  ${formatShare(bytes, total)}`),
      ),
    )
  const categories = heldByCategory(data, position).filter(({ bytes }) => bytes >= LEAST * total)
  const lines = heldByLine(data, stacks, position)
  return [
    h('div.row.stack-head', h('h3', `Allocated: ${formatBytes(total)}, by category and function`)),
    h(
      'ol.row.wrap.held-chips',
      { 'data-held': 'category', 'aria-label': 'By category' },
      ...categories.slice(0, MOST).map(({ category, bytes }) => {
        const name = info.categories[category]
        const query = `live:${event} category:${quoted(name)}`
        return button(name, bytes, `Search for ${query}`, () => store.set({ query }))
      }),
    ),
    h(
      'ol',
      { 'data-held': 'function', 'aria-label': 'By function' },
      ...lines
        .slice(0, MOST)
        .map(({ frame, bytes, stack }) =>
          button(frame ? describeFrame(frame) : 'no stack trace recorded', bytes, 'Show its largest stack trace', () =>
            store.set({ stack }),
          ),
        ),
    ),
    ...(lines.length > MOST ? [h('p.soft', `and ${plural(lines.length - MOST, 'more function')}`)] : []),
  ]
}
