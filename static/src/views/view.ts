// The interface of a view: it shows a state of one device, and says when it is done.

import type { Replay } from '../allocator/replay'
import type { DataClient } from '../worker/data-client'
import type { DeviceData, DeviceInfo, Stacks } from '../data/model'
import type { Baseline } from './baseline'
import type { Matches } from '../search/matches'
import type { State, Store, ViewName } from '../ui/state'
import type { Colouring } from './colouring'

/** Everything that a view is a function of. */
export interface ViewContext {
  state: State
  info: DeviceInfo
  data: DeviceData
  stacks: Stacks
  /** Position of the moment in the state (the peak where it names none), within the trace. */
  position: number
  /** The matches of the query on this device; null without a query: everything counts. */
  matches: Matches | null
  colouring: Colouring
  dark: boolean
  /** The replay of the allocator; null in views that do not need it, and where addresses were left out of the file. */
  replay: Replay | null
  /** The other side of a comparison; null without one, and until it is read. */
  baseline: Baseline | null
  /** The extent that the scale has to cover, where another pane shows the same view; null: the view's own. */
  extent: readonly number[] | null
}

/** The services that a view may use beside its context. */
export interface ViewParts {
  client: DataClient
  store: Store
  /** Brings an event into the middle of the timeline's window. */
  centreOn(event: number): void
  /** Announces something to screen readers. */
  announce(text: string): void
  /** Reports the result of a download (see ui/download.ts) to everyone, not to screen readers alone. */
  saved(text: string): void
}

export interface View {
  readonly element: HTMLElement
  /** Controls of this view's own, shown in the toolbar with it. */
  readonly tools: HTMLElement | null
  /** It shows the replay, and is not called before that has arrived. */
  readonly needsReplay?: boolean
  /** Called whenever the view is on screen and anything in the context has changed, also its size. */
  show(context: ViewContext): void
  /** Computes the slow part of a first `show` in advance, without elements. Absent: there is none. */
  prepare?(context: ViewContext): void
  /** Called after it was shown off screen: the next `show` is the first that a reader sees. Absent: no difference. */
  forget?(): void
  /** Settles when the state of the last `show` is on screen. Absent: it is at once. */
  settled?(): Promise<void>
  /** The extent of its own scales: two panes take the greater of each. Null: panes need no common scale. */
  extent?(): readonly number[] | null
  /** Handles a key while the view is on screen, before the page does; true when it was used. */
  key?(event: KeyboardEvent): boolean
  /** The view as a picture, for saving. Absent: it has none. */
  picture?(): HTMLCanvasElement | Promise<HTMLCanvasElement>
  /** The shown values, for tests. */
  debug?(): unknown
}

export type ViewFactory = (parts: ViewParts) => View

/** Views that are created when first shown. The timeline and the summary belong to the app. */
export type Registry = Partial<Record<ViewName, ViewFactory>>
