// The layout of segments in the map: group by group, side by side on lines, the large ones wrapped over many.

import { upperBound } from '../../layout/binary-search'
import type { AllocatorState } from '../../allocator/state'
import type { Groups } from '../shared/groups'

export const LINE = 18
export const LINE_STEP = 23
export const HEADER = 30
/** Fewer segments than this are cut into several lines where there is room. */
const FEW = 4
/** Width left of the lines, for the sizes of their segments, in CSS pixels. */
export const GUTTER = 96
const GAP = 6
const MIN_WIDTH = 3
/** Beyond this many lines an element would exceed the browsers' largest height. */
const MOST_LINES = 40_000

export type Sort = 'address' | 'size' | 'free'

/** A part of a segment on one line. */
export interface Piece {
  segment: number
  line: number
  /** CSS pixels from the left of the plot. */
  x: number
  width: number
  /** Addresses [from, to). */
  from: number
  to: number
}

export interface MapGroup {
  group: number
  /** CSS pixels from the top. */
  y: number
  segments: number
  bytes: number
  free: number
  wholly: number
  /** Bytes of one full line. */
  lineBytes: number
}

export interface MapLayout {
  /** Bytes per line of small and of large groups, as coarse as it takes to show everything here. */
  scale: readonly number[]
  width: number
  height: number
  groups: MapGroup[]
  /** In reading order. */
  pieces: Piece[]
  /** Top of each line, and its first piece (one more entry than lines). */
  lineY: Float64Array
  lineFirst: Int32Array
  /** First piece of each segment; -1 for what is not shown. */
  pieceOf: Int32Array
}

export interface MapWish {
  /** Of the plot, in CSS pixels. */
  width: number
  height: number
  sort: Sort
  /** Doublings of the scale that would show everything. */
  zoom: number
  /** The one segment to show; -1: all. */
  focus: number
  /** Bytes per line, of small and of large groups, at least. */
  coarsest: readonly number[] | null
}

export function layOutMap(state: AllocatorState, groups: Groups, wish: MapWish): MapLayout {
  const shown = byGroup(state, groups, wish)
  const width = Math.max(40, wish.width)
  const own = scaleOf(state, groups, shown, wish)
  const scale = own.map((bytes, i) => Math.max(bytes, wish.coarsest?.[i] ?? 0))
  const out: MapLayout = {
    scale: own,
    width,
    height: 0,
    groups: [],
    pieces: [],
    lineY: new Float64Array(0),
    lineFirst: new Int32Array(0),
    pieceOf: new Int32Array(state.segments).fill(-1),
  }
  const lineY: number[] = []
  const lineFirst: number[] = []
  let y = 0
  for (const { group, segments } of shown) {
    const lineBytes = scale[Number(groups.large[group])]
    const entry: MapGroup = { group, y, segments: segments.length, bytes: 0, free: 0, wholly: 0, lineBytes }
    y += HEADER
    // A line holds as many whole segments as its bytes say: the gaps between them are taken off first.
    const perPixel = lineBytes / (width - gapsOf(state, segments, lineBytes, width))
    let x = Infinity
    const newLine = (): void => {
      lineY.push(y)
      lineFirst.push(out.pieces.length)
      y += LINE_STEP
      x = 0
    }
    for (const segment of segments) {
      const size = state.end[segment] - state.start[segment]
      const isWhole = state.free[segment] >= size
      entry.bytes += size
      entry.free += isWhole ? 0 : state.free[segment]
      entry.wholly += isWhole ? size : 0
      const needed = Math.max(MIN_WIDTH, size / perPixel)
      if (x > 0 && x + needed > width + 0.5) newLine()
      out.pieceOf[segment] = out.pieces.length
      let from = state.start[segment]
      do {
        if (x >= width) newLine()
        const to = Math.min(state.end[segment], from + (width - x) * perPixel)
        // A remainder from rounding gets no line of its own.
        const last = state.end[segment] - to < perPixel / 2 ? state.end[segment] : to
        const length = Math.min(width - x, Math.max(MIN_WIDTH, (last - from) / perPixel))
        out.pieces.push({ segment, line: lineY.length - 1, x, width: length, from, to: last })
        x += length
        from = last
      } while (from < state.end[segment])
      x += GAP
    }
    y += 8
    out.groups.push(entry)
  }
  lineFirst.push(out.pieces.length)
  return { ...out, height: y, lineY: Float64Array.from(lineY), lineFirst: Int32Array.from(lineFirst) }
}

/** Index of the piece at a place of the plot (CSS pixels); -1 where there is none. */
export function pieceAt(layout: MapLayout, x: number, y: number): number {
  const line = lineAt(layout, y)
  if (line < 0 || y >= layout.lineY[line] + LINE) return -1
  for (let i = layout.lineFirst[line]; i < layout.lineFirst[line + 1]; i++) {
    const { x: left, width } = layout.pieces[i]
    if (x >= left && x < left + width) return i
  }
  return -1
}

/** The last line that begins at or above y; -1 above all. */
export function lineAt({ lineY }: MapLayout, y: number): number {
  return upperBound(lineY, y) - 1
}

interface Shown {
  group: number
  segments: number[]
}

function byGroup(state: AllocatorState, groups: Groups, { sort, focus }: MapWish): Shown[] {
  const lists: number[][] = Array.from({ length: groups.count + 1 }, () => [])
  for (let segment = 0; segment < state.segments; segment++) {
    if (focus >= 0 && segment !== focus) continue
    lists[state.row[segment] < 0 ? groups.unknown : groups.of[state.row[segment]]].push(segment)
  }
  const size = (segment: number): number => state.end[segment] - state.start[segment]
  for (const list of lists) {
    if (sort === 'size') list.sort((a, b) => size(b) - size(a) || a - b)
    if (sort === 'free') list.sort((a, b) => state.free[b] - state.free[a] || a - b)
  }
  return lists.map((segments, group) => ({ group, segments })).filter(({ segments }) => segments.length > 0)
}

/** Pixels that the gaps of a line take where its segments are as large as the middle one; never more than a third of it. */
function gapsOf(state: AllocatorState, segments: number[], lineBytes: number, width: number): number {
  const sizes = segments.map((segment) => state.end[segment] - state.start[segment]).sort((a, b) => a - b)
  const middle = sizes[sizes.length >> 1]
  return Math.min(width / 3, GAP * Math.max(0, Math.floor(lineBytes / middle) - 1))
}

/**
 * Bytes per line of small and of large groups, as coarse as it takes to show everything at once: the size that most memory is in
 * times a power of two, so that lines end where those segments do. Small blocks get a scale of their own: next to segments a
 * thousand times as large they would be invisible.
 */
function scaleOf(state: AllocatorState, groups: Groups, shown: Shown[], { height, zoom }: MapWish): [number, number] {
  const bytes = [0, 0]
  const counts = [0, 0]
  const bySize = [new Map<number, number>(), new Map<number, number>()]
  for (const { group, segments } of shown) {
    const kind = Number(groups.large[group])
    for (const segment of segments) {
      const size = state.end[segment] - state.start[segment]
      bytes[kind] += size
      counts[kind]++
      bySize[kind].set(size, (bySize[kind].get(size) ?? 0) + size)
    }
  }
  const lines = Math.max(4, (height - shown.length * (HEADER + 8)) / LINE_STEP)
  const budget = bytes[0] && bytes[1] ? [Math.max(1, lines * 0.35), Math.max(2, lines * 0.65)] : [lines, lines]
  return [0, 1].map((kind) => {
    const common = [...bySize[kind]].reduce((most, one) => (one[1] > most[1] ? one : most), [1, 0])[0]
    const power = Math.ceil(Math.log2((bytes[kind] / Math.max(1, budget[kind]) + 1) / common))
    // Lines of half a segment make one segment larger, but many harder to compare.
    const needed = common * 2 ** (counts[kind] < FEW ? power : Math.max(0, power))
    return Math.max(bytes[kind] / MOST_LINES, 64, needed / 2 ** zoom)
  }) as [number, number]
}
