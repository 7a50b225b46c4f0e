// Both timelines on one scale: bytes up, each trace over the whole width.

import type { DeviceData, Frame } from '../../data/model'
import { h } from '../../ui/dom'
import { stackList } from '../../ui/stack-list'
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

/** before: frames of the same code in the earlier snapshot; null where it is not there. */
export function bothStacks(
  after: readonly Frame[],
  before: readonly Frame[] | null,
  showNoise: boolean,
  onShowNoise: () => void,
): HTMLElement {
  const list = stackList(after, showNoise, onShowNoise)
  if (!before) return list
  const items = [...list.querySelectorAll('li.frame')]
  const shown = after.filter((frame) => showNoise || !frame.noise)
  // Same code: without runtime noise, both have the same functions in the same order.
  const others = before.filter((frame) => !frame.noise)
  let at = 0
  shown.forEach((frame, i) => {
    if (frame.noise) return
    const other = others[at++]
    if (!other || (other.line === frame.line && other.filename === frame.filename)) return
    const place = `${other.filename}:${other.line}`
    items[i].append(h('span', { class: 'diff-was', title: place }, `before: ${other.file}:${other.line}`))
  })
  return list
}

/** Whether any frame but runtime noise stands elsewhere. */
export function hasMoved(after: readonly Frame[], before: readonly Frame[]): boolean {
  const [ours, theirs] = [after, before].map((frames) => frames.filter((frame) => !frame.noise))
  return ours.some(
    (frame, i) => theirs[i] !== undefined && (theirs[i].line !== frame.line || theirs[i].filename !== frame.filename),
  )
}
