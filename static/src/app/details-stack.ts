// The parts of the details panel that show a stack: alone, with what it allocated, or as the stack of something else.

import { positionOf, stackShares } from '../data/held-memory'
import type { DeviceData, Stacks } from '../data/model'
import type { SourceLines } from '../data/source-links'
import { formatBytes, formatCount } from '../layout/format'
import type { Matches } from '../search/matches'
import { copyButton, h } from '../ui/dom'
import { foldedStack } from '../ui/folded-stack'
import { formatShare, plural } from '../ui/format'
import { stackText } from '../ui/frame-item'
import type { Store } from '../ui/state'
import { framesLine, nameOfStack } from '../views/shared/describe'
import type { Scene } from '../views/shared/scene'
import { WithoutButton } from '../views/shared/controls'
import { allocationLink, type Links, type Siblings, siblingsOf } from './details-rows'
import { remediesPart } from './verdict'

const SIBLINGS_SHOWN = 8
/** Other stacks of the same query that are named. */
const OTHERS_SHOWN = 5

/** What the parts of the panel are made with. */
export interface DetailsParts {
  store: Store
  links: Links
  source: SourceLines | null
}

/** A heading with the number of frames, the switch that unfolds all, and the frames. */
export function stackPart({ store, source }: DetailsParts, stacks: Stacks, stack: number, title: string): Node[] {
  const frames = stacks.frames(stack)
  const { noise } = store.state
  const box = h('input', { type: 'checkbox', checked: noise })
  box.addEventListener('change', () => store.set({ noise: box.checked }))
  return [
    h(
      'div.row.stack-head',
      h('h3', frames.length ? `${title} (${formatCount(frames.length)} frames)` : title),
      frames.length > 0 && h('label.switch', { title: 'Unfold all frames (N)' }, box, 'All'),
      frames.length > 0 && copyButton('Copy', () => stackText(frames, noise), 'Copy the stack trace as text'),
    ),
    foldedStack(frames, stacks.top(stack), noise, source),
  ]
}

/** Everything about one stack: its frames, then what it allocated. `matches`: what the query finds, of which it may be one stack of several. */
export function stackDetails(
  parts: DetailsParts,
  scene: Scene,
  data: DeviceData,
  stacks: Stacks,
  matches: Matches | null,
): Node[] {
  const { store } = parts
  const stack = store.state.stack!
  const query = `stack:${stack}`
  const isFilter = store.state.query === query
  const filter = h(
    'button',
    {
      'aria-pressed': String(isFilter),
      title: 'Highlight the allocations of this stack, in every view',
      onclick: () => store.set({ query: isFilter ? '' : query }),
    },
    isFilter ? 'Clear the query' : 'Search for this stack',
  )
  const without = new WithoutButton(store)
  without.render(query, 'Without this stack', data.info, data, stacks)
  return [
    ...stackPart(parts, stacks, stack, 'Stack trace'),
    ...remediesPart(store.state),
    ...(matches ? othersPart(store, data, stacks, matches, stack) : []),
    h('p.details-actions', filter, ' ', without.element),
    ...allocationsPart(parts, scene, data, stack, null),
  ]
}

/** Where the query finds this stack and others: its share of them, and the others that hold most. */
function othersPart(store: Store, data: DeviceData, stacks: Stacks, { mask }: Matches, stack: number): Node[] {
  const position = positionOf(data.info, store.state.at)
  const shares = stackShares(data, position, (id) => mask[id] === 1)
  const of = shares.some(({ live }) => live > 0) ? 'live' : 'bytes'
  const others = shares.filter((share) => share.stack !== stack && share[of] > 0)
  const own = shares.find((share) => share.stack === stack)
  if (!own || others.length === 0) return []
  const total = shares.reduce((sum, share) => sum + share[of], 0)
  const when = of === 'live' ? (position === data.info.peak_event + 1 ? ' at the peak' : ' at this moment') : ''
  const list = h('ol.sibling-list')
  for (const share of others.slice(0, OTHERS_SHOWN)) {
    const label = `${formatBytes(share[of])}  ${nameOfStack(stacks, share.stack)}`
    const go = () => store.set({ stack: share.stack })
    const title = framesLine(stacks, share.stack) ?? ''
    list.append(h('li', h('button.link', { title, onclick: go }, label)))
  }
  const hidden = others.length - OTHERS_SHOWN
  return [
    h(
      'p.siblings.other-stacks',
      `This stack holds ${formatBytes(own[of])}${when}, ${formatShare(own[of], total)} of what the search finds; ${plural(others.length, 'other stack')}${hidden > 0 ? `, the largest ${OTHERS_SHOWN}` : ''}:`,
    ),
    list,
  ]
}

/** What a stack allocated; `id`: the allocation that is shown already. */
export function allocationsPart(
  { links, store }: DetailsParts,
  scene: Scene,
  data: DeviceData,
  stack: number,
  id: number | null,
): Node[] {
  const position = positionOf(data.info, store.state.at)
  const found = siblingsOf(data, stack, id, SIBLINGS_SHOWN, position)
  const isPeak = position === data.info.peak_event + 1
  const parts: Node[] = [
    h('div.row.stack-head', h('h3', id === null ? 'Its allocations' : 'From the same stack')),
    h(
      'p.siblings',
      `${plural(found.count, 'allocation')}, ${formatBytes(found.bytes)} in all. At the peak `,
      atPeak(found, data),
    ),
  ]
  if (!isPeak && data.n > 0)
    parts.push(
      h(
        'p.siblings',
        `At event ${formatCount(position - 1)}: ${plural(found.liveThen, 'allocation')}, ${formatBytes(found.bytesThen)}.`,
      ),
    )
  if (found.largest.length === 0) return parts
  const list = h('ol.sibling-list')
  for (const other of found.largest) list.append(h('li', allocationLink(scene, other, links)))
  const rest = found.count - (id === null ? 0 : 1) - found.largest.length
  parts.push(h('p.soft', rest > 0 ? `The largest (${formatCount(rest)} more):` : 'Largest first:'), list)
  return parts
}

function atPeak({ liveAtPeak, bytesAtPeak }: Siblings, { info }: DeviceData): string {
  return liveAtPeak
    ? `${formatCount(liveAtPeak)} live with ${formatBytes(bytesAtPeak)}, ${formatShare(bytesAtPeak, info.peak_bytes)} of it.`
    : 'none of them lives.'
}
