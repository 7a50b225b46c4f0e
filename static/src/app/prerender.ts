// Shows each view once, out of sight, before the reader opens it: the first switch to one then finds its code compiled, its
// columns computed and its text measured. On a trace of 22,332 events and two cores it takes 15 to 60 ms then, of which up to
// two frames are waiting, and 30 to 80 ms otherwise; with both cores busy 20 to 90 instead of 40 to 310.

import { h } from '../ui/dom'
import { idle, InputWatch } from '../ui/idle'

export class Prerender {
  /** As large as the stage, and in the page: what is laid out here keeps its size there. */
  readonly element = h('div.stage.column.fill.prerender', { 'aria-hidden': 'true', inert: true })

  /**
   * Runs the steps of one view after the other, each in an idle moment without recent input. The last step of a view puts
   * it into the element.
   */
  async rehearse<T>(each: readonly T[], ...steps: ((one: T, place: HTMLElement) => void)[]): Promise<void> {
    const watch = new InputWatch()
    try {
      for (const one of each)
        for (const step of steps) {
          await watch.rest()
          step(one, this.element)
        }
      await idle()
    } finally {
      watch.stop()
      this.element.remove()
    }
  }
}

/**
 * The allocator's state of a device of up to so many events is computed while the first picture is drawn, so that a switch
 * finds it ready. In a larger one that would delay tiles, and take memory (24 bytes an event, 33 an allocation) that many
 * readers never need.
 */
export const REPLAYED_EARLY_EVENTS = 1 << 18
/**
 * The views of a device of up to so many events are rehearsed once the page is ready, while the reader rests. On 920,183
 * events the allocator's replay takes the worker 0.2 s and a step the page up to 60 ms; of more than this they take longer
 * than a reader should ever wait for a frame.
 */
const REHEARSED_EVENTS = 1 << 21

/** Settles when all is done that a first switch to a view would wait for. */
export async function prepareViews(
  stage: { load(): Promise<void>; rehearse(): Promise<void> },
  events: number,
): Promise<void> {
  await stage.load()
  if (events <= REHEARSED_EVENTS) await stage.rehearse()
}
