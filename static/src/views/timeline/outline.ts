// The shape of one allocation over the picture, exact at the positions that the columns show.

import { path } from '../../layout/pick'
import { columnsBetween } from './column'
import { type Frame, xToPixel, yToPixel } from './frame'

interface Shape {
  key: string
  /** Left edge of column i in axis units is x0 + i * width. */
  x0: number
  width: number
  /** Offset per column; NaN where it is not live. */
  offsets: Float64Array
}

/** Works out the shape of an allocation again only when the window or the level changes. */
export class Outline {
  private shape: Shape | null = null

  draw(frame: Frame, id: number, level: number, style: { stroke: string; fill: string; width: number }): void {
    const data = frame.scene.data
    if (!data || id >= data.N) return
    const shape = this.shapeFor(frame, id, level)
    if (!shape) return
    const { ctx, plot } = frame
    const size = data.size[id]
    ctx.save()
    ctx.beginPath()
    ctx.rect(plot.left, plot.top, plot.width, plot.height)
    ctx.clip()
    ctx.beginPath()
    for (let start = 0; start < shape.offsets.length; start++) {
      if (Number.isNaN(shape.offsets[start])) continue
      let end = start
      while (end < shape.offsets.length && !Number.isNaN(shape.offsets[end])) end++
      traceRun(frame, shape, start, end, size)
      start = end
    }
    ctx.fillStyle = style.fill
    ctx.fill()
    ctx.lineJoin = 'round'
    ctx.strokeStyle = frame.inks.halo
    ctx.lineWidth = style.width + 2
    ctx.stroke()
    ctx.strokeStyle = style.stroke
    ctx.lineWidth = style.width
    ctx.stroke()
    ctx.restore()
  }

  private shapeFor(frame: Frame, id: number, level: number): Shape | null {
    const { scene, scale, window } = frame
    const data = scene.data!
    const key = [scene.info.index, scale.axis, id, level, window.x0, window.x1].join()
    if (this.shape?.key === key) return this.shape
    const from = Math.max(window.x0, scale.toAxis(data.start[id] - 1))
    const to = Math.min(window.x1, scale.toAxis(data.end[id] - 1))
    const columns = to >= from ? columnsBetween(scene, scale.axis, level, from, Math.max(to, from + 1e-9)) : null
    this.shape = columns && { key, x0: columns.x0, width: columns.width, offsets: path(data, id, columns.s) }
    return this.shape
  }
}

/** One closed staircase around columns [start, end). */
function traceRun(frame: Frame, { x0, width, offsets }: Shape, start: number, end: number, size: number): void {
  const { ctx } = frame
  const left = (column: number): number => xToPixel(frame, x0 + column * width)
  ctx.moveTo(left(start), yToPixel(frame, offsets[start]))
  for (let column = start; column < end; column++) {
    const y = yToPixel(frame, offsets[column] + size)
    ctx.lineTo(left(column), y)
    ctx.lineTo(left(column + 1), y)
  }
  for (let column = end - 1; column >= start; column--) {
    const y = yToPixel(frame, offsets[column])
    ctx.lineTo(left(column + 1), y)
    ctx.lineTo(left(column), y)
  }
  ctx.closePath()
}
