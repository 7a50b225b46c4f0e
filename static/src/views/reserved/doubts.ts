// What the reserved view cannot show of a device, and where its file contradicts itself.

import type { Replay } from '../../allocator/replay'
import type { DeviceData } from '../../data/model'
import { formatCount } from '../../layout/format'
import { plural } from '../../ui/format'
import { contradictionOf } from '../shared/figures'

/** Sentences; none where everything is shown. */
export function doubtsOf(data: DeviceData, replay: Replay | null): string[] {
  const { info } = data
  const doubts: string[] = []
  if (!replay)
    doubts.push(
      'This report leaves out addresses to stay under its size limit (--max-size): parts of fragmentation and segments cannot be shown.',
    )
  if (info.events === 0 && info.stats.segments > 0)
    doubts.push('Recorded without history: only the final state is known.')
  const { reserved, allocated } = data
  let isBelowZero = false
  let isBelowAllocated = false
  for (let s = 0; s < data.P; s++) {
    if (reserved[s] < 0) isBelowZero = true
    if (reserved[s] < allocated[s]) isBelowAllocated = true
  }
  if (isBelowZero)
    doubts.push('Trace and final segments contradict each other: the replay falls below zero reserved bytes.')
  else if (isBelowAllocated)
    doubts.push(
      'At some events more is allocated than reserved: segments are missing from the file, or it contradicts itself.',
    )
  const contradiction = contradictionOf(info)
  if (contradiction) doubts.push(contradiction)
  if (replay && replay.outside > 0)
    doubts.push(
      `${formatCount(replay.outside)} of ${plural(data.N, 'allocation')} lay in no segment that the file knows.`,
    )
  return doubts
}
