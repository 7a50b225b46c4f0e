// What a report opens on, before the address says otherwise.

import { firstDevice, openingFailure } from '../ui/devices'
import type { State } from '../ui/state'
import type { DataClient } from '../worker/data-client'

/** The failure that the headline is about, a comparison's first pair, or the first device with a timeline. */
export function startState(client: DataClient): State {
  const { diff, job } = client.manifest
  const failure = diff ? null : openingFailure(client)
  return {
    device: diff?.devices[0]?.after ?? failure?.device ?? firstDevice(client),
    view: job ? 'job' : diff ? 'diff' : 'timeline',
    axis: 'event',
    x: null,
    y: null,
    select: null,
    oom: null,
    stack: null,
    at: failure?.event ?? null,
    query: '',
    colour: 'stack',
    options: {},
    theme: 'system',
    noise: false,
  }
}
