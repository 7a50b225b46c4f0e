// Draws on the painted map of one moment: sizes of segments beside the lines, the event's changes, the selection and the block
// under the pointer.

import type { AllocatorState } from '../../allocator/state'
import { firstWhere } from '../../layout/binary-search'
import { formatBytes } from '../../layout/format'
import { css } from '../shared/inks'
import type { ViewContext } from '../view'
import { GUTTER, LINE, pieceAt } from './map-layout'
import { blockFrom, type MapScene } from './map-painting'

/** Beside each line the size of the segment that begins there, or how many do. */
export function drawGutter(ctx: CanvasRenderingContext2D, scene: MapScene, first: number, last: number): void {
  const { layout, state, inks } = scene
  ctx.fillStyle = css(inks.soft)
  ctx.textAlign = 'right'
  for (let line = first; line <= last; line++) {
    const begun: number[] = []
    for (let i = layout.lineFirst[line]; i < layout.lineFirst[line + 1]; i++) {
      const { segment, from } = layout.pieces[i]
      if (from === state.start[segment]) begun.push(state.end[segment] - state.start[segment])
    }
    if (begun.length === 0) continue
    const isSame = begun.every((size) => size === begun[0])
    const times = begun.length === 1 ? '' : `${begun.length} × `
    const count = `${begun.length} segments`
    const sizes = isSame ? `${times}${formatBytes(begun[0])}` : count
    // What does not fit would lose its beginning.
    const text = ctx.measureText(sizes).width > GUTTER - 12 ? count : sizes
    ctx.fillText(text, -8, layout.lineY[line] + LINE / 2)
  }
  ctx.textAlign = 'left'
}

/** Blocks outlined for the reader; -1: none. */
interface Pointed {
  cursor: number
  hover: number
}

/** On the lines [first, last]. */
export function drawMarks(
  ctx: CanvasRenderingContext2D,
  scene: MapScene & { context: ViewContext },
  { cursor, hover }: Pointed,
  first: number,
  last: number,
): void {
  const { layout, state, replay, inks, context } = scene
  const { select } = context.state
  const outline = (from: number, to: number, colour: string, width: number, dash: number[]): void => {
    ctx.strokeStyle = colour
    ctx.lineWidth = width
    ctx.setLineDash(dash)
    for (let line = first; line <= last; line++) {
      for (let i = layout.lineFirst[line]; i < layout.lineFirst[line + 1]; i++) {
        const piece = layout.pieces[i]
        if (piece.to <= from || piece.from >= to) continue
        const perPixel = (piece.to - piece.from) / piece.width
        const x0 = piece.x + Math.max(0, (from - piece.from) / perPixel)
        const x1 = Math.max(x0 + 3, piece.x + Math.min(piece.width, (to - piece.from) / perPixel))
        ctx.strokeRect(x0, layout.lineY[line] + 0.5 - width / 2, x1 - x0, LINE - 1 + width)
      }
    }
    ctx.setLineDash([])
  }
  const ofId = (id: number, colour: string, width: number, dash: number[]): void =>
    outline(replay.address[id], replay.address[id] + replay.block[id], colour, width, dash)
  const ofBlock = (block: number, colour: string, width: number, dash: number[]): void =>
    outline(state.blockStart[block], state.blockEnd[block], colour, width, dash)
  if (state.ended >= 0) ofId(state.ended, css(inks.oom), 2, [4, 3])
  if (state.requested >= 0) ofId(state.requested, css(inks.peak), 2, [2, 2])
  if (state.born >= 0) ofId(state.born, css(inks.oom), 2.5, [])
  if (select !== null && isLive(scene, select)) ofId(select, css(inks.accent), 2.5, [])
  if (cursor >= 0) ofBlock(cursor, css(inks.accent), 1.5, [5, 2])
  if (hover >= 0) ofBlock(hover, css(inks.ink), 1, [])
}

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
