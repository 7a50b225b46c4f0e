// Segments and blocks over time: events to the right, addresses upwards, every allocation a rectangle.

import type { Replay } from '../../allocator/replay'
import { formatBytes, formatCount } from '../../layout/format'
import type { Range } from '../../ui/state'
import { cssOf } from '../colouring'
import { describeLifetime, framesOf, type Line } from '../shared/describe'
import { EventPlot, type Point } from '../shared/event-plot'
import type { Groups } from '../shared/groups'
import type { Inks } from '../shared/inks'
import { type Box, drawXAxis } from '../shared/plot-frame'
import { xWindowOf } from '../shared/x-window'
import type { ViewContext, ViewParts } from '../view'
import {
  type Addresses,
  addressAtPixel,
  addressesOf,
  boxIn,
  GUTTER,
  idAt,
  isInside,
  pixelToY,
  positionsAt,
  rectOf,
  segmentRowAt,
  type TimeScene,
  Y_OPTION,
  yOptionOf,
  yWindowOf,
} from './time-layout'
import { drawAddresses, drawMarks, paintBlocks } from './time-painting'
import { Memo } from '../memo'

export class TimeMap extends EventPlot<TimeScene> {
  /** Rectangles in sight when last painted; for tests and measurements. */
  seen = 0
  protected override readonly hasYWindow = true
  private readonly addresses = new Memo<Addresses>()

  constructor(parts: ViewParts) {
    super(parts, { 'aria-roledescription': 'memory map over time', 'aria-label': 'Blocks by address over events' })
  }

  show(context: ViewContext, replay: Replay, groups: Groups, inks: Inks): void {
    const { clientWidth: width, clientHeight: height } = this.plot
    if (width === 0) return
    const addresses = this.addresses.get([replay], () => addressesOf(replay))
    const { data, state } = context
    this.present({
      ...addresses,
      context,
      groups,
      inks,
      window: xWindowOf(data, state),
      y: yWindowOf(state, addresses.axis),
      box: boxIn(width, height),
    })
  }

  /** CSS pixels of the window for the middle of an allocation's rectangle, as far as it is in sight. */
  placeOf(id: number): { x: number; y: number } | null {
    const { shown } = this
    if (!shown) return null
    const { x0, x1, y0, y1 } = rectOf(shown, id)
    const bounds = this.plot.getBoundingClientRect()
    const { left, width } = shown.box
    const x = (Math.max(left, x0) + Math.min(left + width, x1)) / 2
    return { x: bounds.left + x, y: bounds.top + (y0 + y1) / 2 }
  }

  protected boxOf({ box }: TimeScene): Box {
    return box
  }

  protected keyOf({ context: { colouring, matches }, y, box }: TimeScene): readonly unknown[] {
    return [colouring.by, colouring.version, matches?.query, y, box]
  }

  protected paint(ctx: CanvasRenderingContext2D, scene: TimeScene): void {
    const { context, inks, window, box } = scene
    this.paintPixels(ctx, box, inks, false, (words, width, height) => {
      this.seen = paintBlocks(words, width, height, scene)
    })
    drawXAxis(ctx, box, window, context.info, inks)
    if (box.left === GUTTER) drawAddresses(ctx, scene)
  }

  protected paintOver(ctx: CanvasRenderingContext2D, scene: TimeScene, pointer: Point | null): void {
    drawMarks(ctx, scene, pointer)
  }

  protected describe(scene: TimeScene, at: Point): { lines: readonly Line[]; swatch: string | null } {
    if (!isInside(scene.box, at)) return { lines: [], swatch: null }
    const { context, replay, groups } = scene
    const { data, stacks, colouring } = context
    const [position] = positionsAt(scene, at.x)
    const address = addressAtPixel(scene, at.y)
    const id = idAt(scene, at)
    const lines: Line[] = []
    if (id >= 0) {
      lines.push({ kind: 'title', text: `${formatBytes(data.size[id])}  ·  ${replay.space.text(replay.address[id])}` })
      lines.push(...framesOf(stacks, data.stack[id]))
      lines.push({ kind: 'plain', text: describeLifetime(data, id) })
    } else if (address >= 0) {
      lines.push({ kind: 'title', text: `nothing allocated  ·  ${replay.space.text(Math.floor(address))}` })
    }
    const row = address < 0 ? -1 : segmentRowAt(replay, address, position)
    if (row >= 0) {
      const { start, end } = replay.segments
      const size = formatBytes(end[row] - start[row])
      const group = groups.names[groups.of[row]]
      lines.push({ kind: 'soft', text: `segment of ${size} at ${replay.space.text(start[row])} · ${group}` })
    }
    if (lines.length) {
      const text = position === 0 ? 'before the first event' : `event ${formatCount(position - 1)}`
      lines.push({ kind: 'soft', text })
    }
    return { lines, swatch: id < 0 ? null : cssOf(colouring, colouring.keys[id]) }
  }

  protected click(scene: TimeScene, at: Point): void {
    const id = idAt(scene, at)
    this.parts.store.set({ select: id < 0 ? null : id, at: positionsAt(scene, at.x)[0] - 1 })
  }

  protected override zoom(x: number, y: number, factorX: number, factorY: number): void {
    super.zoom(x, y, factorX, factorY)
    const { shown } = this
    if (!shown || factorY === 1) return
    const [y0, y1] = shown.y
    const at = pixelToY(shown, y)
    this.setY(shown, [at + (y0 - at) * factorY, at + (y1 - at) * factorY])
  }

  protected override pan(dx: number, dy: number): void {
    super.pan(dx, dy)
    const { shown } = this
    if (!shown || dy === 0) return
    const [y0, y1] = shown.y
    const by = (dy / shown.box.height) * (y1 - y0)
    this.setY(shown, [y0 + by, y1 + by])
  }

  protected override fit(): void {
    super.fit()
    this.parts.store.setOption(Y_OPTION, null)
  }

  private setY({ axis }: TimeScene, range: Range): void {
    this.parts.store.setOption(Y_OPTION, yOptionOf(range, axis))
  }
}
