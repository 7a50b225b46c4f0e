// What every part beside the map is.

import type { JobModel } from './job-model'

export interface Panel {
  readonly element: HTMLElement
  /** Called when it is on screen and anything has changed. */
  render(model: JobModel): void
  /** A key that the page does not take first; true when used. */
  key?(event: KeyboardEvent): boolean
  debug?(): unknown
}
