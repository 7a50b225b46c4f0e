// Where steps and annotated regions begin, as marks between the rows of the events.

import type { DeviceData, DeviceInfo } from '../../data/model'
import { upperBound } from '../../layout/binary-search'
import { tracksOf } from '../../steps/spans'

export interface Boundaries {
  /** Ascending. */
  event: Int32Array
  names: string[]
}

export function boundariesOf(info: DeviceInfo, data: DeviceData): Boundaries {
  const marks: { event: number; name: string }[] = []
  for (const { kind, names, name, first } of tracksOf(info, data)) {
    if (kind !== 'step' && kind !== 'annotation') continue
    for (let i = 0; i < first.length; i++) marks.push({ event: first[i], name: names[name[i]] })
  }
  marks.sort((a, b) => a.event - b.event)
  return { event: Int32Array.from(marks, ({ event }) => event), names: marks.map(({ name }) => name) }
}

/** Names of what begins after event `before` and not after `event`. */
export function namesBetween({ event: events, names }: Boundaries, before: number, event: number): string[] {
  return names.slice(upperBound(events, before), upperBound(events, event))
}
