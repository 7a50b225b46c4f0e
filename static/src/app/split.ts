// Two panes: creates, shows and removes the second pane and its details, and keeps both panes on one scale.

import { positionOf } from '../data/live'
import type { DeviceInfo } from '../data/model'
import { h } from '../ui/dom'
import { canSplit, firstSecond, type Second, secondOf, withSecond } from '../ui/second'
import type { State, Store } from '../ui/state'
import type { TimelineView } from '../views/timeline/timeline-view'
import type { DataClient } from '../worker/data-client'
import { DetailsPanel } from './details'
import { paneTitle, SecondPane } from './second-pane'
import type { Stage } from './stage'

/** The first pane, and what both need of the page. */
interface Page {
  client: DataClient
  store: Store
  timeline: TimelineView
  stage: Stage
  announce(text: string): void
  tell(text: string): void
  /** Something has to be shown again. */
  changed(): void
}

export class Split {
  /** The title of the first pane, where there are two. */
  readonly head = h('p', { class: 'pane-head', hidden: true })
  private shown: { pane: SecondPane; details: DetailsPanel } | null = null

  /** panes: the parent of both; workspace: the parent of the details. */
  constructor(
    private readonly page: Page,
    private readonly panes: HTMLElement,
    private readonly workspace: HTMLElement,
  ) {}

  /** The second pane; null where there is only one. */
  get pane(): SecondPane | null {
    return this.shown?.pane ?? null
  }

  /** What the state says of the second pane, where the view can be shown twice. */
  secondOf(state: State): Second | null {
    const { devices } = this.page.client
    return canSplit(state.view) && devices[state.device] ? secondOf(state.options, devices.length) : null
  }

  /** Whether the details of the second pane are open: there is room for one panel. */
  get hasDetails(): boolean {
    return this.shown !== null && !this.shown.details.element.hidden
  }

  /** Creates, shows and removes the second pane, as the state says, and gives both one scale. */
  render(state: State): void {
    const second = this.secondOf(state)
    this.head.hidden = !second
    this.panes.classList.toggle('split', second !== null)
    this.panes.classList.toggle('stacked', second?.stacked ?? false)
    if (!second) return this.remove()
    const { pane, details } = (this.shown ??= this.open(second))
    pane.render(state, second)
    this.head.textContent = this.titleOfFirst(state)
    this.agreeOnScale(pane)
    const own = pane.store.state
    const scene = pane.timeline.currentScene
    const swatch = own.select === null ? null : pane.timeline.colourOf(own.select)
    details.render(scene, swatch, () => pane.stage.matchesOf(own, scene))
  }

  /** Opening details in the first pane closes those of the second; true where that changed the state. */
  closesDetails(state: State, before: State): boolean {
    const second = this.secondOf(state)
    const was = this.secondOf(before)
    const opened = (['select', 'oom', 'stack'] as const).some(
      (key) => state[key] !== null && state[key] !== before[key],
    )
    const isOpen = second && (second.select !== null || second.oom !== null)
    if (!opened || !isOpen || second.select !== was?.select || second.oom !== was.oom) return false
    this.page.store.set({ options: withSecond(state.options, { ...second, select: null, oom: null }) })
    return true
  }

  toggle(): void {
    const { store, client, timeline, announce } = this.page
    const { state } = store
    if (this.shown) {
      this.shown.pane.close()
      timeline.focus()
    } else if (client.devices[state.device] && canSplit(state.view)) {
      const second = firstSecond(state, client.devices)
      store.set({ options: withSecond(state.options, second) })
      announce('Second pane opened.')
    }
  }

  /** "rank1.pickle · cuda:0, event 18,277 (peak), 63.5 GiB allocated" */
  titleOfFirst(state: State): string {
    const { client, timeline } = this.page
    const info: DeviceInfo = client.devices[state.device]
    const data = timeline.currentScene?.data
    return paneTitle(client, state, data ? data.allocated[positionOf(info, state.at)] : null)
  }

  private remove(): void {
    if (!this.shown) return
    const { timeline, stage } = this.page
    const { pane, details } = this.shown
    stage.onShown = pane.stage.onShown = () => {}
    pane.element.remove()
    details.element.remove()
    this.shown = null
    stage.setExtent(null)
    timeline.setExtent(0)
  }

  private open(second: Second): { pane: SecondPane; details: DetailsPanel } {
    const { client, store, announce, tell, changed, stage } = this.page
    const pane = new SecondPane({ client, store, announce, saved: announce, tell, changed }, second)
    const details = new DetailsPanel(
      pane.store,
      (event) => pane.timeline.navigator.centreOn(event),
      () => location.href,
      () => client.source(),
    )
    this.panes.append(pane.element)
    // A view may be shown later than requested, once its replay has arrived.
    stage.onShown = pane.stage.onShown = () => this.agreeOnScale(pane)
    this.workspace.append(details.element)
    return { pane, details }
  }

  /** Both panes on one scale: each makes room for the greater. */
  private agreeOnScale(pane: SecondPane): void {
    const { timeline, stage } = this.page
    const tops = [timeline.extent() ?? 0, pane.timeline.extent() ?? 0]
    for (const each of [timeline, pane.timeline]) each.setExtent(Math.max(...tops))
    const [mine, other] = [stage.ownExtent(), pane.stage.ownExtent()]
    const both = mine && other ? mine.map((value, i) => Math.max(value, other[i])) : null
    for (const each of [stage, pane.stage]) each.setExtent(both)
  }
}
