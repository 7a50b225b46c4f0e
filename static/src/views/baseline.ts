// The snapshot that another is compared with: its columns, and which of the stacks after is the same code as each before.

import { positionOf } from '../data/held-memory'
import type { DeviceData, DiffDevice } from '../data/model'
import type { DataClient } from '../worker/data-client'
import { remembered } from '../data/remembered'

export interface Baseline {
  pair: DiffDevice
  /** The compared one of pair.moments. */
  moment: DiffDevice['moments'][number]
  before: DeviceData
  /** Positions of the moment on either side. */
  beforePosition: number
  afterPosition: number
  /** Per stack of the report: the stack that it is counted under. One after stands for itself and for the same code before. */
  home: Int32Array
}

/** O(stacks + allocations). identity: see DataClient. */
export function homesOf(identity: Uint32Array, before: ArrayLike<number>, after: ArrayLike<number>): Int32Array {
  const home = Int32Array.from(identity, (_, stack) => stack)
  const stackOf = new Map<number, number>()
  for (let id = 0; id < after.length; id++) stackOf.set(identity[after[id]], after[id])
  const seen = new Uint8Array(identity.length)
  for (let id = 0; id < before.length; id++) {
    const stack = before[id]
    if (seen[stack]) continue
    seen[stack] = 1
    home[stack] = stackOf.get(identity[stack]) ?? stack
  }
  return home
}

const cache = new WeakMap<Int32Array, Map<DiffDevice['moments'][number], Baseline>>()

/** name: of the moment; an unknown one stands for the first, the peaks. The same object for the same moment. */
export function makeBaseline(
  client: DataClient,
  pair: DiffDevice,
  before: DeviceData,
  home: Int32Array,
  name: string | undefined,
): Baseline {
  const moment = pair.moments.find((one) => one.name.replace(' ', '-') === name) ?? pair.moments[0]
  const cached = remembered(cache, home, () => new Map())
  return remembered(cached, moment, () => ({
    pair,
    moment,
    before,
    home,
    beforePosition: positionOf(client.devices[pair.before], moment.before),
    afterPosition: positionOf(client.devices[pair.after], moment.after),
  }))
}
