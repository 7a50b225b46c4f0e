// The two pictures of the reserved view, one above the other over the same stretch of events: the parts of reserved memory,
// and its segments.

import type { Line } from '../shared/describe'
import { EventPlot, type Point } from '../shared/event-plot'
import { type Box, drawByteAxis, drawXAxis } from '../shared/plot-frame'
import { xWindowOf } from '../shared/x-window'
import type { ViewParts } from '../view'
import { boxAt, type ChartInput, type ChartScene, layOutChart, positionAt, segmentRowAt } from './chart-layout'
import { drawMarks, drawTitle, paintParts, paintPiles } from './chart-painting'
import { greatestOf } from '../shared/scene'
import { type Extremes, extremesOf } from './columns'
import { describeMoment } from './reserved-text'
import { SegmentStack } from './segment-stack'
import { Memo } from '../memo'

export class ReservedChart extends EventPlot<ChartScene> {
  /** A click on a segment at a position. */
  onSegment: (row: number, position: number) => void = () => {}
  /** Bytes at the top of the upper and of the lower picture. */
  extent: readonly number[] | null = null
  /** Positions that the columns of the upper picture show, as last painted. */
  columns: Int32Array | null = null
  private readonly piles = new Memo<SegmentStack>()
  private readonly extremes = new Memo<Extremes>()
  /** Counts the curves that were drawn over the picture: another one has it painted again. */
  private curve: { bytes: Float64Array | null; version: number } = { bytes: null, version: 0 }

  constructor(parts: ViewParts) {
    super(parts, { 'aria-roledescription': 'chart', 'aria-label': 'Reserved memory over events' })
  }

  show(input: ChartInput): void {
    const { context, replay, groups, choice, whatIf, use } = input
    const { data, state } = context
    const { clientWidth: width, clientHeight: height } = this.plot
    if (width === 0) return
    if (this.curve.bytes !== whatIf) this.curve = { bytes: whatIf, version: this.curve.version + 1 }
    const extremes = this.extremes.get([data], () => extremesOf(data))
    const most = Math.max(extremes.most, whatIf ? greatestOf(whatIf) : 0)
    const top = choice.fragmentationOnly ? extremes.mostLost : Math.max(most, use ? greatestOf(use.used) : 0)
    this.extent = [top, most]
    const [parts, segments] = this.extent.map((bytes, i) => Math.max(bytes, context.extent?.[i] ?? 0))
    const hasSegments = choice.segments && replay !== null && replay.segments.count > 0
    this.present({
      ...input,
      ...layOutChart(width, height, choice.parts || !hasSegments, hasSegments),
      piles: hasSegments ? this.piles.get([groups], () => new SegmentStack(replay.segments, groups!)) : null,
      window: xWindowOf(data, state),
      partsTop: Math.max(1024, parts * 1.06),
      segmentsTop: Math.max(1024, segments * 1.06),
    })
  }

  /** For tests: the boxes of the pictures, in CSS pixels of the window. */
  boxes(): { parts: Box | null; segments: Box | null; partsTop: number; segmentsTop: number } | null {
    if (!this.shown) return null
    const { left, top } = this.plot.getBoundingClientRect()
    const { partsBox, segmentsBox, partsTop, segmentsTop } = this.shown
    const placed = (box: Box | null): Box | null => box && { ...box, left: left + box.left, top: top + box.top }
    return { parts: placed(partsBox), segments: placed(segmentsBox), partsTop, segmentsTop }
  }

  /** Both pictures have the same left and right edge. */
  protected boxOf({ partsBox, segmentsBox }: ChartScene): Box {
    return (partsBox ?? segmentsBox)!
  }

  protected keyOf({ largest, choice, partsBox, segmentsBox, partsTop, segmentsTop }: ChartScene): readonly unknown[] {
    return [largest !== null, this.curve.version, choice, partsBox, segmentsBox, partsTop, segmentsTop]
  }

  protected paint(ctx: CanvasRenderingContext2D, scene: ChartScene): void {
    const { context, inks, choice, window, partsBox, segmentsBox, partsTop, segmentsTop } = scene
    let byReserved: Int32Array | null = null
    if (partsBox) {
      this.paintPixels(ctx, partsBox, inks, true, (words, width, height) => {
        this.columns = paintParts(words, width, height, scene)
      })
      if (!choice.fragmentationOnly) byReserved = this.columns
      const title = choice.fragmentationOnly
        ? 'Fragmentation: reserved and not allocated'
        : 'What reserved memory is used for'
      drawTitle(ctx, partsBox, inks, title)
      drawByteAxis(ctx, partsBox, partsTop, inks)
    }
    if (segmentsBox && scene.groups) {
      this.paintPixels(ctx, segmentsBox, inks, true, (words, width, height) =>
        paintPiles(words, width, height, scene, byReserved),
      )
      drawTitle(ctx, segmentsBox, inks, 'Segments by pool and stream')
      drawByteAxis(ctx, segmentsBox, segmentsTop, inks)
    }
    drawXAxis(ctx, (segmentsBox ?? partsBox)!, window, context.info, inks)
  }

  protected paintOver(ctx: CanvasRenderingContext2D, scene: ChartScene, pointer: Point | null): void {
    drawMarks(ctx, scene, pointer)
  }

  protected describe(scene: ChartScene, at: Point): { lines: readonly Line[]; swatch: string | null } {
    const box = boxAt(scene, at)
    if (!box) return { lines: [], swatch: null }
    const { context, replay, groups, use } = scene
    const position = positionAt(scene, at.x, box)
    const row = segmentRowAt(scene, at.y, box, position)
    return { lines: describeMoment(context.data, replay, groups, use, position, row), swatch: null }
  }

  protected click(scene: ChartScene, at: Point): void {
    const box = boxAt(scene, at)
    if (!box) return
    const position = positionAt(scene, at.x, box)
    const row = segmentRowAt(scene, at.y, box, position)
    if (row >= 0) this.onSegment(row, position)
    else this.parts.store.set({ at: position - 1 })
  }

  /** Bytes have no window: every zoom is one over events. */
  protected override zoom(x: number, y: number, factorX: number, factorY: number): void {
    super.zoom(x, y, factorX === 1 ? factorY : factorX, 1)
  }
}
