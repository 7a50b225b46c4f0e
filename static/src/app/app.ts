// The app: builds the page's interactive part, keeps state, address and views together.

import { hasAddresses } from '../allocator/replay'
import type { Controller, ViewPatch } from '../controller'
import { dominantStack, liveBytes, positionOf, stackShares } from '../data/held-memory'
import { asksForTimes } from '../search/grammar'
import { hasData } from '../ui/devices'
import { fill, h } from '../ui/dom'
import { isSandboxed } from '../ui/download'
import { type State, Store } from '../ui/state'
import { bindTheme } from '../ui/theme'
import { TimelineView } from '../views/timeline/timeline-view'
import type { DataClient } from '../worker/data-client'
import { pageActions, TimelineActions } from './actions'
import { DetailsPanel } from './details'
import { Fixes } from './fixes'
import { bindHash, bindLinks, follow, readHash, writeHash } from './hash'
import { JobHost } from './job-host'
import { HelpDialog } from './help'
import { bindKeys } from './keyboard'
import { Legend } from './legend'
import { Announcer, focusPicture, Notice, skipLink } from './messages'
import type { Page } from './page'
import { PageTools } from './page-tools'
import { prepareViews, REPLAYED_EARLY_EVENTS } from './prerender'
import { ONLY, SearchBox } from './search-box'
import { Split } from './split'
import { dataOf, Stage } from './stage'
import { currentView, startState, statePatch } from './start-state'
import { Story } from './story'
import { Toolbar } from './toolbar'
import { bindVerdict, isAboutReserved } from './verdict'

export function startApp(client: DataClient, root: HTMLElement): Controller {
  return new App(client, root)
}

class App implements Controller {
  readonly ready: Promise<void>
  private readonly store: Store
  private readonly timeline: TimelineView
  private readonly stage: Stage
  private readonly job: JobHost
  private readonly toolbar: Toolbar
  private readonly search: SearchBox
  private readonly details: DetailsPanel
  private readonly fixes: Fixes
  private readonly legend: Legend
  private readonly story: Story
  private readonly pageTools: PageTools
  private readonly help = new HelpDialog()
  private readonly notice = new Notice()
  private readonly announcer = new Announcer()
  private readonly workspace: HTMLElement
  private readonly split: Split
  /** Callers that wait for a frame with everything in place. */
  private waiting: (() => void)[] = []
  /** Devices whose data is missing or damaged: there is nothing to wait for. */
  private readonly unreadable = new Set<number>()
  private hasPicture = false
  /** The query of the chip that is pointed at. */
  private previewed: string | null = null

  constructor(
    private readonly client: DataClient,
    root: HTMLElement,
  ) {
    const start = startState(client)
    this.store = new Store(readHash(location.hash, start, client.devices.length))
    this.timeline = new TimelineView(client, this.store)
    this.timeline.keepsReserved = isAboutReserved
    this.timeline.onDrawn = () => this.afterDraw()
    this.timeline.onHover = () => this.legend.showSoon()
    this.timeline.onPictureState = () => this.showLimits()
    this.timeline.onError = (error) => this.notice.showError('Part of the picture is missing', error)
    client.onTimes = (index, error) => this.timesCame(index, error)
    const timelineActions = new TimelineActions({
      store: this.store,
      timeline: this.timeline,
      info: () => this.info,
      changed: () => this.render(),
    })
    const { centreOn } = timelineActions
    const announce = (text: string): void => this.announcer.say(text)
    const tell = (text: string): void => this.notice.show(text)
    const saved = isSandboxed() ? tell : announce
    const shared: Page = { client, store: this.store, timeline: this.timeline, centreOn, announce, tell, saved }
    const onError = (error: unknown): void => this.notice.showError('This view cannot be shown', error)
    this.stage = new Stage(shared, onError)
    this.job = new JobHost({ ...shared, onLoaded: () => this.render(), onError })
    // The split is made last, around the others.
    const page = { ...shared, stage: this.stage, job: this.job, split: () => this.split }
    this.legend = new Legend(page)
    this.stage.roomBelow = (view) => this.legend.roomWithout(view)
    this.details = new DetailsPanel(
      this.store,
      centreOn,
      () => location.href.split('#')[0] + writeHash(this.store.state, start),
      () => client.source(),
    )
    this.fixes = new Fixes(page)
    this.story = new Story({
      store: this.store,
      scene: () => this.timeline.currentScene,
      follow: (hash) => follow(this.store, start, client.devices.length, hash),
    })
    this.pageTools = new PageTools({
      ...page,
      story: this.story,
      start,
      fixes: this.fixes,
      legend: this.legend,
    })
    this.search = new SearchBox({
      store: this.store,
      scene: () => this.timeline.currentScene,
      matches: () => this.stage.matchesOf(this.store.state, this.timeline.currentScene),
      reveal: timelineActions.reveal,
    })
    const actions = pageActions({
      ...page,
      timelineActions,
      search: this.search,
      pageTools: this.pageTools,
      help: this.help,
      info: () => this.info,
    })
    this.toolbar = new Toolbar(
      client,
      this.store,
      actions,
      [this.stage.tools, this.job.tools],
      [this.search.element, this.pageTools.element],
    )
    const panes = h('div.panes.fill')
    const column = h('div.column.fill', panes, this.legend.element)
    this.workspace = h('div.workspace', column, this.details.element, this.fixes.element)
    this.split = new Split({ ...page, changed: () => this.render() }, panes, this.workspace)
    panes.append(
      h(
        'div.pane.column.fill',
        this.split.head,
        this.timeline.element,
        this.stage.element,
        this.job.element,
        this.stage.prerender.element,
      ),
    )
    fill(
      root,
      this.toolbar.element,
      this.story.element,
      this.notice.element,
      this.workspace,
      this.help.element,
      this.announcer.element,
    )
    root.hidden = false
    document.body.prepend(skipLink())
    document.body.classList.add('with-app')
    const themeButton = h('button.theme-button')
    ;(document.getElementById('top') ?? root).append(themeButton)
    bindTheme(this.store, themeButton, () => this.themeChanged())
    bindHash(this.store, start, client.devices.length)
    bindVerdict({
      state: () => this.store.state,
      preview: (query) => this.preview(query),
      openLargest: () => this.openLargestMatch(),
    })
    bindLinks(this.store, start, client.devices.length, (link) => {
      // What is beside the timeline vanishes with it.
      if (!this.details.focus() && link.getClientRects().length === 0) focusPicture()
    })
    bindKeys(actions)
    this.store.subscribe((state, before) => this.stateChanged(state, before))
    this.ready = this.settled()
    this.showDevice()
    // The other views' code comes behind what the first picture needs, and runs once that is there: a switch finds it ready.
    // Where it cannot be loaded, a switch reports the error.
    this.stage.fetch().catch(() => {})
    this.ready
      .then(() => this.prepareViews())
      .catch(() => {}) // whoever switches sees the error
      .finally(() => performance.mark('snapreport:prepared'))
    this.render()
  }

  // Controller

  async setView(patch: ViewPatch): Promise<void> {
    this.store.set(statePatch(this.client, this.store.state, patch))
    await this.settled()
  }

  getView(): ReturnType<Controller['getView']> {
    return currentView(this.store, this.timeline, this.info, this.split.pane)
  }

  drawn(): ReturnType<Controller['drawn']> {
    const { drawn } = this.timeline
    // A hidden timeline has nothing pending.
    if (this.store.state.view !== 'timeline') return { ...drawn, pending: 0 }
    return { ...drawn, pending: drawn.pending + (this.split.pane?.timeline.drawn.pending ?? 0) }
  }

  testContextLoss(): void {
    this.timeline.testContextLoss()
  }

  debugView(): unknown {
    const { view } = this.store.state
    if (view === 'job') return this.job.debug()
    return view === 'timeline'
      ? { ...this.timeline.debug(), legend: this.legend.debug(), fixes: this.fixes.debug(), story: this.story.debug() }
      : this.stage.debug()
  }

  // State to page

  private get info() {
    return this.client.devices[this.store.state.device]
  }

  private stateChanged(state: State, before: State): void {
    if (this.split.closesDetails(state, before)) return
    if (state.device !== before.device || before.view === 'job') this.showDevice()
    if (state.select !== before.select && state.select !== null)
      this.announcer.selection(this.timeline.currentScene, state.select)
    if (state.x !== before.x || state.y !== before.y || state.axis !== before.axis) {
      this.announcer.window(this.client.manifest, () => ({
        scene: this.timeline.currentScene,
        state: this.store.state,
      }))
    }
    this.render()
  }

  private render(): void {
    const { state } = this.store
    this.toolbar.render(state, {
      boxMode: this.timeline.boxMode,
      rulerMode: this.timeline.ruler.isOn,
      isSplit: this.split.secondOf(state) !== null,
    })
    this.pageTools.render(state)
    const summary = document.getElementById('summary')
    if (summary) summary.hidden = state.view !== 'summary'
    this.workspace.hidden = state.view === 'summary'
    this.timeline.element.hidden = state.view !== 'timeline'
    document.body.dataset.view = state.view
    this.colour()
    this.stage.show(state, this.timeline.currentScene)
    this.job.show(state)
    this.search.element.hidden = state.view === 'job'
    this.split.render(state)
    this.search.render(state)
    const scene = this.timeline.currentScene
    const swatch = state.select === null ? null : this.timeline.colourOf(state.select)
    this.details.render(scene, swatch, () => this.stage.matchesOf(state, scene))
    // There is room for one panel: the one that was opened last.
    if (this.split.hasDetails) this.details.element.hidden = true
    this.fixes.render(state, scene)
    this.story.render(state)
  }

  /** Gives colours and matches to the timeline, and the legend its colours. */
  private colour(): void {
    const { state } = this.store
    const scene = this.timeline.currentScene
    const matches = this.stage.matchesOf({ ...state, query: this.previewed ?? state.query }, scene)
    this.timeline.setColouring(this.stage.colouringOf(state, scene), matches)
    this.timeline.setOnly(state.options[ONLY] === 'yes' && matches && this.previewed === null ? matches.mask : null)
    this.timeline.setCurve(
      this.previewed !== null && matches && scene?.data ? liveBytes(scene.data, matches.mask) : null,
    )
    this.legend.show()
  }

  private openLargestMatch(): void {
    const { state } = this.store
    const scene = this.timeline.currentScene
    const matches = this.stage.matchesOf(state, scene)
    if (!scene?.data || !matches) return
    const shares = stackShares(scene.data, positionOf(scene.info, state.at), (id) => matches.mask[id] !== 0)
    this.store.set({ stack: dominantStack(shares) })
  }

  private preview(query: string | null): void {
    if (this.previewed === query) return
    this.previewed = query
    if (this.store.state.view === 'timeline') this.colour()
  }

  private async prepareViews(): Promise<void> {
    // A job of digests alone has no view of a device.
    if (this.info || !this.client.manifest.job) await prepareViews(this.stage, this.info?.events ?? Infinity)
  }

  private showDevice(): void {
    const { info } = this
    // A job needs none of its devices, and may have none; the device is read when a view of it is first shown.
    if (this.store.state.view === 'job') return
    if (!info) {
      this.workspace.classList.add('nothing')
      this.notice.show('This report has no device: the snapshot has neither events nor segments.')
      return
    }
    this.workspace.classList.toggle('nothing', !hasData(info))
    this.notice.hide()
    this.showLimits()
    this.timeline.setDevice(info.index, null, null)
    // The first picture requests its tile before the columns are requested: it must not wait for them.
    this.timeline.drawNow()
    Promise.all([this.client.device(info.index), this.client.stacks()]).then(
      ([data, stacks]) => {
        if (this.store.state.device !== info.index) return
        this.timeline.setDevice(info.index, data, stacks)
        this.render()
        if (info.events <= REPLAYED_EARLY_EVENTS && hasAddresses(data)) this.stage.replayOf(info.index)
        const scene = this.timeline.currentScene
        if (scene) this.ready.then(() => this.fixes.fitChips(scene)).catch(() => {})
      },
      (error: unknown) => {
        this.unreadable.add(info.index)
        if (this.store.state.device === info.index) this.notice.showError('This device cannot be read', error)
        this.release()
      },
    )
  }

  /** The times of a large device are read when something first shows them. */
  private timesCame(index: number, error: unknown): void {
    if (index !== this.store.state.device) return
    if (error !== undefined) this.notice.showError('The times of this device cannot be read', error)
    this.timeline.requestFrame()
    this.render()
  }

  private showLimits(): void {
    this.notice.showLimits(this.info, { hasNoWorker: this.client.hasNoWorker, hasNoWebGl: this.timeline.isFlat })
  }

  // Frames

  private afterDraw(): void {
    const { timeline } = this
    if (!this.hasPicture && timeline.drawn.tiles > 0) {
      this.hasPicture = true
      performance.mark('snapreport:first-picture')
    }
    this.legend.showSoon()
    if (timeline.isComplete) this.release()
  }

  private async settled(): Promise<void> {
    if (this.split.pane) await this.split.pane.settled()
    const { view, query } = this.store.state
    if (this.info && asksForTimes(query)) await this.client.times(this.info.index)
    if (view === 'job') await this.job.settled()
    else if (view !== 'timeline' && view !== 'summary' && this.info) {
      await dataOf(this.client, this.info.index)
      await this.stage.settled()
    }
    return new Promise((resolve) => {
      this.waiting.push(resolve)
      if (this.store.state.view === 'timeline' && this.info && !this.unreadable.has(this.info.index))
        this.timeline.requestFrame()
      else requestAnimationFrame(() => this.release())
    })
  }

  private themeChanged(): void {
    this.timeline.themeChanged()
    this.split.pane?.timeline.themeChanged()
    this.colour()
    this.stage.show(this.store.state, this.timeline.currentScene)
    this.job.show(this.store.state)
  }

  private release(): void {
    const { waiting } = this
    if (waiting.length > 0) this.legend.flush()
    this.waiting = []
    for (const resolve of waiting) resolve()
  }
}
