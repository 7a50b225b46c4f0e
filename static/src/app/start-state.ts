// What a report opens on, before the address says otherwise.

import { firstDevice, openingFailure } from '../ui/devices'
import type { DeviceInfo } from '../data/model'
import type { ColourBy, State, ViewName } from '../ui/state'
import { whyNot } from '../views/colouring'
import type { DataClient } from '../worker/data-client'

/** Categories tell a story where most bytes at the peak have one. */
export function startColour(info: DeviceInfo | undefined): ColourBy {
  return info && 2 * info.namedBytes > info.peakBytes && whyNot(info, 'category') === null ? 'category' : 'stack'
}

/** Without a trace the timeline would be one rectangle: what is known then is the map of segments. */
export function startView(info: DeviceInfo | undefined): ViewName {
  return info && info.events === 0 && info.stats.segments > 0 ? 'segments' : 'timeline'
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
