// Keys of the page. One table: what a key does, and what the help says about it.

import { fill, h } from '../ui/dom'
import { type Navigation, navigationOf, STEP, ZOOM } from '../ui/navigation-keys'
import type { Store, ViewName } from '../ui/state'
import type { TimelineView } from '../views/timeline/timeline-view'
import { isColoured } from './toolbar'

/** What keys and the pointer do, by the views that they belong to; none: all. */
export interface KeyHelp {
  title: string
  views: readonly ViewName[]
  keys: readonly (readonly [keys: string, text: string])[]
}

const HELP: readonly KeyHelp[] = [
  {
    title: 'Timeline',
    views: ['timeline'],
    keys: [
      ['A D, ← →', 'Move in time'],
      ['↑ ↓, Shift + W S', 'Move in bytes'],
      ['W S, + −', 'Zoom in time'],
      ['Shift + ↑ ↓', 'Zoom in bytes'],
      ['0, Home', 'Show everything'],
      ['P', 'Go to the peak'],
      ['O', 'Go to the next out-of-memory error'],
      ['[ ]', 'Select the allocation before or after'],
      ['M, Shift + click', 'Set the moment that other views show; M again: the peak'],
      ['T', 'Event or time axis'],
      ['B', 'Box zoom by plain drag'],
      ['R, Shift + R', 'Ruler: drag to measure; measure the window'],
      ['G, Shift + drag', 'Select the range on screen, or a part of it: what is allocated and freed there'],
      [', .', 'Zoom to the step or span before or after'],
    ],
  },
  {
    title: 'Segments',
    views: ['segments'],
    keys: [
      ['← → (Shift), P O E', 'Step by events; peak, out of memory, end'],
      ['↑ ↓ (Shift), Z, V', 'Blocks (segments); zoom into one; over time'],
    ],
  },
  {
    title: 'Reserved',
    views: ['reserved'],
    keys: [
      ['← → (Shift), P O E', 'Step by events; peak, out of memory, end'],
      ['F G, Enter', 'Worst fragmentation, worst split; segments at the moment'],
    ],
  },
  {
    title: 'Flame',
    views: ['flame'],
    keys: [
      ['↑ ↓ ← →, Enter', 'Parent, child, neighbours; focus (Escape: all)'],
      ['Right click, menu key', 'Callers and callees; searches'],
    ],
  },
  {
    title: 'Tables',
    views: ['table', 'xray', 'diff'],
    keys: [['↑ ↓, Enter, Space', 'Move; select or find; list the largest of a group']],
  },
  {
    title: 'Events',
    views: ['events'],
    keys: [['Enter, Space, X, G', 'Set the moment; select; other end; go to an event or time']],
  },
  {
    title: 'Job',
    views: ['job'],
    keys: [['← ↑ → ↓, Enter, + −, Z', 'Move the cell (Shift: select); pick its rank; zoom; zoom to the selection']],
  },
  {
    title: 'Mouse',
    views: ['timeline', 'segments', 'reserved'],
    keys: [
      ['Drag', 'Move'],
      ['Wheel', 'Zoom in time at the pointer'],
      ['Shift + wheel', 'Zoom in bytes'],
      ['Ctrl or Alt + drag', 'Zoom to a box'],
      ['Double click', 'Show everything'],
      ['Click', 'Pin an allocation'],
      ['Right click', 'Search for what is there, or leave it out'],
    ],
  },
  {
    title: 'All views',
    views: [],
    keys: [
      ['/', 'Search'],
      ['1 … 7', 'Views in the order of their tabs'],
      ['N', 'Show runtime frames'],
      ['C', 'Colour by the next property'],
      ['L', 'Split: open or close the second pane; keys go to the pane in focus'],
      ['K', 'Bookmarks'],
      ['← →, Escape', 'In the story: the step before, the next; close it'],
      ['Escape', 'Cancel a box, clear the selection'],
      ['?', 'This help'],
    ],
  },
]

/** Groups of the view first, then those of all views, then the others, of views that the report has. */
export function helpFor(view: ViewName, views: readonly ViewName[]): KeyHelp[] {
  const rank = (group: KeyHelp): number => (group.views.includes(view) ? 0 : group.views.length === 0 ? 1 : 2)
  return HELP.filter((group) => rank(group) === 1 || group.views.some((one) => views.includes(one))).sort(
    (a, b) => rank(a) - rank(b),
  )
}

export interface KeyActions {
  store: Store
  timeline: TimelineView
  focusSearch(): void
  toggleHelp(): void
  /** Closes the help; false when it was not open. */
  closeHelp(): boolean
  toggleBox(): void
  toggleRuler(): void
  /** False when there was none. */
  clearRuler(): boolean
  toggleMarks(): void
  toggleAxis(): void
  nextColour(): void
  goToPeak(): void
  goToOom(): void
  /** Selects the next allocation or the previous one. */
  step(by: number): void
  /** In the order of their tabs. */
  views: readonly ViewName[]
  /** Opens or closes the second pane. */
  toggleSecond(): void
  /** The second pane while it has the focus. */
  second(): { store: Store; timeline: TimelineView; stage: { key(event: KeyboardEvent): boolean } } | null
  /** Offers a key to the view on screen. */
  viewKey(event: KeyboardEvent): boolean
}

export function bindKeys(actions: KeyActions): void {
  document.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || isTyping(event.target)) return
    // Inside the panel, arrows scroll it.
    if (isScrolling(event)) return
    if (runKey(event, actions)) event.preventDefault()
  })
}

function runKey(event: KeyboardEvent, actions: KeyActions): boolean {
  const second = actions.second()
  const { store, timeline } = second ?? actions
  const viewKey = (): boolean => (second ? second.stage.key(event) : actions.viewKey(event))
  if (event.key === '?') return (actions.toggleHelp(), true)
  if (event.key === '/') return (actions.focusSearch(), true)
  if (event.key === 'Escape') {
    if (!actions.closeHelp() && !viewKey() && !timeline.cancelDrag() && !actions.clearRuler()) store.close()
    return true
  }
  if (viewKey()) return true
  if (/^[1-9]$/.test(event.key) && Number(event.key) <= actions.views.length)
    return (store.set({ view: actions.views[Number(event.key) - 1] }), true)
  if (event.key.toLowerCase() === 'k') return (actions.toggleMarks(), true)
  if (event.key.toLowerCase() === 'l') return (actions.toggleSecond(), true)
  if (event.key.toLowerCase() === 'n') return (store.set({ noise: !store.state.noise }), true)
  if (event.key.toLowerCase() === 'c' && isColoured(store.state.view)) return (actions.nextColour(), true)
  if (store.state.view !== 'timeline') return false
  const navigation = navigationOf(event)
  if (navigation) return (navigate(timeline, navigation, event.shiftKey), true)
  const shift = event.shiftKey
  switch (event.key.length === 1 ? event.key.toLowerCase() : event.key) {
    case 'p':
      return (actions.goToPeak(), true)
    case 'o':
      return (actions.goToOom(), true)
    case 'b':
      return (actions.toggleBox(), true)
    case 'r':
      return (shift ? timeline.measureWindow() : actions.toggleRuler(), true)
    case ',':
      return timeline.tracks.step(-1)
    case '.':
      return timeline.tracks.step(1)
    case 't':
      return (actions.toggleAxis(), true)
    case 'm':
      return (timeline.markMoment(), true)
    case 'g':
      return (timeline.selectRange(), true)
    case '[':
      return (actions.step(-1), true)
    case ']':
      return (actions.step(1), true)
    default:
      return false
  }
}

/** With shift, letters and arrows change places: W and S move in bytes, up and down zoom in them; left and right go a window. */
function navigate(timeline: TimelineView, navigation: Navigation, shift: boolean): void {
  const { navigator } = timeline
  if (navigation.kind === 'fit') navigator.fit()
  else if (navigation.kind === 'zoom') {
    const { factor, isLetter } = navigation
    if (shift && isLetter) navigator.panBy(0, factor < 1 ? STEP : -STEP)
    else timeline.zoomBy(factor, 1)
  } else {
    const { x, y, isArrow } = navigation
    if (!shift || !isArrow) navigator.panBy(x, y)
    else if (y === 0) navigator.panBy(Math.sign(x), 0)
    else timeline.zoomBy(1, y > 0 ? ZOOM : 1 / ZOOM)
  }
}

function isScrolling({ key, target }: KeyboardEvent): boolean {
  return (key.startsWith('Arrow') || key === 'Home') && target instanceof Element && target.closest('.details') !== null
}

function isTyping(target: EventTarget | null): boolean {
  return (
    target instanceof HTMLElement &&
    (target.isContentEditable || ['INPUT', 'TEXTAREA', 'SELECT'].includes(target.tagName)) &&
    !(target instanceof HTMLInputElement && target.type === 'checkbox')
  )
}

export class HelpDialog {
  readonly element: HTMLDialogElement
  private readonly columns = h('div', { class: 'help-columns' })

  constructor() {
    this.element = h(
      'dialog',
      { class: 'help floating', 'aria-label': 'Keys and mouse' },
      h(
        'header',
        { class: 'row' },
        h('h2', {}, 'Keys and mouse'),
        h('button', { class: 'close', 'aria-label': 'Close help', onclick: () => this.close() }, '✕'),
      ),
      this.columns,
    )
    this.element.addEventListener('click', (event) => {
      if (event.target === this.element) this.close() // the backdrop
    })
  }

  /** Opens with the keys of the view on screen first. */
  toggle(view: ViewName, views: readonly ViewName[]): void {
    if (this.close()) return
    fill(this.columns, ...helpFor(view, views).map(groupOf))
    this.element.showModal()
  }

  /** False when it was not open. */
  close(): boolean {
    const { open } = this.element
    if (open) this.element.close()
    return open
  }
}

function groupOf({ title, keys }: KeyHelp): HTMLElement {
  const list = h('dl')
  for (const [key, text] of keys) list.append(h('dt', {}, h('kbd', {}, key)), h('dd', {}, text))
  return h('section', {}, h('h3', {}, title), list)
}
