// Draws on the painted map of one moment: sizes of segments beside the lines, the event's changes, the selection and the block
// under the pointer.

import { formatBytes } from '../../layout/format'
import type { ViewContext } from '../view'
import { css } from '../shared/inks'
import { GUTTER, LINE } from './map-layout'
import { isLive } from './map-places'
import type { MapScene } from './paint'

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
export interface Pointed {
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
