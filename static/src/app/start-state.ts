// The state that a report opens on, as `getView` gives it, and as `setView` changes it.

import type { Controller, ViewPatch } from '../controller'
import type { DeviceInfo } from '../data/model'
import { firstDevice, openingFailure, viewsOf } from '../ui/devices'
import { firstSecond, secondOf, withSecond } from '../ui/second'
import { COLOURS, type ColourBy, patched, type State, type Store, type ViewName } from '../ui/state'
import { whyNot } from '../views/colouring'
import type { TimelineView } from '../views/timeline/timeline-view'
import type { DataClient } from '../worker/data-client'
import type { SecondPane } from './split'

/** Categories tell a story where most bytes at the peak have one. */
export function startColour(info: DeviceInfo | undefined): ColourBy {
  return info && 2 * info.named_bytes > info.peak_bytes && whyNot(info, 'category') === null ? 'category' : 'stack'
}

/** Where nothing is allocated or freed the timeline would be one rectangle: what is known then is the map of segments. */
export function startView(info: DeviceInfo | undefined): ViewName {
  if (!info || info.stats.segments === 0 || info.ooms.length > 0) return 'timeline'
  return info.allocations === info.ghosts ? 'segments' : 'timeline'
}

/** The failure that the headline is about, a comparison's first pair, or the first device with a timeline. */
export function startState(client: DataClient): State {
  const { diff, job } = client.manifest
  const failure = diff ? null : openingFailure(client)
  const device = diff?.devices[0]?.after ?? failure?.device ?? firstDevice(client)
  return {
    device,
    view: job ? 'job' : diff ? 'diff' : startView(client.devices[device]),
    axis: 'event',
    x: null,
    y: null,
    select: null,
    oom: null,
    stack: null,
    at: failure?.event ?? null,
    query: '',
    colour: startColour(client.devices[device]),
    options: {},
    theme: 'system',
    noise: false,
  }
}

/** info: the device in the state; pane: the second pane, where there is one. */
export function currentView(
  store: Store,
  timeline: TimelineView,
  info: DeviceInfo | undefined,
  pane: SecondPane | null,
): ReturnType<Controller['getView']> {
  const { theme: _, noise: __, options, axis, x, y, ...others } = store.state
  const window = timeline.navigator.window()
  const scale = timeline.currentScene?.scale(axis)
  return {
    ...others,
    options: { ...options },
    axis: scale?.axis ?? axis,
    // As it was set, where the timeline has no window yet; after clamping otherwise.
    x:
      window && scale
        ? [scale.toEvent(window.x0), scale.toEvent(window.x1)]
        : [x?.[0] ?? -1, x?.[1] ?? info?.events ?? 0],
    y: window ? [window.y0, window.y1] : [y?.[0] ?? 0, y?.[1] ?? info?.peak_bytes ?? 0],
    second: pane?.view() ?? null,
  }
}

/** Throws on a view, device, axis or colouring that the report does not have. */
export function statePatch(client: DataClient, state: State, patch: ViewPatch): Partial<State> {
  const { second: _, options: __, ...given } = patch
  const { view, device, axis, colour } = given
  const views = viewsOf(client)
  if (view !== undefined && !views.includes(view as ViewName)) {
    throw new Error(`this report has no view "${view}"; it has ${views.join(', ')}`)
  }
  const info = client.devices[device ?? state.device]
  if (!info && (device !== undefined || client.manifest.job === null))
    throw new Error(`this report has no device ${device}`)
  if (axis === 'time' && (info?.time0 ?? null) === null) throw new Error('this snapshot was recorded without times')
  if (colour !== undefined && !COLOURS.includes(colour as ColourBy)) {
    throw new Error(`colour is one of ${COLOURS.join(', ')}, not "${colour}"`)
  }
  const known = Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined)) as Partial<State>
  return { ...known, ...optionsPatch(client, state, patch) }
}

function optionsPatch(client: DataClient, state: State, { device, options, second }: ViewPatch): Partial<State> {
  if (options === undefined && second === undefined) return {}
  const changed = patched(state.options, options ?? {})
  if (second === undefined) return { options: changed }
  if (second === null) return { options: withSecond(changed, null) }
  const first = { ...state, device: device ?? state.device }
  const before = secondOf(changed, client.devices.length) ?? firstSecond(first, client.devices)
  const isOther = second.device !== undefined && second.device !== before.device
  const next = { ...before, ...(isOther && { at: null, x: null, select: null }), ...second }
  if (!client.devices[next.device]) throw new Error(`this report has no device ${next.device}`)
  return { options: withSecond(changed, { ...next, apart: next.apart || Boolean(second.x) }) }
}
