// Keys of the page. One table: what a key does, and what the help says about it.

import { isColoured } from './colour-select'
import { type Navigation, navigationOf, STEP, ZOOM } from '../ui/navigation-keys'
import type { Store, ViewName } from '../ui/state'
import type { TimelineView } from '../views/timeline/timeline-view'

export interface KeyHelp {
  keys: string
  text: string
}

export const POINTER_HELP: readonly KeyHelp[] = [
  { keys: 'Drag', text: 'Move' },
  { keys: 'Wheel', text: 'Zoom in time at the pointer' },
  { keys: 'Shift + wheel', text: 'Zoom in bytes' },
  { keys: 'Ctrl or Alt + drag', text: 'Zoom to a box' },
  { keys: 'Double click', text: 'Show everything' },
  { keys: 'Click', text: 'Pin an allocation' },
]

export const KEY_HELP: readonly KeyHelp[] = [
  { keys: 'A D, ← →', text: 'Move in time' },
  { keys: '↑ ↓, Shift + W S', text: 'Move in bytes' },
  { keys: 'W S, + −', text: 'Zoom in time' },
  { keys: 'Shift + ↑ ↓', text: 'Zoom in bytes' },
  { keys: '0, Home', text: 'Show everything' },
  { keys: 'P', text: 'Go to the peak' },
  { keys: 'O', text: 'Go to the next out-of-memory error' },
  { keys: '/', text: 'Search' },
  { keys: '[ ]', text: 'Select the allocation before or after' },
  { keys: '1 … 7', text: 'Views in the order of their tabs' },
  { keys: 'N', text: 'Show runtime frames' },
  { keys: 'C', text: 'Colour by the next property' },
  { keys: 'M, Shift + click', text: 'Set the moment that other views show; M again: the peak' },
  { keys: 'T', text: 'Event or time axis' },
  { keys: 'L', text: 'Two looks at once: open or close the second pane; keys go to the pane in focus' },
  { keys: 'B', text: 'Box zoom by plain drag' },
  { keys: 'R, Shift + R', text: 'Ruler: drag to measure; measure the window' },
  { keys: ', .', text: 'Zoom to the step or span before or after' },
  { keys: 'K', text: 'Bookmarks' },
  { keys: '↑ ↓ ← →, Enter', text: 'In the flame tree: parent, child, neighbours; focus (Escape: all)' },
  { keys: '↑ ↓, Enter, Space', text: 'In the table: move; select or find; list the largest of a group' },
  { keys: 'Enter, Space, X, G', text: 'In the events: set the moment; select; other end; go to an event or time' },
  { keys: '← → (Shift), P O E', text: 'In segments and reserved: step by events; peak, out of memory, end' },
  { keys: '↑ ↓ (Shift), Z, V', text: 'In the segments: blocks (segments); zoom into one; over time' },
  { keys: 'F G, Enter', text: 'In reserved: worst fragmentation, worst split; segments at the moment' },
  {
    keys: '← ↑ → ↓, Enter, + −, Z',
    text: 'In the job: move the cell (Shift: select); pick its rank; zoom; zoom to the selection',
  },
  { keys: 'Escape', text: 'Cancel a box, clear the selection' },
  { keys: '?', text: 'This help' },
]

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
