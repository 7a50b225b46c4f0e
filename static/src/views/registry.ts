// The views that are created when first shown.

import { DiffView } from './diff/diff-view'
import { FlameView } from './flame/flame-view'
import { ReservedView } from './reserved/reserved-view'
import { SegmentsView } from './segments/segments-view'
import { EventsView } from './events/events-view'
import { TableView } from './table/table-view'
import { XrayView } from './xray/xray-view'
import type { Registry } from './view'

export const REGISTRY: Registry = {
  segments: (parts) => new SegmentsView(parts),
  reserved: (parts) => new ReservedView(parts),
  flame: (parts) => new FlameView(parts),
  xray: (parts) => new XrayView(parts),
  table: (parts) => new TableView(parts),
  events: (parts) => new EventsView(parts),
  diff: (parts) => new DiffView(parts),
}
