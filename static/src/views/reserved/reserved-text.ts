// What the reserved view says in words.

import { partsAt } from '../../allocator/curves'
import type { Replay } from '../../allocator/replay'
import { stateAt } from '../../allocator/state'
import type { DeviceData } from '../../data/model'
import { formatBytes, formatBytesExact, formatCount } from '../../layout/format'
import { formatOffset, plural } from '../../ui/format'
import type { Line } from '../shared/describe'
import type { Groups } from '../shared/groups'
import { type Figure, shareFigure } from '../shared/figures'
import { type DeviceUse, deviceFigures } from './device-use'

export function momentName(data: DeviceData, position: number): string {
  if (data.n === 0) return 'final state'
  if (position === 0) return 'before the first event'
  return `event ${formatCount(position - 1)}${data.timeUs ? `, ${formatOffset(data.timeUs[position - 1])}` : ''}`
}

export function figuresOf(data: DeviceData, replay: Replay | null, use: DeviceUse | null, position: number): Figure[] {
  const reserved = data.reserved[position]
  const figure = (name: string, bytes: number, title: string): Figure => shareFigure(name, bytes, reserved, title)
  const figures: Figure[] = [
    { name: 'Reserved', value: formatBytes(reserved), title: formatBytesExact(reserved) },
    figure('Allocated', data.allocated[position], 'Requested bytes of all live allocations'),
    figure('Fragmentation', reserved - data.allocated[position], 'Reserved minus allocated'),
  ]
  if (use) figures.splice(1, 0, ...deviceFigures(use, reserved, position))
  if (!replay) return figures
  const parts = partsAt(replay, position)
  return [
    ...figures,
    figure('Rounding', parts.rounding, 'Block sizes less requested bytes'),
    figure('Inactive split', parts.split, 'Free blocks in segments that are in use'),
    figure('Unused segments', parts.whollyFree, 'Segments without a block in use'),
  ]
}

/** The largest contiguous part of free memory. */
export function largestFigure(data: DeviceData, replay: Replay, position: number): Figure {
  const { largestFree } = stateAt(replay, position).totals
  return shareFigure('Largest free range', largestFree, data.reserved[position], 'The largest free range')
}

/** The numbers of one moment, for the tooltip. `row`: the segment under the pointer, -1 for none. */
export function describeMoment(
  data: DeviceData,
  replay: Replay | null,
  groups: Groups | null,
  use: DeviceUse | null,
  position: number,
  row: number,
): Line[] {
  const lines: Line[] = []
  if (replay && groups && row >= 0) {
    const { segments } = replay
    lines.push({
      kind: 'title',
      text: `segment of ${formatBytes(segments.end[row] - segments.start[row])} at ${replay.space.text(segments.start[row])}`,
    })
    lines.push({ kind: 'plain', text: groups.names[groups.of[row]] })
    const from = segments.from[row] === 0 ? 'before the trace' : `event ${formatCount(segments.from[row] - 1)}`
    const to = segments.to[row] >= data.P ? 'still there at the end' : `event ${formatCount(segments.to[row] - 1)}`
    if (data.n > 0)
      lines.push({ kind: 'plain', text: `${from} → ${to}${segments.expandable[row] ? ' (at this size)' : ''}` })
  }
  const [reserved, ...rest] = figuresOf(data, replay, use, position)
  lines.push({ kind: lines.length ? 'plain' : 'title', text: `${reserved.value} reserved` })
  for (const { name, value } of rest) lines.push({ kind: 'plain', text: `${value} ${name.toLowerCase()}` })
  if (replay) {
    const { totals, segments, start, end } = stateAt(replay, position)
    if (totals.largestIn >= 0) {
      const size = end[totals.largestIn] - start[totals.largestIn]
      lines.push({
        kind: 'plain',
        text: `${formatBytes(totals.largestFree)} largest free range, in the ${formatBytes(size)} segment at ${replay.space.text(start[totals.largestIn])}`,
      })
    }
    lines.push({ kind: 'plain', text: plural(segments, 'segment') })
    if (totals.pending > 0)
      lines.push({ kind: 'plain', text: `${formatBytes(totals.pending)} of allocated pending free` })
  }
  lines.push({ kind: 'soft', text: momentName(data, position) })
  return lines
}
