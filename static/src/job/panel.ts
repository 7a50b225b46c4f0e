// The interface of a panel beside the map.

import type { JobModel } from './job-model'

export interface Panel {
  readonly element: HTMLElement
  /** Called when it is on screen and anything has changed. */
  render(model: JobModel): void
  /** Handles a key before the page does; true when used. */
  key?(event: KeyboardEvent): boolean
  debug?(): unknown
}
