// What keys and buttons do to the timeline: marks to go to, modes of dragging, the next allocation.

import type { DeviceInfo } from '../data/model'
import type { Store } from '../ui/state'
import type { TimelineView } from '../views/timeline/timeline-view'

interface Page {
  store: Store
  timeline: TimelineView
  /** The device in the state. */
  info(): DeviceInfo | undefined
  /** A mode of dragging has changed: the toolbar has to show it. */
  changed(): void
}

export class TimelineActions {
  constructor(private readonly page: Page) {}

  fit(): void {
    this.page.timeline.navigator.fit()
  }

  goToPeak(): void {
    const info = this.page.info()
    if (info) this.page.timeline.navigator.centreOn(info.peakEvent)
  }

  /** The first one after the middle of the window, else the first. */
  goToOom(): void {
    const { store, timeline, info } = this.page
    const events = info()?.stats.oom_events ?? []
    const { x } = store.state
    const middle = x ? (x[0] + x[1]) / 2 : -Infinity
    const next = events.find((event) => event > middle + 0.5) ?? events[0]
    if (next === undefined) return
    store.set({ at: next, oom: next })
    timeline.navigator.centreOn(next)
  }

  /** Shows the timeline with an event in its middle. */
  centreOn(event: number): void {
    this.page.store.set({ view: 'timeline' })
    this.page.timeline.navigator.centreOn(event)
  }

  /** Brings an event into the timeline's window where it lies outside; other views show what is selected themselves. */
  reveal(event: number): void {
    const { store, timeline } = this.page
    const { view, x } = store.state
    if (view === 'timeline' && x && (event < x[0] || event > x[1])) timeline.navigator.centreOn(event)
  }

  toggleBox(): void {
    const { timeline } = this.page
    timeline.boxMode = !timeline.boxMode
    this.showDragMode()
  }

  toggleRuler(): void {
    this.page.timeline.ruler.toggle()
    this.showDragMode()
  }

  /** True when there was something measured. */
  clearRuler(): boolean {
    const cleared = this.page.timeline.ruler.clear()
    this.showDragMode()
    return cleared
  }

  toggleAxis(): void {
    this.setAxis(this.page.store.state.axis === 'event' ? 'time' : 'event')
  }

  setAxis(axis: 'event' | 'time'): void {
    if (axis === 'event' || this.page.info()?.time0 != null) this.page.store.set({ axis })
  }

  /** Selects the allocation born before or after; without a selection the first one that is alive at the peak. */
  step(by: number): void {
    const { store, timeline } = this.page
    const data = timeline.currentScene?.data
    if (!data || data.N === 0) return
    const { select } = store.state
    const atPeak = data.info.peakEvent + 1
    const first = data.start.findIndex((start, id) => start <= atPeak && data.end[id] > atPeak)
    store.set({
      select: select === null ? Math.max(0, first) : Math.min(data.N - 1, Math.max(0, select + by)),
    })
  }

  private showDragMode(): void {
    const { boxMode, ruler, element } = this.page.timeline
    element.classList.toggle('box-mode', boxMode || ruler.isOn)
    this.page.changed()
  }
}
