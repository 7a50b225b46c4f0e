// Where views are shown once before they are asked for, unseen: the first switch to one then finds its code compiled, its
// columns worked out and its text measured. On a trace of 22,332 events and two cores it takes 15 to 60 ms then, of which up to
// two frames are waiting, and 30 to 80 ms otherwise; with both cores busy 20 to 90 instead of 40 to 310.

import { h } from '../ui/dom'

/** Where a browser is never idle. */
const PATIENCE_MS = 100

export class Wings {
  /** As large as the stage, and in the page: what is laid out here keeps its measures there. */
  readonly element = h('div', { class: 'stage wings', 'aria-hidden': 'true', inert: true })

  /** Shows one after the other, each once the browser has nothing else to do. show: puts a view into the element. */
  async rehearse<T>(each: readonly T[], show: (one: T, place: HTMLElement) => void): Promise<void> {
    for (const one of each) {
      await idle()
      show(one, this.element)
    }
    await idle()
    this.element.remove()
  }
}

function idle(): Promise<unknown> {
  return new Promise((resolve) => {
    if ('requestIdleCallback' in window) requestIdleCallback(resolve, { timeout: PATIENCE_MS })
    else setTimeout(resolve)
  })
}
