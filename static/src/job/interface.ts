// The interface between the page and the job view, which is a bundle of its own.

import type { DecodedBlob } from '../data/columns'
import type { JobManifest } from '../data/contracts'
import { deliverExports, runBundle } from '../ui/run-bundle'
import type { State, Store } from '../ui/state'

export interface JobParts {
  manifest: JobManifest
  columns: DecodedBlob
  heat: DecodedBlob
  store: Store
  /** Shows the timeline of a device that the report holds. */
  openDevice(device: number): void
  /** Announces something to screen readers. */
  announce(text: string): void
  /** Reports the result of a download (see ui/download.ts). */
  saved(text: string): void
}

export interface JobPage {
  readonly element: HTMLElement
  /** Controls in the toolbar. */
  readonly tools: HTMLElement
  show(state: State, dark: boolean): void
  /** Settles when the state of the last `show` is on screen. */
  settled(): Promise<void>
  /** Handles a key before the page does; true when used. */
  key(event: KeyboardEvent): boolean
  picture(): HTMLCanvasElement
  debug(): unknown
}

type JobFactory = (parts: JobParts) => JobPage

const PLACE = 'snapreportJob'
export const JOB_CODE = 'jobview'

/** Called by the job's bundle. */
export function deliverJob(factory: JobFactory): void {
  deliverExports(PLACE, factory)
}

export function runJob(code: string): JobFactory {
  return runBundle(code, PLACE, 'the job view')
}
