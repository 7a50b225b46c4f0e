// The legend: what the colours stand for, and how much each holds at the moment. A click on an entry filters by it.

import { dominantStack, positionOf, stackShares } from '../data/held-memory'
import type { DeviceData, DeviceInfo } from '../data/model'
import { atEvent, formatBytes, formatCount } from '../layout/format'
import { deviceLabel } from '../ui/devices'
import { h } from '../ui/dom'
import { formatShare, plural } from '../ui/format'
import { frameLabel } from '../ui/frame-label'
import type { State, ViewName } from '../ui/state'
import { Throttle } from '../ui/throttle'
import { type Colouring, cssOf } from '../views/colouring'
import { byBytes, type Held, heldAt, inferredAt, keysUsed } from '../views/colours/held'
import type { Page } from './page'
import type { Split } from './split'
import type { Stage } from './stage'
import { colourTitle } from './colour-select'
import { remembered } from '../data/remembered'
import { Memo } from '../views/memo'

/** Rows of entries; what they have no place for is counted. */
const ROWS = 3
/** In one column the list scrolls. */
const MOST_IN_COLUMN = 12
/** On a window smaller than this it is closed unless it was opened. */
const ROOMY = '(min-width: 701px) and (min-height: 701px)'

/** So often it follows the pointer: its numbers cannot be read faster, and writing them takes as long as all else of a frame. */
const HOVER_MS = 250

interface Parts extends Page {
  stage: Stage
  split(): Split
}

interface Shown {
  info: DeviceInfo
  data: DeviceData
  colouring: Colouring
  position: number
  /** The name of the pane it belongs to; null where there is only one. */
  pane: string | null
}

interface Entry {
  item: HTMLElement
  button: HTMLButtonElement
  numbers: HTMLElement
}

export class Legend {
  readonly element: HTMLElement
  private readonly toggle = h('button.quiet.small.legend-toggle', { 'aria-controls': 'legend-entries' })
  private readonly list = h('ul', { id: 'legend-entries', 'aria-label': 'Colours' })
  private readonly more = h('span.soft.clip.legend-more')
  private readonly elements = new Memo<Map<number, Entry>>()
  private readonly roomy = matchMedia(ROOMY)
  private columns = 1
  private readonly used = new Memo<number[]>()
  private drawn = ''
  private shown: Shown | null = null
  private readonly hover = new Throttle(() => this.show(), HOVER_MS)

  constructor(private readonly page: Parts) {
    const { store } = page
    this.toggle.addEventListener('click', () => store.setOption('legend.open', this.isOpen(store.state) ? 'no' : 'yes'))
    this.roomy.addEventListener('change', () => this.redraw())
    new ResizeObserver(() => this.measure()).observe(this.list)
    this.element = h('section.legend', { 'aria-label': 'Legend' }, h('div.row', this.toggle, this.more), this.list)
  }

  /** Of the position under the pointer, which takes precedence over the state's moment. */
  show(): void {
    const { client, timeline, stage, split, store } = this.page
    const { state } = store
    const scene = timeline.currentScene
    const colouring = scene?.info.index === state.device ? stage.colouringOf(state, scene) : null
    const data = scene?.data
    this.element.hidden = !hasLegend(state, state.view) || !colouring || !data || data.N === 0
    if (this.element.hidden || !colouring || !data) return
    const { info } = data
    const hovered = state.view === 'timeline' ? timeline.hoveredPosition : null
    const position = hovered ?? positionOf(info, state.at)
    const pane = split().pane ? `First pane, ${deviceLabel(client.manifest, info)}` : null
    const key = [info.index, position, state.query, this.isOpen(state), pane, state.view, scene.isChanged].join()
    if (key === this.drawn && this.shown?.colouring === colouring) return
    this.drawn = key
    this.shown = { info, data, colouring, position, pane }
    this.draw(state, this.shown)
  }

  /** The pointer may be over another column. */
  showSoon(): void {
    this.hover.request()
  }

  /** Pixels that a view has more than the one on screen, since it has no legend below it. */
  roomWithout(view: ViewName): number {
    return hasLegend(this.page.store.state, view) ? 0 : this.element.offsetHeight
  }

  /** What is on screen. */
  get entries(): { css: string; text: string }[] {
    if (this.element.hidden) return []
    return [...this.element.querySelectorAll('li')].map((item) => ({
      css: item.querySelector<HTMLElement>('.swatch')?.style.backgroundColor ?? '',
      text: [...(item.firstElementChild?.children ?? [])]
        .map((part) => (part.textContent ?? '').replace(/\s+/g, ' ').trim())
        .filter(Boolean)
        .join(' '),
    }))
  }

  /** Shows what still waits. */
  flush(): void {
    this.hover.flush()
  }

  /** Every key that occurs, for tests: what the legend would show had it room for all. */
  debug(): unknown {
    if (!this.shown) return null
    const { data, colouring, position } = this.shown
    const bytesAt = heldAt(data, colouring, position)
    const inferred = colouring.by === 'category' ? inferredAt(data, colouring, position) : null
    return {
      position,
      entries: byBytes(this.keysOf(this.shown), bytesAt).map((key) => ({
        key,
        name: colouring.nameOf(key),
        query: colouring.queryOf(key),
        bytes: bytesAt.bytes[key],
        count: bytesAt.count[key],
        inferred: inferred?.[key] ?? 0,
        css: cssOf(colouring, key),
      })),
    }
  }

  private isOpen({ options }: State): boolean {
    const choice = options['legend.open']
    return choice === 'yes' || (choice !== 'no' && this.roomy.matches)
  }

  /** The columns of the list, once it is laid out. */
  private measure(): void {
    const columns = getComputedStyle(this.list).gridTemplateColumns.split(' ').length
    if (columns === this.columns || this.list.offsetWidth === 0) return
    this.columns = columns
    this.redraw()
  }

  /** As many entries as are seen without scrolling. */
  private get room(): number {
    return this.columns > 1 ? ROWS * this.columns : MOST_IN_COLUMN
  }

  private redraw(): void {
    this.drawn = ''
    if (this.shown) this.show()
  }

  private draw(state: State, shown: Shown): void {
    const { data, colouring, position, pane } = shown
    const total = data.allocated[position]
    const isOpen = this.isOpen(state)
    this.toggle.setAttribute('aria-expanded', String(isOpen))
    this.toggle.title = isOpen ? 'Hide the legend' : 'Show the legend'
    const title = `${isOpen ? '▾' : '▸'} ${colourTitle(colouring.by)}`
    if (this.toggle.textContent !== title) this.toggle.textContent = title
    this.list.hidden = !isOpen
    const used = this.keysOf(shown)
    const held = heldAt(data, colouring, position)
    // Keys with no bytes at the moment are only counted.
    const order = byBytes(used, held)
      .slice(0, this.room)
      .filter((key, i) => held.count[key] > 0 || i === 0)
    const isChanged = state.view === 'timeline' && this.page.timeline.currentScene?.isChanged
    const moment = `${pane ? `${pane}, ` : ''}${wordsOf(shown.info, position)}, ${formatBytes(total)}${isChanged ? ' as recorded' : ''}`
    const rest = used.filter((key) => held.count[key] > 0).length - order.length
    this.more.textContent =
      colouring.missing ??
      (isOpen && rest > 0
        ? `${moment}: the ${order.length} that hold most; ${restOf(rest, order, held, total)}`
        : moment)
    const inferred = colouring.by === 'category' ? inferredAt(data, colouring, position) : null
    if (isOpen && colouring.hatched && order.some((key) => inferred?.[key]))
      this.more.textContent += '; hatched: the category is inferred'
    this.more.title = this.more.textContent
    if (!isOpen) return
    // As high as all that occur need, though few may be held at the moment: the picture above does not jump under the pointer.
    this.list.style.setProperty('--rows', String(Math.ceil(Math.min(used.length, this.room) / this.columns)))
    const items = order.map((key) => this.entryOf(key, shown, held, inferred?.[key] ?? 0, total, state.query))
    // Entries keep their elements, and only those are moved whose place is another's, so that the focus stays.
    items.forEach((item, i) => {
      const here = this.list.children[i] ?? null
      if (here !== item) this.list.insertBefore(item, here)
    })
    while (this.list.children.length > items.length) this.list.lastElementChild!.remove()
  }

  private keysOf({ data, colouring }: Shown): number[] {
    return this.used.get([data, colouring.version], () => keysUsed(colouring))
  }

  /** The stack with the most bytes of a colour at the shown moment. */
  private stackOf(key: number): number | null {
    const { data, colouring, info } = this.shown!
    const position = positionOf(info, this.page.store.state.at)
    return dominantStack(stackShares(data, position, (id) => colouring.keys[id] === key))
  }

  private entryOf(
    key: number,
    { data, colouring }: Shown,
    held: Held,
    inferred: number,
    total: number,
    query: string,
  ): HTMLElement {
    const keyQuery = colouring.queryOf(key)
    const name = colouring.nameOf(key)
    const elements = this.elements.get([data, colouring.version], () => new Map())
    const entry = remembered(elements, key, () => {
      const numbers = h('span.legend-numbers')
      const button = h(
        'button.quiet.small.row',
        { disabled: keyQuery === null },
        h('span.swatch', { 'aria-hidden': 'true' }),
        frameLabel(name),
        numbers,
      )
      button.addEventListener('click', () => {
        const isClearing = this.page.store.state.query === keyQuery
        // Besides the highlight, the stack with the most bytes of it is shown beside the picture.
        this.page.store.set({ query: isClearing ? '' : keyQuery!, stack: isClearing ? null : this.stackOf(key) })
      })
      return { item: h('li', button), button, numbers }
    })
    const isPressed = keyQuery !== null && query === keyQuery
    const bytes = formatBytes(held.bytes[key])
    const share = formatShare(held.bytes[key], total)
    entry.numbers.textContent = `${bytes}  ${share}  ${formatCount(held.count[key])}×`
    entry.button.setAttribute('aria-pressed', String(isPressed))
    entry.button.classList.toggle('none', held.count[key] === 0)
    const isInferred = inferred * 2 > held.bytes[key]
    const guess = inferred > 0 ? `\n${formatShare(inferred, held.bytes[key])} of it inferred` : ''
    entry.button.title =
      `${name}\n${bytes}, ${share}, ${plural(held.count[key], 'allocation')}${guess}\n${isPressed ? 'Click to clear the query' : keyQuery === null ? '' : `Click for ${keyQuery}`}`.trim()
    const swatch = entry.button.firstElementChild as HTMLElement
    swatch.style.backgroundColor = cssOf(colouring, key)
    swatch.classList.toggle('inferred', isInferred)
    return entry.item
  }
}

function wordsOf(info: DeviceInfo, position: number): string {
  if (info.events === 0) return 'in the final state'
  if (position === info.peak_event + 1) return 'at the peak'
  return atEvent(position - 1)
}

function restOf(count: number, order: readonly number[], held: Held, total: number): string {
  const shown = order.reduce((sum, key) => sum + held.bytes[key], 0)
  return `${formatCount(count)} more with ${formatBytes(total - shown)}`
}

function hasLegend({ colour }: State, view: ViewName): boolean {
  return view === 'timeline' || view === 'segments' || (view === 'flame' && colour !== 'stack')
}
