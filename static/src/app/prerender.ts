// Shows each view once, out of sight, before the reader opens it: the first switch to one then finds its code compiled, its
// columns computed and its text measured. On a trace of 22,332 events and two cores it takes 15 to 60 ms then, of which up to
// two frames are waiting, and 30 to 80 ms otherwise; with both cores busy 20 to 90 instead of 40 to 310.

import { h } from '../ui/dom'
import { InputWatch, idle } from '../ui/idle'

export class Prerender {
  /** As large as the stage, and in the page: what is laid out here keeps its size there. */
  readonly element = h('div', { class: 'stage prerender', 'aria-hidden': 'true', inert: true })

  /**
   * Runs the steps of one view after the other, each in an idle moment; patient: one without recent input, too. The last
   * step of a view puts it into the element.
   */
  async rehearse<T>(
    each: readonly T[],
    patient: boolean,
    ...steps: ((one: T, place: HTMLElement) => void)[]
  ): Promise<void> {
    const watch = patient ? new InputWatch() : null
    try {
      for (const one of each)
        for (const step of steps) {
          await (watch?.rest() ?? idle())
          step(one, this.element)
        }
      await idle()
    } finally {
      watch?.stop()
      this.element.remove()
    }
  }
}
