// The part of the details panel that sums a range of events: what they allocate and free, in all and by stack.

import type { DeviceData, Stacks } from '../data/model'
import { formatBytes, formatCount, formatDuration } from '../layout/format'
import type { Matches } from '../search/matches'
import { h } from '../ui/dom'
import { formatChange, plural } from '../ui/format'
import { patched, type Store } from '../ui/state'
import { framesLine, nameOfStack } from '../views/shared/describe'
import { type EventRange, sumsInRange } from '../views/shared/range-sums'
import { factsList } from './details-rows'

/** Stacks named before the rest is left to the table. */
const STACKS_SHOWN = 12

/** `matches`: of the query, to which the sums are limited; null: everything counts. */
export function rangeDetails(
  store: Store,
  data: DeviceData,
  stacks: Stacks,
  range: EventRange,
  matches: Matches | null,
): Node[] {
  const { first, last } = range
  const sums = sumsInRange(data, { count: stacks.count, of: data.stack }, matches?.mask ?? null, range)
  const { allocated, freed, births, frees, peak, peakOfAll } = sums
  const sum = (values: Float64Array): number => values.reduce((all, value) => all + value, 0)
  const net = (stack: number): number => allocated[stack] - freed[stack]
  const used = [...births.keys()].filter((stack) => births[stack] + frees[stack] > 0)
  used.sort((a, b) => Math.abs(net(b)) - Math.abs(net(a)) || peak[b] - peak[a] || a - b)
  const list = h('ol.sibling-list')
  for (const stack of used.slice(0, STACKS_SHOWN)) {
    const title = framesLine(stacks, stack) ?? ''
    const find = () => store.set({ stack, query: `stack:${stack}` })
    const [born, gone, most] = [allocated, freed, peak].map((bytes) => formatBytes(bytes[stack]))
    list.append(
      h(
        'li',
        h('button.link', { title, onclick: find }, `${formatChange(net(stack))}  ${nameOfStack(stacks, stack)}`),
        h('div.soft', `${born} allocated, ${gone} freed, peak ${most}`),
      ),
    )
  }
  const us = data.timeUs && last > first ? data.timeUs[last] - data.timeUs[first] : null
  const toTable = (): void => {
    const whole = { 'table.group': null, 'table.sort': null, 'table.range': 'window' }
    store.set({ view: 'table', options: patched(store.state.options, whole) })
  }
  return [
    h(
      'p.siblings',
      [plural(last - first + 1, 'event'), us !== null && formatDuration(us)].filter(Boolean).join(', '),
      ...(matches ? [', of what the search finds'] : []),
    ),
    factsList([
      ['Allocated', `${formatBytes(sum(allocated))} in ${plural(sum(births), 'allocation')}`],
      ['Freed', `${formatBytes(sum(freed))} in ${plural(sum(frees), 'free')}`],
      ['Net', formatChange(sum(allocated) - sum(freed))],
      ['Peak', formatBytes(peakOfAll)],
    ]),
    h(
      'p.details-actions',
      h('button', { onclick: toTable }, `${plural(used.length, 'stack')} in the table`),
      ' ',
      h('button', { onclick: () => store.close() }, 'Clear the range'),
    ),
    used.length > 0 && h('h3', 'By stack'),
    list,
  ].filter((part) => part !== false)
}

/** "Events 120 to 480" */
export function rangeTitle({ first, last }: EventRange): string {
  return `Events ${formatCount(first)} to ${formatCount(last)}`
}
