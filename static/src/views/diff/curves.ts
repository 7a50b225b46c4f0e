// Both timelines on one scale: bytes up, each trace over the whole width.

import type { DeviceData, Frame } from '../../data/model'
import type { Inks } from '../shared/inks'
import { drawByteAxis } from '../shared/plot-frame'
import { greatestOf } from '../shared/scene'

interface Curve {
  data: DeviceData
  css: string
  /** The compared position. */
  position: number
}

/** Room for the bytes beside the curves, in CSS pixels. */
const LEFT = 66

/** The context's unit is the CSS pixel. Each pixel shows the greatest allocated bytes in it, so that no peak is lost. */
export function paintCurves(
  ctx: CanvasRenderingContext2D,
  { width: whole, height }: { width: number; height: number },
  curves: readonly Curve[],
  inks: Inks,
): void {
  const width = Math.max(1, whole - LEFT)
  const top = Math.max(1, ...curves.map(({ data }) => greatestOf(data.allocated))) * 1.06
  drawByteAxis(ctx, { left: LEFT, top: 0, width, height }, top, inks)
  ctx.save()
  ctx.translate(LEFT, 0)
  for (const { data, css, position } of curves) {
    const { allocated, P } = data
    const columns = Math.max(1, Math.min(Math.floor(width), P))
    ctx.beginPath()
    for (let c = 0; c < columns; c++) {
      const from = Math.floor((c * P) / columns)
      const to = Math.max(from + 1, Math.floor(((c + 1) * P) / columns))
      let bytes = 0
      for (let s = from; s < to; s++) if (allocated[s] > bytes) bytes = allocated[s]
      const y = height - (bytes / top) * height
      ctx.lineTo((c / columns) * width, y)
      ctx.lineTo(((c + 1) / columns) * width, y)
    }
    ctx.strokeStyle = css
    ctx.lineWidth = 1.5
    ctx.stroke()
    ctx.globalAlpha = 0.13
    ctx.lineTo(width, height)
    ctx.lineTo(0, height)
    ctx.fillStyle = css
    ctx.fill()
    ctx.globalAlpha = 1
    const x = ((position + 0.5) / P) * width
    const y = height - (allocated[position] / top) * height
    ctx.beginPath()
    ctx.arc(Math.min(width - 4, Math.max(4, x)), Math.max(4, y), 4, 0, 2 * Math.PI)
    ctx.fill()
  }
  ctx.restore()
}

/** Frames of `after` that stand elsewhere in `before`, where the same code was, and what they are there. */
export function movedFrames(after: readonly Frame[], before: readonly Frame[]): Map<Frame, Frame> {
  // Without runtime noise both have the same functions in the same order.
  const [ours, theirs] = [after, before].map((frames) => frames.filter((frame) => !frame.noise))
  const moved = ours.map((frame, i): [Frame, Frame] => [frame, theirs[i] ?? frame])
  return new Map(moved.filter(([frame, was]) => was.line !== frame.line || was.filename !== frame.filename))
}
