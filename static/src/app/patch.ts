// A change of the view, as callers from outside give it, as a change of the state.

import type { ViewPatch } from '../controller'
import type { DataClient } from '../worker/data-client'
import { firstSecond, secondOf, withSecond } from '../ui/second'
import { COLOURS, type ColourBy, type State, type ViewName } from '../ui/state'
import { viewsOf } from '../ui/devices'

/** Throws on a view, device, axis or colouring that the report does not have. */
export function statePatch(client: DataClient, state: State, patch: ViewPatch): Partial<State> {
  const { view, device, axis, x, y, select, oom, stack, at, colour, query } = patch
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
  return {
    ...(view !== undefined && { view: view as ViewName }),
    ...(device !== undefined && { device }),
    ...(axis !== undefined && { axis }),
    ...(x !== undefined && { x }),
    ...(y !== undefined && { y }),
    ...(select !== undefined && { select: select !== null && select < 0 ? null : select }),
    ...(oom !== undefined && { oom }),
    ...(stack !== undefined && { stack }),
    ...(at !== undefined && { at }),
    ...(colour !== undefined && { colour: colour as ColourBy }),
    ...(query !== undefined && { query }),
    ...optionsPatch(client, state, patch),
  }
}

function optionsPatch(client: DataClient, state: State, { device, options, second }: ViewPatch): Partial<State> {
  if (options === undefined && second === undefined) return {}
  const changed = merged(state.options, options ?? {})
  if (second === undefined) return { options: changed }
  if (second === null) return { options: withSecond(changed, null) }
  const first = { ...state, device: device ?? state.device }
  const before = secondOf(changed, client.devices.length) ?? firstSecond(first, client.devices)
  const isOther = second.device !== undefined && second.device !== before.device
  const next = { ...before, ...(isOther && { at: null, x: null, select: null }), ...second }
  if (!client.devices[next.device]) throw new Error(`this report has no device ${next.device}`)
  return { options: withSecond(changed, { ...next, apart: next.apart || Boolean(second.x) }) }
}

function merged(options: State['options'], patch: Record<string, string | null>): State['options'] {
  const out: Record<string, string> = { ...options }
  for (const [name, value] of Object.entries(patch)) {
    if (value === null) delete out[name]
    else out[name] = value
  }
  return out
}
