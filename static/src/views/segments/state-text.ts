// The allocator's state in words: the numbers over the map, the tooltip, the live text.

import type { Replay } from '../../allocator/replay'
import { type AllocatorState, PENDING, SPLIT, WHOLE } from '../../allocator/state'
import type { DeviceInfo, Stacks } from '../../data/model'
import { formatBytes, formatBytesExact, formatCount } from '../../layout/format'
import { plural } from '../../ui/format'
import { describeLifetime, framesOf, type Line, nameOfStack } from '../shared/describe'
import { contradictionOf, type Figure, shareFigure } from '../shared/figures'
import type { Groups } from '../shared/groups'
import type { MapGroup } from './map-layout'

/** The figures of the map; `reserved` less `allocated` is rounding, inactive split and wholly free. */
export function figuresOf(state: AllocatorState, replay: Replay): Figure[] {
  const { totals } = state
  const bytes = (name: string, value: number, title: string): Figure => shareFigure(name, value, totals.reserved, title)
  const figures: Figure[] = [
    {
      name: 'Reserved',
      value: formatBytes(totals.reserved),
      title: `All segments together: ${formatBytesExact(totals.reserved)}`,
    },
    bytes('Allocated', totals.allocated, 'Requested bytes of all live allocations'),
    bytes('Rounding', totals.rounding, 'Block sizes less requested bytes'),
    bytes('Inactive split', totals.split, 'Free blocks in segments that are in use: empty_cache() cannot release them'),
    bytes('Unused segments', totals.whollyFree, 'Segments without a block in use: empty_cache() releases them'),
  ]
  if (totals.pending > 0)
    figures.splice(2, 0, bytes('Pending free', totals.pending, 'Part of allocated whose free waits for another stream'))
  if (totals.largestIn >= 0) {
    const size = state.end[totals.largestIn] - state.start[totals.largestIn]
    const where = `in the ${formatBytes(size)} segment at ${replay.space.text(state.start[totals.largestIn])}`
    figures.push({
      name: 'Largest free range',
      value: `${formatBytes(totals.largestFree)} ${where}`,
      title: `${formatBytesExact(totals.largestFree)} ${where}`,
    })
  } else {
    figures.push({ name: 'Largest free range', value: 'none', title: 'No byte of any segment is free' })
  }
  return figures
}

/** What the picture cannot show and where the file contradicts itself; empty where nothing is. */
export function doubtsOf(state: AllocatorState, replay: Replay, info: DeviceInfo): string[] {
  const { totals } = state
  const doubts: string[] = []
  if (totals.outside > 0) {
    doubts.push(
      `${plural(totals.outside, 'live allocation')} (${formatBytes(totals.outsideBytes)}) ${totals.outside === 1 ? 'lies' : 'lie'} in no segment that the file knows; blocks there are assumed.`,
    )
  }
  let shown = 0
  for (let i = 0; i < state.segments; i++) if (state.row[i] >= 0) shown += state.end[i] - state.start[i]
  if (shown !== totals.reserved)
    doubts.push(
      `The segments shown add up to ${formatBytes(shown)}, the replayed total is ${formatBytes(totals.reserved)}: trace and final segments contradict each other.`,
    )
  const contradiction = contradictionOf(info)
  if (contradiction) doubts.push(contradiction)
  if (totals.overlapping > 0)
    doubts.push(
      `${plural(totals.overlapping, 'block')} of this moment ${totals.overlapping === 1 ? 'overlaps another' : 'overlap others'}: a free must have gone unrecorded.`,
    )
  if (totals.split < 0 || totals.overlapping > 0) doubts.push('The parts of reserved do not add up.')
  let assumed = 0
  for (let block = 0; block < state.blocks; block++)
    if (state.blockId[block] >= 0 && replay.assumed[state.blockId[block]]) assumed++
  if (assumed > totals.outside)
    doubts.push(
      `Rounding beyond 512 bytes is not recorded for ${plural(assumed - totals.outside, 'block')} from before the trace.`,
    )
  if (info.left_out.includes('requested'))
    doubts.push('This report leaves out when frees were requested: pending frees show as allocated.')
  return doubts
}

/** The effect of the event of this moment. */
export function changeOf(state: AllocatorState, replay: Replay): string {
  const { size } = replay.data
  const parts: string[] = []
  if (state.born >= 0)
    parts.push(`allocates ${formatBytes(size[state.born])} at ${replay.space.text(replay.address[state.born])}`)
  if (state.ended >= 0)
    parts.push(`frees ${formatBytes(size[state.ended])} at ${replay.space.text(replay.address[state.ended])}`)
  else if (state.requested >= 0)
    parts.push(
      `requests the free of ${formatBytes(size[state.requested])} at ${replay.space.text(replay.address[state.requested])}`,
    )
  return parts.join(', ')
}

export function groupTotals(group: MapGroup): string {
  const used = group.bytes - group.free - group.wholly
  return [
    `${plural(group.segments, 'segment')}, ${formatBytes(group.bytes)}`,
    `${formatBytes(used)} in use`,
    `${formatBytes(group.free)} split free`,
    `${formatBytes(group.wholly)} unused`,
    `a line is ${formatBytes(group.lineBytes)}`,
  ].join(' · ')
}

export function describeBlock(
  state: AllocatorState,
  replay: Replay,
  stacks: Stacks,
  groups: Groups,
  segment: number,
  block: number,
): Line[] {
  const id = state.blockId[block]
  const length = state.blockEnd[block] - state.blockStart[block]
  const place = replay.space.text(state.blockStart[block])
  const lines: Line[] = []
  if (id < 0) {
    lines.push({ kind: 'title', text: `${formatBytes(length)} free  ·  ${place}` })
    lines.push({
      kind: 'plain',
      text:
        state.blockKind[block] === WHOLE
          ? 'an unused segment: empty_cache() releases it'
          : 'inactive split: free between blocks in use',
    })
  } else {
    const { data } = replay
    lines.push({ kind: 'title', text: `${formatBytes(data.size[id])}  ·  ${place}` })
    lines.push(...framesOf(stacks, data.stack[id]))
    if (length > data.size[id])
      lines.push({
        kind: 'plain',
        text: `block of ${formatBytes(length)}: ${formatBytes(length - data.size[id])} lost to rounding${replay.assumed[id] ? ' (assumed)' : ''}`,
      })
    if (state.blockKind[block] === PENDING)
      lines.push({ kind: 'plain', text: `pending free since event ${formatCount(data.freeRequestedEvent[id])}` })
    lines.push({ kind: 'plain', text: describeLifetime(data, id) })
  }
  lines.push(...describeSegment(state, replay, groups, segment))
  return lines
}

function describeSegment(state: AllocatorState, replay: Replay, groups: Groups, segment: number): Line[] {
  const row = state.row[segment]
  if (row < 0) return [{ kind: 'soft', text: 'in no segment that the file knows' }]
  const size = state.end[segment] - state.start[segment]
  const { segments } = replay
  const blocks = state.first[segment + 1] - state.first[segment]
  return [
    {
      kind: 'soft',
      text: `${segments.expandable[row] ? 'expandable segment, mapped range' : 'segment'} of ${formatBytes(size)} at ${replay.space.text(state.start[segment])}, ${formatBytes(state.free[segment])} free, ${plural(blocks, 'range')} · ${groups.names[groups.of[row]]}`,
    },
  ]
}

/** One line for the live text. */
export function headlineOf(state: AllocatorState, replay: Replay, stacks: Stacks, block: number): string {
  const id = state.blockId[block]
  const place = replay.space.text(state.blockStart[block])
  const length = formatBytes(state.blockEnd[block] - state.blockStart[block])
  if (id < 0) return `${length} ${state.blockKind[block] === SPLIT ? 'free' : 'free, a whole segment'} at ${place}`
  return `${formatBytes(replay.data.size[id])} in a block of ${length} at ${place}, ${nameOfStack(stacks, replay.data.stack[id])}`
}

export function debugState(state: AllocatorState, replay: Replay, groups: Groups): Record<string, unknown> {
  const range = (from: number, to: number): number[] => Array.from({ length: to - from }, (_, i) => from + i)
  return {
    position: state.position,
    totals: { ...state.totals },
    changed: { born: state.born, ended: state.ended, requested: state.requested },
    outside: replay.outside,
    segments: range(0, state.segments).map((i) => ({
      known: state.row[i] >= 0,
      address: replay.space.text(state.start[i]),
      size: state.end[i] - state.start[i],
      free: state.free[i],
      group: groups.names[state.row[i] < 0 ? groups.unknown : groups.of[state.row[i]]],
      blocks: range(state.first[i], state.first[i + 1]).map((block) => ({
        address: replay.space.text(state.blockStart[block]),
        size: state.blockEnd[block] - state.blockStart[block],
        id: state.blockId[block],
        pending: state.blockKind[block] === PENDING,
      })),
    })),
  }
}
