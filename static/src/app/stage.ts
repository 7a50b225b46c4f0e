// The place of the views that are created when first shown: one at a time, each given its context whenever that changes.

import { hasAddresses, type Replay } from '../allocator/replay'
import { positionOf } from '../data/held-memory'
import type { DeviceData } from '../data/model'
import { asksForTimes } from '../search/grammar'
import { evaluateQuery, type Matches } from '../search/matches'
import { fill, h } from '../ui/dom'
import type { State, ViewName } from '../ui/state'
import { isDark } from '../ui/theme'
import { type Colouring, makeColouring } from '../views/colouring'
import { type Baseline, homesOf, makeBaseline } from '../views/baseline'
import { fetchViews, loadViews } from '../views/load'
import type { Scene } from '../views/shared/scene'
import type { Registry, View, ViewContext, ViewParts } from '../views/view'
import type { DataClient } from '../worker/data-client'
import { Prerender } from './prerender'
import { Memo } from '../views/memo'

/** Those that take longest to show a first time come first. */
const REHEARSED: readonly ViewName[] = ['reserved', 'table', 'segments', 'events', 'flame']

export class Stage {
  readonly element = h('div.stage.column.fill', { hidden: true })
  readonly prerender = new Prerender()
  /** The controls of the view on screen. */
  readonly tools = h('div.row.wrap.view-tools', { hidden: true })
  private readonly views = new Map<ViewName, View>()
  /** Views that the reader was shown. */
  private readonly shown = new Set<ViewName>()
  private current: View | null = null
  private readonly side = new Memo<{ before: DeviceData | null; home: Int32Array | null }>()
  private pending: { state: State; scene: Scene | null } | null = null
  private context: ViewContext | null = null
  /** As it was when the view was last shown: an observer also reports an element that was just added to the page. */
  private size = ''
  private readonly matched = new Memo<Matches | null>()
  private readonly coloured = new Memo<Colouring>()

  /** By device; null: pending. */
  private readonly replays = new Map<number, Replay | null>()

  private registry: Registry | null = null
  /** The view on screen has been shown again. */
  onShown: () => void = () => {}
  /** Pixels that a view has below the room that is there now: it is rehearsed at the size at which it will be shown. */
  roomBelow: (view: ViewName) => number = () => 0
  /** Of both panes, where there are two. */
  extent: readonly number[] | null = null

  /** onError: called when the views' code cannot be loaded. */
  constructor(
    private readonly parts: ViewParts,
    private readonly onError: (error: unknown) => void,
  ) {
    new ResizeObserver(
      () => this.current && this.context && this.sizeNow() !== this.size && this.showNow(this.current, this.context),
    ).observe(this.element)
  }

  /** Shows the view of the state; a scene without data leaves it blank until the columns arrive. */
  show(state: State, scene: Scene | null): void {
    this.pending = { state, scene }
    const view = this.viewOf(state.view)
    if (view !== this.current) {
      this.current = view
      this.context = null
      fill(this.element, view?.element ?? null)
      fill(this.tools, view?.tools ?? null)
      this.tools.hidden = !view?.tools
      this.element.hidden = !view
    }
    if (!view) return
    this.shown.add(state.view)
    const replay = view.needsReplay && scene?.data && hasAddresses(scene.data) ? this.replayOf(scene.info.index) : null
    this.context = replay === 'pending' ? null : contextOf(this, state, scene, replay)
    this.element.classList.toggle('reading', !this.context)
    if (this.context) this.showNow(view, this.context)
  }

  /** The extent that the view on screen alone would scale to; null where it has none, or nothing is shown yet. */
  ownExtent(): readonly number[] | null {
    return (this.context && this.current?.extent?.()) ?? null
  }

  /** Makes room for another pane's extent, or no longer. */
  setExtent(extent: readonly number[] | null): void {
    if (String(extent) === String(this.extent)) return
    this.extent = extent
    if (this.pending) this.show(this.pending.state, this.pending.scene)
  }

  private showNow(view: View, context: ViewContext): void {
    view.show(context)
    this.size = this.sizeNow()
    this.onShown()
  }

  private sizeNow(): string {
    return `${this.element.clientWidth} ${this.element.clientHeight}`
  }

  /** What the query in the state matches on the device of a scene; null without a query, without data, or with a bad query. */
  matchesOf(state: State, scene: Scene | null): Matches | null {
    if (!state.query || !scene?.data || !scene.stacks) return null
    const { query } = state
    const { data, stacks, info } = scene
    // Times of a large device come later: what was matched without them is matched again.
    const timed = asksForTimes(query) && data.timeUs !== null
    return this.matched.get([data, timed, query], () => {
      try {
        return evaluateQuery(data, stacks, info, query)
      } catch {
        return null // the search box says what is wrong with it
      }
    })
  }

  colouringOf(state: State, scene: Scene | null): Colouring | null {
    if (!scene?.data || !scene.stacks) return null
    const { data, stacks } = scene
    const dark = isDark(state.theme)
    return this.coloured.get([data, dark, state.colour], () => makeColouring(data, stacks, state.colour, dark))
  }

  /** The other side of a comparison; requested when first needed, shown when it has arrived. */
  baselineOf(state: State): Baseline | null {
    const { client } = this.parts
    const pair = client.manifest.diff?.devices.find(({ after }) => after === state.device)
    if (!pair) return null
    const { before, home } = this.side.get([pair], () => {
      const side: { before: DeviceData | null; home: Int32Array | null } = { before: null, home: null }
      Promise.all([client.device(pair.before), client.device(pair.after), client.identity()]).then(
        ([before, after, identity]) => {
          side.before = before
          side.home = homesOf(identity, before.stack, after.stack)
          if (this.pending) this.show(this.pending.state, this.pending.scene)
        },
        this.onError,
      )
      return side
    })
    return before && home && makeBaseline(this.parts.client, pair, before, home, state.options['diff.moment'])
  }

  /** The replay of a device; requested when a view first needs it, shown when it has arrived. */
  replayOf(device: number): Replay | 'pending' {
    const replay = this.replays.get(device)
    if (replay) return replay
    if (replay === undefined) {
      this.replays.set(device, null)
      const shown = this.parts.client.replay(device).then((made) => {
        this.replays.set(device, made)
        if (this.current?.needsReplay && this.pending) this.show(this.pending.state, this.pending.scene)
      })
      shown.catch(this.onError)
    }
    return 'pending'
  }

  /** Reads the code of the views from the report, to be run by `load`. */
  async fetch(): Promise<void> {
    await fetchViews(this.parts.client)
  }

  /** Runs the code of the views, ahead of the first switch or at it. */
  async load(): Promise<void> {
    if (this.registry) return
    this.registry = await loadViews(this.parts.client)
    if (this.pending) this.show(this.pending.state, this.pending.scene)
  }

  /**
   * Shows the views that were not shown yet, off screen, while there is no input; what takes long is computed in a step
   * before. Does nothing where there is no room for them now.
   */
  async rehearse(): Promise<void> {
    const data = this.pending?.scene?.data
    if (!data || this.prerender.element.clientHeight === 0) return
    const { client } = this.parts
    const { index } = data.info
    await client.times(index)
    if (hasAddresses(data)) this.replayOf(index)
    const replay = hasAddresses(data) ? await client.replay(index) : null
    const contextNow = ({ needsReplay }: View, name: ViewName): ViewContext | null => {
      const { state, scene } = this.pending!
      // By now the reader may have switched to it, or to another device.
      if (this.shown.has(name) || scene?.data !== data) return null
      return contextOf(this, { ...state, view: name }, scene, needsReplay ? replay : null)
    }
    await this.prerender.rehearse(
      REHEARSED.filter((name) => !this.views.has(name)),
      (name) => {
        const view = this.viewOf(name)
        const context = view && contextNow(view, name)
        if (context) view.prepare?.(context)
      },
      (name, place) => {
        const view = this.viewOf(name)
        const context = view && contextNow(view, name)
        if (!context) return
        place.style.bottom = `${-this.roomBelow(name)}px`
        fill(place, view.element)
        view.show(context)
        view.forget?.()
      },
    )
  }

  async settled(): Promise<void> {
    await this.load()
    const data = this.pending?.scene?.data
    if (this.current?.needsReplay && data && hasAddresses(data)) await this.parts.client.replay(data.info.index)
    await this.current?.settled?.()
  }

  key(event: KeyboardEvent): boolean {
    return this.current?.key?.(event) ?? false
  }

  picture(): Promise<HTMLCanvasElement> | null {
    const picture = this.current?.picture?.()
    return picture ? Promise.resolve(picture) : null
  }

  debug(): unknown {
    return this.current?.debug?.() ?? null
  }

  private viewOf(name: ViewName): View | null {
    let view = this.views.get(name)
    if (!view) {
      if (!this.registry && name !== 'timeline' && name !== 'summary' && name !== 'job')
        this.load().catch((error: unknown) => this.onError(error))
      view = this.registry?.[name]?.(this.parts)
      if (view) this.views.set(name, view)
    }
    return view ?? null
  }
}

function contextOf(stage: Stage, state: State, scene: Scene | null, replay: Replay | null): ViewContext | null {
  const colouring = stage.colouringOf(state, scene)
  if (!scene?.data || !scene.stacks || !colouring || scene.info.index !== state.device) return null
  return {
    state,
    info: scene.info,
    data: scene.data,
    stacks: scene.stacks,
    position: positionOf(scene.info, state.at),
    matches: stage.matchesOf(state, scene),
    colouring,
    dark: isDark(state.theme),
    replay,
    baseline: stage.baselineOf(state),
    extent: stage.extent,
  }
}

/** For callers that need the data of the device before a view can be settled. */
export function dataOf(client: DataClient, index: number): Promise<unknown> {
  return Promise.all([client.device(index), client.stacks()])
}
