// Maps between the allocator's state and places in the map of one moment, in CSS pixels of the plot. No DOM.

import type { AllocatorState } from '../../allocator/state'
import { firstWhere } from '../../layout/binary-search'
import { pieceAt } from './map-layout'
import { blockFrom, type MapScene } from './paint'

export interface Hit {
  piece: number
  block: number
}

/** Piece and block at a place, from the left edge of the lines and the top of the first; null: none. */
export function hitAt({ layout, state }: MapScene, x: number, y: number): Hit | null {
  const index = pieceAt(layout, x, y)
  if (index < 0) return null
  const piece = layout.pieces[index]
  const perPixel = (piece.to - piece.from) / piece.width
  return { piece: index, block: widest(state, piece.segment, piece.from + (x - piece.x) * perPixel, perPixel) }
}

/** The first part of an allocation on the map; null where it is not shown. */
export function placeOf(scene: MapScene, id: number): { x: number; y: number; width: number } | null {
  if (!isLive(scene, id)) return null
  const { layout, replay } = scene
  const address = replay.address[id]
  const piece = layout.pieces.find(({ from, to }) => from <= address && address < to)
  if (!piece) return null
  const perPixel = (piece.to - piece.from) / piece.width
  const x = (address - piece.from) / perPixel
  return {
    x: piece.x + x,
    y: layout.lineY[piece.line],
    width: Math.min(piece.width - x, replay.block[id] / perPixel),
  }
}

/** Upper edge of the line that a block begins on; null where its segment is not shown. */
export function lineTopOf({ layout, state }: MapScene, block: number): number | null {
  const { pieces, pieceOf, lineY } = layout
  const segment = segmentOf(state, block)
  let at = pieceOf[segment]
  if (at < 0) return null
  while (pieces[at + 1]?.segment === segment && pieces[at].to <= state.blockStart[block]) at++
  return lineY[pieces[at].line]
}

export function isLive({ replay, state }: MapScene, id: number): boolean {
  const { start, end, N } = replay.data
  return id < N && start[id] <= state.position && end[id] > state.position
}

/** The block that contains an address, or the last of its segment; -1 where no segment contains it. */
export function blockAt(state: AllocatorState, address: number): number {
  const segment = segmentAt(state, address)
  return segment < 0 ? -1 : Math.min(state.first[segment + 1] - 1, blockFrom(state, segment, address))
}

export function segmentOf({ first, segments }: AllocatorState, block: number): number {
  return firstWhere(0, segments - 1, (segment) => first[segment + 1] > block)
}

/** Of the blocks around an address that share its pixel, the widest. */
function widest(state: AllocatorState, segment: number, address: number, perPixel: number): number {
  const last = state.first[segment + 1] - 1
  let best = Math.min(last, blockFrom(state, segment, address))
  const size = (block: number): number => state.blockEnd[block] - state.blockStart[block]
  if (size(best) >= perPixel) return best
  const pixelEnd = address + perPixel / 2
  for (
    let block = Math.min(last, blockFrom(state, segment, address - perPixel / 2));
    block <= last && state.blockStart[block] < pixelEnd;
    block++
  ) {
    // An allocated block takes precedence over the gap beside it.
    const better = Number(state.blockId[block] >= 0) - Number(state.blockId[best] >= 0) || size(block) - size(best)
    if (better > 0) best = block
  }
  return best
}

/** The segment that contains an address; -1 where none does. */
export function segmentAt({ start, end, segments }: AllocatorState, address: number): number {
  for (let segment = 0; segment < segments; segment++)
    if (start[segment] <= address && address < end[segment]) return segment
  return -1
}
