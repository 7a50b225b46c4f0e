// The segment in which an allocation was born, and its neighbours there at that moment. One pass over the allocations.

import type { DeviceData } from '../data/model'
import { type AddressSpace, addressSpaceOf } from './address'
import { type SegmentHistory, segmentHistory } from './segment-history'
import { remembered } from '../data/remembered'

export interface Neighbours {
  /** Address of the segment's first byte, and its bytes then. */
  segment: string
  bytes: number
  /** The nearest live allocations below and above it in that segment; -1 where there is none. */
  below: number
  above: number
}

const cache = new WeakMap<DeviceData, { space: AddressSpace; history: SegmentHistory }>()

/** A device's segments over time, and the numbers of its addresses; made once. */
export function historyOf(data: DeviceData): { space: AddressSpace; history: SegmentHistory } {
  return remembered(cache, data, () => {
    const space = addressSpaceOf(data)
    return { space, history: segmentHistory(data, data.info, space) }
  })
}

/** At the position at which it is born; null where the file has no segment around it. */
export function neighboursOf(data: DeviceData, id: number): Neighbours | null {
  const { space, history } = historyOf(data)
  const { N, addrHi, addrLo, start, end } = data
  const position = start[id]
  const address = space.of(addrHi[id], addrLo[id])
  const row = history.start.findIndex(
    (from, i) => from <= address && address < history.end[i] && history.from[i] <= position && position < history.to[i],
  )
  if (row < 0) return null
  let below = -1
  let above = -1
  let low = history.start[row]
  let high = history.end[row]
  for (let other = 0; other < N; other++) {
    if (start[other] > position || end[other] <= position || other === id) continue
    const there = space.of(addrHi[other], addrLo[other])
    if (there < address && there >= low) {
      low = there
      below = other
    } else if (there > address && there < high) {
      high = there
      above = other
    }
  }
  return { segment: space.text(history.start[row]), bytes: history.end[row] - history.start[row], below, above }
}
