// What keys and the toolbar do, put together from the parts of the page that do it.

import type { DeviceInfo } from '../data/model'
import { viewsOf } from '../ui/devices'
import type { Store } from '../ui/state'
import type { TimelineView } from '../views/timeline/timeline-view'
import type { JobHost } from './job-host'
import type { HelpDialog } from './help'
import type { Page } from './page'
import type { PageTools } from './page-tools'
import type { SearchBox } from './search-box'
import type { Split } from './split'
import type { Stage } from './stage'
import { nextColour } from './colour-select'

interface Parts extends Page {
  timelineActions: TimelineActions
  stage: Stage
  job: JobHost
  search: SearchBox
  pageTools: PageTools
  help: HelpDialog
  split(): Split
  /** The device in the state. */
  info(): DeviceInfo | undefined
}

export type Actions = ReturnType<typeof pageActions>

export function pageActions(page: Parts) {
  const { client, store, timeline, timelineActions, stage, job, search, pageTools, help, split, info } = page
  const views = viewsOf(client)
  return {
    ...timelineActions,
    store,
    timeline,
    toggleMarks: () => pageTools.bookmarks.toggle(),
    focusSearch: () => search.focus(),
    toggleHelp: () => help.toggle(store.state.view, views),
    /** False when none was open. */
    closeHelp: () => help.close() || search.help.close(),
    nextColour: () => {
      const device = info()
      if (device) store.set({ colour: nextColour(device, store.state.colour) })
    },
    toggleSecond: () => split().toggle(),
    /** The second pane while it has the focus. */
    second: () => {
      const { pane } = split()
      return pane?.element.contains(document.activeElement) ? pane : null
    },
    views,
    /** Offers a key to the view on screen. */
    viewKey: (event: KeyboardEvent) => (store.state.view === 'job' ? job.key(event) : stage.key(event)),
  }
}

interface TimelinePage {
  store: Store
  timeline: TimelineView
  /** The device in the state. */
  info(): DeviceInfo | undefined
  /** A mode of dragging has changed: the toolbar has to show it. */
  changed(): void
}

export class TimelineActions {
  constructor(private readonly page: TimelinePage) {}

  readonly fit = (): void => {
    this.page.timeline.navigator.fit()
  }

  readonly goToPeak = (): void => {
    const info = this.page.info()
    if (info) this.page.timeline.navigator.centreOn(info.peak_event)
  }

  /** The first one after the middle of the window, else the first. */
  readonly goToOom = (): void => {
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
  readonly centreOn = (event: number): void => {
    this.page.store.set({ view: 'timeline' })
    this.page.timeline.navigator.centreOn(event)
  }

  /** Brings an event into the timeline's window where it lies outside; other views show what is selected themselves. */
  readonly reveal = (event: number): void => {
    const { store, timeline } = this.page
    const { view, x } = store.state
    if (view === 'timeline' && x && (event < x[0] || event > x[1])) timeline.navigator.centreOn(event)
  }

  readonly toggleBox = (): void => {
    const { timeline } = this.page
    timeline.boxMode = !timeline.boxMode
    this.showDragMode()
  }

  readonly toggleRuler = (): void => {
    this.page.timeline.ruler.toggle()
    this.showDragMode()
  }

  /** True when there was something measured. */
  readonly clearRuler = (): boolean => {
    const cleared = this.page.timeline.ruler.clear()
    this.showDragMode()
    return cleared
  }

  readonly toggleAxis = (): void => {
    const { store, info } = this.page
    const axis = store.state.axis === 'event' ? 'time' : 'event'
    if (axis === 'event' || info()?.time0 != null) store.set({ axis })
  }

  /** Selects the allocation born before or after; without a selection the first one that is alive at the peak. */
  readonly step = (by: number): void => {
    const { store, timeline } = this.page
    const data = timeline.currentScene?.data
    if (!data || data.N === 0) return
    const { select } = store.state
    const atPeak = data.info.peak_event + 1
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
