// What the parts of the page share.

import type { TimelineView } from '../views/timeline/timeline-view'
import type { ViewParts } from '../views/view'

export interface Page extends ViewParts {
  timeline: TimelineView
  /** Says above the views what went wrong. */
  tell(text: string): void
}
