// The seam between window.snapreport (api.ts) and the app that shows things (ui/): the app implements Controller.

import type { Axis } from './data/model'

/** What callers may change. Devices by index; x in events on either axis, y in bytes; select null clears. */
export interface ViewPatch {
  device?: number
  view?: string
  x?: [number, number]
  y?: [number, number]
  axis?: Axis
  select?: number | null
  query?: string
  /** The out-of-memory event, or the stack, whose details are open; null closes them. */
  oom?: number | null
  stack?: number | null
  /** The moment of the views that show one: an event, -1 before the first; null: the peak. */
  at?: number | null
  colour?: string
  /** A second pane over the same state; null closes it. */
  second?: SecondPatch | null
  /** Choices of single views by "view.choice"; merged into the current ones, null restores a default. */
  options?: Record<string, string | null>
}

/** What is absent stays, or has its default where the pane opens: the next device, its peak, linked windows, side by side. */
export interface SecondPatch {
  device?: number
  at?: number | null
  x?: [number, number] | null
  select?: number | null
  /** Its window does not follow the first pane's. */
  apart?: boolean
  /** Stacked vertically. */
  stacked?: boolean
}

export interface ViewState {
  device: number
  view: string
  x: [number, number]
  y: [number, number]
  axis: Axis
  select: number | null
  query: string
  oom: number | null
  stack: number | null
  at: number | null
  colour: string
  options: Record<string, string>
  /** The second pane; null without one. */
  second: SecondView | null
}

/** What a second pane shows beside the first: device by index as in ViewState. */
export interface SecondView {
  device: number
  at: number | null
  select: number | null
  x: [number, number]
  y: [number, number]
}

/** What the last frame showed. */
export interface Drawn {
  /** Coarsest level among the drawn tiles. */
  level: number
  triangles: number
  /** Every drawn tile is exact. */
  exact: boolean
  tiles: number
  /** Requested tiles that had not arrived. */
  pending: number
}

export interface Controller {
  /** Settles after the frame that shows it, with every tile of the window in place. Rejects on an absent view. */
  setView(patch: ViewPatch): Promise<void>
  getView(): ViewState
  drawn(): Drawn
  /** Settled once the first view is painted from real data, and the code of the others has run. */
  ready: Promise<void>
  testContextLoss(): void
  /** What the view on screen shows, as plain values, for the tests. */
  debugView(): unknown
}
