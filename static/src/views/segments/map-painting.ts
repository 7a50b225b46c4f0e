// Paints the visible part of the map: rows of pixels blown up to lines, then borders, hatches, labels and changes.

import type { Replay } from '../../allocator/replay'
import { type AllocatorState, PENDING, SPLIT, WHOLE } from '../../allocator/state'
import { upperBound } from '../../layout/binary-search'
import { formatBytes } from '../../layout/format'
import type { Matches } from '../../search/matches'
import { type Colouring, rgbOf } from '../colouring'
import { FONT } from '../shared/canvas-view'
import { css, type Inks, mix, type Rgb, textOn, word } from '../shared/inks'
import { LINE, type MapLayout, type Piece } from './map-layout'
import { Memo } from '../memo'

export interface MapScene {
  replay: Replay
  state: AllocatorState
  layout: MapLayout
  colouring: Colouring
  matches: Matches | null
  inks: Inks
}

/** Index of the block that holds an address of a segment, or the first behind it. */
export function blockFrom(state: AllocatorState, segment: number, address: number): number {
  return upperBound(state.blockEnd, address, state.first[segment], state.first[segment + 1])
}

export class MapPainter {
  private readonly raster = new RowRaster()
  private readonly rows = document.createElement('canvas')
  private readonly hatch = new Memo<CanvasPattern | null>()

  /** Lines [first, last] onto a context in CSS pixels whose origin is the plot's corner; `ratio`: device pixels each. */
  paint(ctx: CanvasRenderingContext2D, scene: MapScene, first: number, last: number, ratio: number): void {
    const { layout } = scene
    if (last < first) return
    const width = Math.max(1, Math.round(layout.width * ratio))
    const image = new ImageData(width, last - first + 1)
    const words = new Uint32Array(image.data.buffer)
    for (let line = first; line <= last; line++) {
      for (let i = layout.lineFirst[line]; i < layout.lineFirst[line + 1]; i++) {
        const piece = layout.pieces[i]
        const x = Math.round(piece.x * ratio)
        const wide = Math.max(1, Math.min(width - x, Math.round(piece.width * ratio)))
        this.row(scene, piece, wide)
        this.raster.write(words, (line - first) * width + x, word(scene.inks.split))
      }
    }
    this.rows.width = width
    this.rows.height = last - first + 1
    this.rows.getContext('2d')!.putImageData(image, 0, 0)
    ctx.imageSmoothingEnabled = false
    ctx.font = FONT
    ctx.textBaseline = 'middle'
    for (let line = first; line <= last; line++) {
      const y = layout.lineY[line]
      ctx.drawImage(this.rows, 0, line - first, width, 1, 0, y, width / ratio, LINE)
      for (let i = layout.lineFirst[line]; i < layout.lineFirst[line + 1]; i++)
        this.dress(ctx, scene, layout.pieces[i], y)
    }
  }

  private row(scene: MapScene, piece: Piece, wide: number): void {
    const { state, replay, inks } = scene
    this.raster.begin(wide, piece.from, (piece.to - piece.from) / wide)
    const end = state.first[piece.segment + 1]
    for (
      let block = blockFrom(state, piece.segment, piece.from);
      block < end && state.blockStart[block] < piece.to;
      block++
    ) {
      const id = state.blockId[block]
      const from = state.blockStart[block]
      const to = state.blockEnd[block]
      if (id < 0) {
        this.raster.add(from, to, state.blockKind[block] === WHOLE ? inks.whole : inks.split, false)
        continue
      }
      const used = Math.min(to, from + replay.data.size[id])
      this.raster.add(from, used, colourOf(scene, block), true)
      if (used < to) this.raster.add(used, to, inks.rounding, false)
    }
  }

  /** Edges of blocks that are wide enough, hatches, sizes, and the segment's border. */
  private dress(ctx: CanvasRenderingContext2D, scene: MapScene, piece: Piece, y: number): void {
    const { state, inks } = scene
    const { segment } = piece
    const perPixel = (piece.to - piece.from) / piece.width
    const end = state.first[segment + 1]
    // Where all blocks are thinner than this nothing is decorated, and there may be thousands.
    const minWidth = 3 * perPixel
    for (
      let block = blockFrom(state, segment, piece.from);
      block < end && state.blockStart[block] < piece.to;
      block++
    ) {
      if (state.blockEnd[block] - state.blockStart[block] < minWidth) continue
      const x0 = piece.x + Math.max(0, (state.blockStart[block] - piece.from) / perPixel)
      const x1 = piece.x + Math.min(piece.width, (state.blockEnd[block] - piece.from) / perPixel)
      if (state.blockKind[block] === PENDING) this.drawHatch(ctx, inks, x0, y, x1 - x0)
      if (state.blockStart[block] > piece.from) {
        ctx.fillStyle = css(inks.panel, 0.85)
        ctx.fillRect(Math.round(x0), y, 1, LINE)
      }
      drawSize(ctx, scene, block, x0, x1, y, state.blockStart[block] < piece.from)
    }
    const isWhole = state.blockKind[state.first[segment]] === WHOLE && state.first[segment] + 1 === end
    ctx.strokeStyle = css(isWhole ? mix(inks.panel, inks.soft, 0.55) : inks.soft)
    ctx.setLineDash(isWhole ? [3, 3] : [])
    ctx.lineWidth = 1
    ctx.strokeRect(Math.round(piece.x) + 0.5, Math.round(y) + 0.5, Math.max(1, Math.round(piece.width) - 1), LINE - 1)
    ctx.setLineDash([])
  }

  private drawHatch(ctx: CanvasRenderingContext2D, inks: Inks, x: number, y: number, width: number): void {
    const colour = css(inks.pending)
    ctx.fillStyle = this.hatch.get([colour], () => hatchPattern(ctx, colour)) ?? colour
    ctx.fillRect(x, y, width, LINE)
  }
}

/** The colour of a block in use; what a query does not match fades into the panel. */
export function colourOf({ state, colouring, matches, inks }: MapScene, block: number): Rgb {
  const id = state.blockId[block]
  const own = rgbOf(colouring, colouring.keys[id])
  const shown = state.blockKind[block] === PENDING ? mix(own, inks.pending, 0.3) : own
  return matches && !matches.mask[id] ? mix(shown, inks.panel, 0.78) : shown
}

/** `goesOn`: the block began on a line above; it is one, and its size is that of all of it. */
function drawSize(
  ctx: CanvasRenderingContext2D,
  scene: MapScene,
  block: number,
  x0: number,
  x1: number,
  y: number,
  goesOn: boolean,
): void {
  if (x1 - x0 < 52) return
  const { state, inks } = scene
  const kind = state.blockKind[block]
  const bytes = formatBytes(
    state.blockId[block] < 0
      ? state.blockEnd[block] - state.blockStart[block]
      : scene.replay.data.size[state.blockId[block]],
  )
  const text = (goesOn ? '… ' : '') + (kind === SPLIT || kind === WHOLE ? `${bytes} free` : bytes)
  const width = ctx.measureText(text).width
  if (width + 10 > x1 - x0) return
  ctx.fillStyle = kind === SPLIT || kind === WHOLE ? css(inks.ink) : textOn(colourOf(scene, block))
  ctx.fillText(text, x0 + 5, y + LINE / 2 + 0.5)
}

/** Stripes from the lower left, 6 pixels apart. */
function hatchPattern(ctx: CanvasRenderingContext2D, stroke: string): CanvasPattern | null {
  const tile = document.createElement('canvas')
  tile.width = tile.height = 6
  const pen = tile.getContext('2d')!
  pen.strokeStyle = stroke
  pen.lineWidth = 1.5
  for (const shift of [-6, 0, 6]) {
    pen.beginPath()
    pen.moveTo(shift, 6)
    pen.lineTo(shift + 6, 0)
    pen.stroke()
  }
  return ctx.createPattern(tile, 'repeat')
}

/** Below this share of a pixel, what is allocated there is drawn as if it had this share. */
const MIN_SHARE = 0.4

/** Runs of addresses painted in order; a row is begun, filled and read out. */
class RowRaster {
  private width = 0
  private from = 0
  private perPixel = 1
  /** Sums by pixel of share times colour, and of shares: what is allocated, and all else. */
  private held = new Float32Array(0)
  private rest = new Float32Array(0)

  /** A row of `width` pixels from address `from` on. */
  begin(width: number, from: number, perPixel: number): void {
    this.width = width
    this.from = from
    this.perPixel = perPixel
    if (this.held.length < 4 * width) {
      this.held = new Float32Array(4 * width)
      this.rest = new Float32Array(4 * width)
    } else {
      this.held.fill(0, 0, 4 * width)
      this.rest.fill(0, 0, 4 * width)
    }
  }

  /** Addresses [start, end) in one colour. */
  add(start: number, end: number, [r, g, b]: Rgb, isHeld: boolean): void {
    const sums = isHeld ? this.held : this.rest
    const a = Math.max(0, (start - this.from) / this.perPixel)
    const z = Math.min(this.width, (end - this.from) / this.perPixel)
    for (let pixel = Math.floor(a); pixel < z; pixel++) {
      const share = Math.min(z, pixel + 1) - Math.max(a, pixel)
      if (share <= 0) continue
      const at = 4 * pixel
      sums[at] += share * r
      sums[at + 1] += share * g
      sums[at + 2] += share * b
      sums[at + 3] += share
    }
  }

  /** Writes the row as 32-bit words; a pixel with nothing in it gets `empty`. */
  write(out: Uint32Array, offset: number, empty: number): void {
    const { held, rest } = this
    for (let pixel = 0; pixel < this.width; pixel++) {
      const at = 4 * pixel
      const h = held[at + 3]
      const f = rest[at + 3]
      if (h + f <= 0) {
        out[offset + pixel] = empty
        continue
      }
      const share = h === 0 ? 0 : f === 0 ? 1 : Math.max(h / (h + f), MIN_SHARE)
      const byHeld = h === 0 ? 0 : share / h
      const byRest = f === 0 ? 0 : (1 - share) / f
      const r = held[at] * byHeld + rest[at] * byRest
      const g = held[at + 1] * byHeld + rest[at + 1] * byRest
      const b = held[at + 2] * byHeld + rest[at + 2] * byRest
      out[offset + pixel] = ((255 << 24) | (Math.round(b) << 16) | (Math.round(g) << 8) | Math.round(r)) >>> 0
    }
  }
}
