// What every view is: something that shows a state of one device, and says when it is done.

import type { Replay } from '../allocator/replay'
import type { DataClient } from '../worker/data-client'
import type { DeviceData, DeviceInfo, Stacks } from '../data/model'
import type { Baseline } from './diff/baseline'
import type { Matches } from '../search/matches'
import type { State, Store, ViewName } from '../ui/state'
import type { Colouring } from './colouring'

/** All that a view is a function of. */
export interface ViewContext {
  state: State
  info: DeviceInfo
  data: DeviceData
  stacks: Stacks
  /** Position of the moment in the state (the peak where it names none), within the trace. */
  position: number
  /** What the query matches on this device; null without a query: everything counts. */
  matches: Matches | null
  colouring: Colouring
  dark: boolean
  /** The allocator's state all along; null in views that do not ask for it, and where addresses were left out of the file. */
  replay: Replay | null
  /** What the device is compared with; null where it is not, and until that is read. */
  baseline: Baseline | null
  /** The extent that the scale has to make room for, where another pane shows the same view; null: the view's own. */
  extent: readonly number[] | null
}

/** What a view may use beside its context. */
export interface ViewParts {
  client: DataClient
  store: Store
  /** Brings an event into the middle of the timeline's window. */
  centreOn(event: number): void
  /** Says something to screen readers. */
  announce(text: string): void
  /** Says what became of a file (see ui/download.ts), where it must be seen to all. */
  saved(text: string): void
}

export interface View {
  readonly element: HTMLElement
  /** Controls of this view's own, shown in the toolbar with it. */
  readonly tools: HTMLElement | null
  /** It shows the replay: it is not called before that is there. */
  readonly needsReplay?: boolean
  /** Called whenever the view is on screen and anything in the context has changed, also its size. */
  show(context: ViewContext): void
  /** Works out, ahead of a first `show` and without elements, what takes that longest. Absent: nothing does. */
  prepare?(context: ViewContext): void
  /** It was shown where nobody saw it: the next time is the first. Absent: that makes no difference. */
  forget?(): void
  /** Settled when what the last `show` asked for is on screen. */
  settled(): Promise<void>
  /** What its scales are made for by what it shows itself: two panes take the greater of each. Null: nothing to agree on. */
  extent?(): readonly number[] | null
  /** A key while the view is on screen, before the page's own keys; true when it was used. */
  key?(event: KeyboardEvent): boolean
  /** The view as a picture, for saving. Absent: it has none. */
  picture?(): HTMLCanvasElement | Promise<HTMLCanvasElement>
  /** What is shown, as plain values, for tests. */
  debug?(): unknown
}

export type ViewFactory = (parts: ViewParts) => View

/** Views that are made when first shown. The timeline and the summary are the app's own. */
export type Registry = Partial<Record<ViewName, ViewFactory>>
