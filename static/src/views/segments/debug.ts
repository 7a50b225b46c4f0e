// The allocator's state as plain values, for tests.

import type { Replay } from '../../allocator/replay'
import { type AllocatorState, PENDING } from '../../allocator/state'
import type { Groups } from '../shared/groups'

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
