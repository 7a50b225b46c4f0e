// The first stop of the keyboard: skips headline and controls, straight to what the view shows.

import { h } from '../ui/dom'

/** The parts that take the keyboard, in the views that have them. */
const PICTURES = '.plot, .map-scroll, .time-plot, .flame-plot, .list, #summary'

export function skipLink(): HTMLElement {
  const link = h('a', { class: 'skip', href: '#app' }, 'Skip to the picture')
  link.addEventListener('click', (event) => {
    // The address is the state of the page: the link leaves it alone.
    event.preventDefault()
    event.stopPropagation()
    const shown = [...document.querySelectorAll<HTMLElement>(PICTURES)].find((part) => part.offsetHeight > 0)
    if (!shown) return
    if (shown.tabIndex < 0) shown.tabIndex = -1
    shown.focus()
  })
  return link
}
