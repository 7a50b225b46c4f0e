// Two panes: creates, shows and removes the second pane and its details, and keeps both panes on one scale.

import { positionOf } from '../data/held-memory'
import type { DeviceInfo } from '../data/model'
import { formatBytes, formatCount } from '../layout/format'
import { deviceLabel, hasData } from '../ui/devices'
import { button, menu } from '../ui/controls'
import { h } from '../ui/dom'
import { afterSecond, canSplit, firstSecond, type Second, secondOf, stateOfSecond, withSecond } from '../ui/second'
import { type State, Store } from '../ui/state'
import type { Scene } from '../views/shared/scene'
import { TimelineView } from '../views/timeline/timeline-view'
import type { ViewParts } from '../views/view'
import type { DataClient } from '../worker/data-client'
import { DetailsPanel } from './details'
import type { Page } from './page'
import { Stage } from './stage'

/** The first pane, and what both need of the page. */
interface Parts extends Page {
  stage: Stage
  /** Something has to be shown again. */
  changed(): void
}

export class Split {
  /** The title of the first pane, where there are two. */
  readonly head = h('p.row.pane-head', { hidden: true })
  private shown: { pane: SecondPane; details: DetailsPanel } | null = null

  /** panes: the parent of both; workspace: the parent of the details. */
  constructor(
    private readonly page: Parts,
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
    return paneTitle(client, state, timeline.currentScene)
  }

  private remove(): void {
    if (!this.shown) return
    const { timeline, stage } = this.page
    const { pane, details } = this.shown
    stage.onShown = pane.stage.onShown = () => {}
    timeline.peer = null
    pane.element.remove()
    details.element.remove()
    this.shown = null
    stage.setExtent(null)
    timeline.setExtent(0)
  }

  private open(second: Second): { pane: SecondPane; details: DetailsPanel } {
    const { client, stage, timeline } = this.page
    const pane = new SecondPane(this.page, second)
    timeline.peer = pane.timeline
    pane.timeline.peer = timeline
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

/** Views that show a window of the trace. */
const WINDOWED: ReadonlySet<string> = new Set(['timeline', 'reserved', 'segments', 'events'])

export class SecondPane {
  readonly element: HTMLElement
  readonly store: Store
  readonly timeline: TimelineView
  readonly stage: Stage
  private readonly device: HTMLSelectElement
  private readonly title = h('span.fill.clip')
  private readonly link: HTMLElement
  private readonly linked = h('input', { type: 'checkbox' })
  private readonly stacked: HTMLButtonElement
  private readonly head: HTMLElement
  /** The device whose columns were requested. */
  private requested = -1
  private follows = false

  constructor(
    private readonly page: Parts,
    second: Second,
  ) {
    const { client, store } = page
    this.store = new Store(stateOfSecond(store.state, second, client.devices))
    this.timeline = new TimelineView(client, this.store)
    const parts: ViewParts = {
      client,
      store: this.store,
      centreOn: (event) => {
        this.store.set({ view: 'timeline' })
        this.timeline.navigator.centreOn(event)
      },
      announce: page.announce,
      saved: page.announce,
    }
    this.stage = new Stage(parts, (error) => page.tell(`This view cannot be shown: ${String(error)}`))
    this.device = menu(
      'Device of the second pane',
      client.devices.filter(hasData).map((info) => [String(info.index), deviceLabel(client.manifest, info)]),
      (index) => this.store.set({ device: Number(index) }),
    )
    this.linked.addEventListener('change', () => this.change({ apart: !this.linked.checked, x: this.store.state.x }))
    this.stacked = button('⇅', 'One over the other', () => this.change({ stacked: !this.second.stacked }))
    this.stacked.setAttribute('aria-label', 'One over the other')
    const title = 'Both panes show the same part of their traces'
    this.link = h('label.switch', { title }, this.linked, 'Linked window')
    this.head = h(
      'div.row.pane-head',
      this.device,
      this.title,
      this.link,
      this.stacked,
      h('button', { title: 'Close the second pane (L)', 'aria-label': 'Close', onclick: () => this.close() }, '×'),
    )
    this.element = h(
      'section.pane.column.fill.second',
      { 'aria-label': 'Second pane' },
      this.head,
      this.timeline.element,
      this.stage.element,
    )
    this.store.subscribe((state) => this.ownChanged(state))
  }

  get info(): DeviceInfo {
    return this.page.client.devices[this.store.state.device]
  }

  /** Its choices; they open and close it. */
  get second(): Second {
    return secondOf(this.page.store.state.options, this.page.client.devices.length)!
  }

  /** Follows the page's state. */
  render(state: State, second: Second): void {
    this.follows = true
    this.store.set(stateOfSecond(state, second, this.page.client.devices))
    this.follows = false
    this.linked.checked = !second.apart
    this.stacked.setAttribute('aria-pressed', String(second.stacked))
    this.device.value = String(second.device)
    this.showDevice()
    const own = this.store.state
    const scene = this.timeline.currentScene
    this.timeline.element.hidden = own.view !== 'timeline'
    this.timeline.setColouring(this.stage.colouringOf(own, scene), this.stage.matchesOf(own, scene))
    this.stage.show(own, scene)
    this.title.textContent = this.title.title = momentTitle(own, this.info, scene)
    this.link.hidden = !WINDOWED.has(own.view)
  }

  /** "rank1.pickle · cuda:0, event 18,277 (peak), 63.5 GiB allocated" */
  get words(): string {
    return paneTitle(this.page.client, this.store.state, this.timeline.currentScene)
  }

  /** What it shows, for `getView`. */
  view(): { device: number; at: number | null; select: number | null; x: [number, number]; y: [number, number] } {
    const { device, at, select } = this.store.state
    const window = this.timeline.navigator.window()
    const scale = this.timeline.currentScene?.scale(this.store.state.axis)
    return {
      device,
      at,
      select,
      x: window && scale ? [scale.toEvent(window.x0), scale.toEvent(window.x1)] : [-1, this.info.events],
      y: window ? [window.y0, window.y1] : [0, this.info.peak_bytes],
    }
  }

  /** Settled when what it shows is on screen. */
  async settled(): Promise<void> {
    const { view } = this.store.state
    await Promise.all([this.page.client.device(this.info.index), this.page.client.stacks()])
    if (view !== 'timeline') return this.stage.settled()
    const end = performance.now() + 10_000
    while (!this.timeline.isComplete && performance.now() < end) {
      this.timeline.requestFrame()
      await new Promise((resolve) => setTimeout(resolve, 16))
    }
  }

  close(): void {
    const { store } = this.page
    store.set({ options: withSecond(store.state.options, null) })
  }

  private change(patch: Partial<Second>): void {
    const { store } = this.page
    store.set({ options: withSecond(store.state.options, { ...this.second, ...patch }) })
  }

  /** What this pane shows was changed. */
  private ownChanged(state: State): void {
    if (this.follows) return
    const { client, store } = this.page
    store.set(afterSecond(store.state, this.second, state, client.devices))
  }

  private showDevice(): void {
    const { client } = this.page
    const { index } = this.info
    if (this.requested === index) return
    this.requested = index
    this.timeline.setDevice(index, null, null)
    Promise.all([client.device(index), client.stacks()]).then(
      ([data, stacks]) => {
        if (this.requested !== index) return
        this.timeline.setDevice(index, data, stacks)
        this.page.changed()
      },
      (error: unknown) => this.page.tell(`This device cannot be read: ${String(error)}`),
    )
  }
}

/** What the head of the first pane says: "rank1.pickle · cuda:0, event 18,277 (peak), 63.5 GiB allocated". */
function paneTitle(client: DataClient, state: State, scene: Scene | null): string {
  const info = client.devices[state.device]
  return `${deviceLabel(client.manifest, info)}, ${momentTitle(state, info, scene)}`
}

function momentTitle({ at }: State, info: DeviceInfo, scene: Scene | null): string {
  const data = scene?.info.index === info.index ? scene.data : null
  const event = at ?? info.peak_event
  const kind = event === info.peak_event ? ' (peak)' : info.ooms.some((oom) => oom.event === event) ? ' (OOM)' : ''
  const moment = event < 0 ? 'before the first event' : `event ${formatCount(event)}${kind}`
  return data ? `${moment}, ${formatBytes(data.allocated[positionOf(info, at)])} allocated` : moment
}
