// What keys and the toolbar do, put together from the parts of the page that do it.

import type { DeviceInfo } from '../data/model'
import { viewsOf } from '../ui/devices'
import type { Store } from '../ui/state'
import type { TimelineView } from '../views/timeline/timeline-view'
import type { DataClient } from '../worker/data-client'
import { nextColour } from './colour-select'
import type { HelpDialog } from './help'
import type { JobHost } from './job-host'
import type { KeyActions } from './keyboard'
import type { PageTools } from './page-tools'
import type { SearchBox } from './search-box'
import type { Split } from './split'
import type { Stage } from './stage'
import type { TimelineActions } from './timeline-actions'
import type { ToolbarActions } from './toolbar'

interface Page {
  client: DataClient
  store: Store
  timeline: TimelineView
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

export function pageActions(page: Page): KeyActions & ToolbarActions {
  const { client, store, timeline, timelineActions, stage, job, search, pageTools, help, split, info } = page
  const views = viewsOf(client)
  return {
    store,
    timeline,
    fit: () => timelineActions.fit(),
    goToPeak: () => timelineActions.goToPeak(),
    goToOom: () => timelineActions.goToOom(),
    toggleBox: () => timelineActions.toggleBox(),
    toggleRuler: () => timelineActions.toggleRuler(),
    clearRuler: () => timelineActions.clearRuler(),
    toggleMarks: () => pageTools.bookmarks.toggle(),
    focusSearch: () => search.focus(),
    toggleHelp: () => help.toggle(store.state.view, views),
    closeHelp: () => help.close() || search.help.close(),
    toggleAxis: () => timelineActions.toggleAxis(),
    setAxis: (axis) => timelineActions.setAxis(axis),
    nextColour: () => {
      const device = info()
      if (device) store.set({ colour: nextColour(device, store.state.colour) })
    },
    step: (by) => timelineActions.step(by),
    toggleSecond: () => split().toggle(),
    second: () => {
      const { pane } = split()
      return pane?.element.contains(document.activeElement) ? pane : null
    },
    views,
    viewKey: (event) => (store.state.view === 'job' ? job.key(event) : stage.key(event)),
  }
}
