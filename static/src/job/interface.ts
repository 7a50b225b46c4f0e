// What the page and the job view, which is a bundle of its own, know of each other.

import type { DecodedBlob } from '../data/columns'
import type { JobManifest } from '../data/job-manifest'
import type { State, Store } from '../ui/state'

export interface JobParts {
  manifest: JobManifest
  columns: DecodedBlob
  heat: DecodedBlob
  store: Store
  /** Shows the timeline of a device that the report holds. */
  openDevice(device: number): void
  /** Says something to screen readers. */
  announce(text: string): void
  /** Says what became of a file (see ui/download.ts). */
  saved(text: string): void
}

export interface JobPage {
  readonly element: HTMLElement
  /** Controls in the toolbar. */
  readonly tools: HTMLElement
  show(state: State, dark: boolean): void
  /** Settled when what the last `show` asked for is on screen. */
  settled(): Promise<void>
  /** A key before the page's own; true when used. */
  key(event: KeyboardEvent): boolean
  picture(): HTMLCanvasElement
  testContextLoss(): void
  debug(): unknown
}

export type JobFactory = (parts: JobParts) => JobPage
