// What a click on the plot does: it sets the moment, opens a failure, goes to a mark, or pins an allocation.

import type { Store } from '../../ui/state'
import type { Frame } from './frame'
import type { Hits } from './hits'
import type { Navigator } from './navigator'

export class Clicks {
  constructor(
    private readonly store: Store,
    private readonly navigator: Navigator,
    private readonly hits: Hits,
  ) {}

  /** A click at a place in pixels of the plot; with shift it sets the moment. */
  click(frame: Frame, x: number, y: number, shift: boolean): void {
    const { store, hits } = this
    if (shift && y >= 0) return this.setMoment(frame, x)
    const mark = hits.markAt(frame, x, y)
    if (mark?.kind === 'oom') return store.set({ oom: mark.event, at: mark.event })
    if (mark) return this.navigator.centreOn(mark.event)
    const hit = hits.allocationAt(frame, x, y)
    if (!hit) return
    if (hit.id >= 0) store.set({ select: hit.id })
    else store.close()
  }

  /** Sets the moment to that of the column at a place; where it is that already, back to the peak. */
  setMoment(frame: Frame, x: number): void {
    const column = this.hits.columnAt(frame, Math.max(0, Math.min(frame.plot.width, x)))
    if (!column || frame.scene.info.events === 0) return
    const event = column.s - 1
    this.store.set({ at: event === this.store.state.at ? null : event })
  }
}
