// What the page shows now, as `getView` gives it.

import type { Controller } from '../controller'
import type { DeviceInfo } from '../data/model'
import type { Store } from '../ui/state'
import type { TimelineView } from '../views/timeline/timeline-view'
import type { SecondPane } from './second-pane'

/** info: the device in the state; pane: the second pane, where there is one. */
export function currentView(
  store: Store,
  timeline: TimelineView,
  info: DeviceInfo | undefined,
  pane: SecondPane | null,
): ReturnType<Controller['getView']> {
  const { device, view, select, oom, stack, query, axis, at, colour, options, x, y } = store.state
  const window = timeline.navigator.window()
  const scale = timeline.currentScene?.scale(axis)
  return {
    device,
    view,
    select,
    oom,
    stack,
    query,
    at,
    colour,
    options: { ...options },
    axis: scale?.axis ?? axis,
    // As it was set, where the timeline has no window yet; after clamping otherwise.
    x:
      window && scale
        ? [scale.toEvent(window.x0), scale.toEvent(window.x1)]
        : [x?.[0] ?? -1, x?.[1] ?? info?.events ?? 0],
    y: window ? [window.y0, window.y1] : [y?.[0] ?? 0, y?.[1] ?? info?.peakBytes ?? 0],
    second: pane?.view() ?? null,
  }
}
