// The layout of the two pictures of the reserved view and hit testing on them, in CSS pixels of the plot. No DOM.

import type { Replay } from '../../allocator/replay'
import type { EventScene, Point } from '../shared/event-plot'
import type { Groups } from '../shared/groups'
import type { Rgb } from '../shared/inks'
import { type Box, pixelToX } from '../shared/plot-frame'
import { positionsIn } from '../shared/x-window'
import { columnsOf } from './columns'
import type { DeviceUse } from './device-use'
import type { SegmentStack } from './segment-stack'

export interface ChartChoice {
  parts: boolean
  segments: boolean
  /** The parts without what is allocated under them. */
  fragmentationOnly: boolean
}

export interface ChartMark {
  position: number
  label: string
  colour: Rgb
}

/** What the view gives the chart to show. */
export interface ChartInput extends Omit<EventScene, 'window'> {
  /** Null where addresses were left out: only totals are known. */
  replay: Replay | null
  groups: Groups | null
  /** Bytes of the largest free range by position; null where it is not shown or has not arrived. */
  largest: Float64Array | null
  /** Reserved bytes by position of a replay under other settings; null: none is drawn. */
  whatIf: Float64Array | null
  /** What all processes use of the device; null where it is not known. */
  use: DeviceUse | null
  choice: ChartChoice
  marks: ChartMark[]
}

/** Places of the pictures; the box of one that is not shown is null. */
export interface ChartBoxes {
  partsBox: Box | null
  segmentsBox: Box | null
}

export interface ChartScene extends EventScene, ChartInput, ChartBoxes {
  piles: SegmentStack | null
  /** Bytes at the upper edges. */
  partsTop: number
  segmentsTop: number
}

const TITLE = 24
const BOTTOM = 28
const BETWEEN = 12
/** Share of the height that the upper of two pictures has. */
const UPPER = 0.52

export function layOutChart(width: number, height: number, hasParts: boolean, hasSegments: boolean): ChartBoxes {
  const left = width < 560 ? 56 : 74
  const plotWidth = Math.max(1, width - left - (width < 560 ? 8 : 16))
  const both = hasParts && hasSegments
  const room = height - BOTTOM - TITLE - (both ? TITLE + BETWEEN : 0)
  const upper = both ? Math.round(room * UPPER) : room
  const box = (top: number, tall: number): Box => ({ left, top, width: plotWidth, height: Math.max(1, tall) })
  return {
    partsBox: hasParts ? box(TITLE, upper) : null,
    segmentsBox: hasSegments ? box(both ? TITLE + upper + BETWEEN + TITLE : TITLE, both ? room - upper : room) : null,
  }
}

/** The picture at a place; null between and around them. */
export function boxAt({ partsBox, segmentsBox }: ChartBoxes, { x, y }: Point): Box | null {
  const isInside = (box: Box): boolean =>
    x >= box.left && x < box.left + box.width && y >= box.top && y < box.top + box.height
  return [partsBox, segmentsBox].find((box) => box !== null && isInside(box)) ?? null
}

/** The position of a pixel: the one that its column shows in the picture it is in. */
export function positionAt(scene: ChartScene, x: number, box: Box): number {
  const { window, choice, partsBox } = scene
  const { data } = scene.context
  const at = pixelToX(window, box, Math.min(box.left + box.width - 0.01, Math.max(box.left, x)))
  const end = at + (window.x1 - window.x0) / box.width
  const [from, to] = positionsIn(data, window.scale, at, end)
  if (to - from <= 1) return from
  const by = box === partsBox && choice.fragmentationOnly ? 'fragmentation' : 'reserved'
  return columnsOf(data, { ...window, x0: at, x1: end }, 1, by)[0]
}

/** Row of the segment at a pixel of the lower picture; -1 where there is none. */
export function segmentRowAt(scene: ChartScene, y: number, box: Box, position: number): number {
  const { piles, segmentsBox, segmentsTop } = scene
  if (!piles || box !== segmentsBox) return -1
  const bytes = ((box.top + box.height - y) / box.height) * segmentsTop
  piles.rewind()
  const { rows, tops } = piles.at(position)
  for (let i = 0; i < rows.length; i++) if (bytes < tops[i]) return rows[i]
  return -1
}
