// Keys of the page: what each does. What the help says about it is in help.ts.

import { type Navigation, navigationOf, STEP, ZOOM } from '../ui/navigation-keys'
import type { TimelineView } from '../views/timeline/timeline-view'
import type { Actions } from './actions'
import { isColoured } from './colour-select'

export function bindKeys(actions: Actions): void {
  document.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || isTyping(event.target)) return
    // Inside the panel, arrows scroll it.
    if (isScrolling(event)) return
    if (runKey(event, actions)) event.preventDefault()
  })
}

function runKey(event: KeyboardEvent, actions: Actions): boolean {
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
