// Links of the headline and of findings. They name a place in this report, as its address does; following one leaves the
// theme and the bookmarks as they are.

import type { State, Store } from '../ui/state'
import { readHash } from './hash'
import { keeping } from './marks'

/** `opened`: called once the place is in the state. */
export function bindLinks(store: Store, start: State, devices: number, opened: () => void): void {
  document.addEventListener('click', (event) => {
    if (
      event.defaultPrevented ||
      event.button !== 0 ||
      event.ctrlKey ||
      event.metaKey ||
      event.shiftKey ||
      event.altKey
    )
      return
    const link = event.target instanceof Element ? event.target.closest('#top a, #summary a') : null
    const hash = link?.getAttribute('href')
    if (!hash?.startsWith('#')) return
    event.preventDefault()
    const { state } = store
    store.jump({ ...keeping(readHash(hash, start, devices), state), noise: state.noise })
    opened()
  })
}
