// Gives the legend its colours and the moment under the pointer.

import { deviceName } from '../ui/devices'
import type { State, Store, ViewName } from '../ui/state'
import { Throttle } from '../ui/throttle'
import type { TimelineView } from '../views/timeline/timeline-view'
import type { DataClient } from '../worker/data-client'
import { Legend } from './legend'
import type { Split } from './split'
import type { Stage } from './stage'

/** So often it follows the pointer: its numbers cannot be read faster, and writing them takes as long as all else of a frame. */
const HOVER_MS = 250

interface Page {
  client: DataClient
  store: Store
  timeline: TimelineView
  stage: Stage
  split(): Split
}

export class LegendHost {
  readonly element: HTMLElement
  private readonly legend: Legend
  private readonly hover = new Throttle(() => this.show(), HOVER_MS)

  constructor(private readonly page: Page) {
    this.legend = new Legend(page.store)
    this.element = this.legend.element
  }

  show(): void {
    const { client, timeline, stage, split } = this.page
    const { state } = this.page.store
    const { view } = state
    const scene = timeline.currentScene
    const colouring = scene?.info.index === state.device ? stage.colouringOf(state, scene) : null
    const shown =
      hasLegend(state, view) && scene?.data && colouring ? { info: scene.info, data: scene.data, colouring } : null
    const info = client.devices[state.device]
    const name = split().pane && info ? `First pane, ${deviceName(client.manifest, info)}` : null
    this.legend.render(state, shown, view === 'timeline' ? timeline.hoveredPosition : null, name)
  }

  /** The pointer may be over another column. */
  showSoon(): void {
    this.hover.request()
  }

  /** Pixels that a view has more than the one on screen, since it has no legend below it. */
  roomWithout(view: ViewName): number {
    return hasLegend(this.page.store.state, view) ? 0 : this.element.offsetHeight
  }

  debug(): unknown {
    return this.legend.debug()
  }

  /** Shows what still waits. */
  flush(): void {
    this.hover.flush()
  }
}

function hasLegend({ colour }: State, view: ViewName): boolean {
  return view === 'timeline' || view === 'segments' || (view === 'flame' && colour !== 'stack')
}
