// Keys of the page. One table: what a key does, and what the help says about it.

import type { Store } from './state'
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
  { keys: '[ ]', text: 'Select the allocation before or after' },
  { keys: 'N', text: 'Show runtime frames' },
  { keys: 'T', text: 'Event or time axis' },
  { keys: 'B', text: 'Box zoom by plain drag' },
  { keys: 'Escape', text: 'Give up a box, clear the selection' },
  { keys: '?', text: 'This help' },
]

export interface KeyActions {
  store: Store
  timeline: TimelineView
  toggleHelp(): void
  /** Closes the help; false when it was not open. */
  closeHelp(): boolean
  toggleBox(): void
  toggleAxis(): void
  goToPeak(): void
  goToOom(): void
  /** Selects the next or the one before. */
  step(by: number): void
}

const ZOOM = 0.75
const STEP = 0.12

export function bindKeys(actions: KeyActions): void {
  document.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || isTyping(event.target)) return
    // Inside the panel, arrows scroll it.
    if (isScrolling(event)) return
    if (runKey(event, actions)) event.preventDefault()
  })
}

function runKey(event: KeyboardEvent, actions: KeyActions): boolean {
  const { store, timeline } = actions
  const { navigator } = timeline
  if (event.key === '?') return actions.toggleHelp(), true
  if (event.key === 'Escape') {
    if (!actions.closeHelp() && !timeline.cancelDrag()) store.set({ select: null })
    return true
  }
  if (event.key.toLowerCase() === 'n') return store.set({ noise: !store.state.noise }), true
  if (store.state.view !== 'timeline') return false
  const shift = event.shiftKey
  switch (event.key.length === 1 ? event.key.toLowerCase() : event.key) {
    case 'w': return shift ? navigator.panBy(0, STEP) : timeline.zoomBy(ZOOM, 1), true
    case 's': return shift ? navigator.panBy(0, -STEP) : timeline.zoomBy(1 / ZOOM, 1), true
    case 'a': return navigator.panBy(-STEP, 0), true
    case 'd': return navigator.panBy(STEP, 0), true
    case 'ArrowLeft': return navigator.panBy(shift ? -1 : -STEP, 0), true
    case 'ArrowRight': return navigator.panBy(shift ? 1 : STEP, 0), true
    case 'ArrowUp': return shift ? timeline.zoomBy(1, ZOOM) : navigator.panBy(0, STEP), true
    case 'ArrowDown': return shift ? timeline.zoomBy(1, 1 / ZOOM) : navigator.panBy(0, -STEP), true
    case '+': case '=': return timeline.zoomBy(ZOOM, 1), true
    case '-': case '_': return timeline.zoomBy(1 / ZOOM, 1), true
    case '0': case 'Home': return navigator.fit(), true
    case 'p': return actions.goToPeak(), true
    case 'o': return actions.goToOom(), true
    case 'b': return actions.toggleBox(), true
    case 't': return actions.toggleAxis(), true
    case '[': return actions.step(-1), true
    case ']': return actions.step(1), true
    default: return false
  }
}

function isScrolling({ key, target }: KeyboardEvent): boolean {
  return (key.startsWith('Arrow') || key === 'Home') && target instanceof Element && target.closest('.details') !== null
}

function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || ['INPUT', 'TEXTAREA', 'SELECT'].includes(target.tagName))
    && !(target instanceof HTMLInputElement && target.type === 'checkbox')
}
