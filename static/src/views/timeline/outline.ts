// The shape of one allocation over the picture, exact at the positions that the columns show.

import { path } from '../../layout/pick'
import { columnsBetween } from '../shared/column'
import { type Frame, xToPixel, yToPixel } from './frame'
import { Memo } from '../memo'

interface Shape {
  /** Left edge of column i in axis units is x0 + i * width. */
  x0: number
  width: number
  /** Offset per column; NaN where it is not live. */
  offsets: Float64Array
}

export interface OutlineStyle {
  stroke: 'ink' | 'accent'
  fill: 'selection' | null
  thickness: number
}

/** Computes the shape of an allocation again only when the window or the level changes. */
export class Outline {
  private readonly shape = new Memo<Shape | null>()

  draw(frame: Frame, id: number, level: number, style: OutlineStyle): void {
    const data = frame.scene.drawn
    if (!data || id >= data.N) return
    const shape = this.shapeFor(frame, id, level)
    if (!shape) return
    const steps = stepsOf(frame, shape, data.size[id])
    const { rects, inks } = frame
    if (style.fill) {
      rects.ink(inks[style.fill])
      for (let i = 0; i < steps.length; i += 4) rects.add(steps[i], steps[i + 2], steps[i + 1], steps[i + 3])
    }
    rects.ink(inks.halo)
    addBorder(frame, steps, style.thickness + 2)
    rects.ink(inks[style.stroke])
    addBorder(frame, steps, style.thickness)
  }

  private shapeFor(frame: Frame, id: number, level: number): Shape | null {
    const { scene, scale, window } = frame
    const data = scene.drawn!
    return this.shape.get([data, scale.axis, id, level, window.x0, window.x1], () => {
      const from = Math.max(window.x0, scale.toAxis(data.start[id] - 1))
      const to = Math.min(window.x1, scale.toAxis(data.end[id] - 1))
      const columns = to >= from ? columnsBetween(scene, scale.axis, level, from, Math.max(to, from + 1e-9)) : null
      return columns && { x0: columns.x0, width: columns.width, offsets: path(data, id, columns.s) }
    })
  }
}

/** x0, x1, top, bottom in pixels per stretch of equal offset; where it is not live there is a gap in x. */
function stepsOf(frame: Frame, { x0, width, offsets }: Shape, size: number): number[] {
  const steps: number[] = []
  for (let column = 0; column < offsets.length; column++) {
    const offset = offsets[column]
    if (Number.isNaN(offset)) continue
    const right = xToPixel(frame, x0 + (column + 1) * width)
    if (column > 0 && offsets[column - 1] === offset) steps[steps.length - 3] = right
    else
      steps.push(xToPixel(frame, x0 + column * width), right, yToPixel(frame, offset + size), yToPixel(frame, offset))
  }
  return steps
}

/** Top and bottom of every stretch, and an upright wherever the shape begins, ends or moves. */
function addBorder({ rects, plot }: Frame, steps: number[], thickness: number): void {
  const half = thickness / 2
  const low = -thickness
  const clip = (value: number, high: number): number => Math.min(high + thickness, Math.max(low, value))
  const upright = (x: number, a: number, b: number): void => {
    if (x < low || x > plot.width + thickness) return
    rects.add(x - half, clip(Math.min(a, b), plot.height) - half, x + half, clip(Math.max(a, b), plot.height) + half)
  }
  for (let i = 0; i < steps.length; i += 4) {
    const x0 = clip(steps[i], plot.width)
    const x1 = clip(steps[i + 1], plot.width)
    const top = clip(steps[i + 2], plot.height)
    const bottom = clip(steps[i + 3], plot.height)
    rects.add(x0, top - half, x1, top + half)
    rects.add(x0, bottom - half, x1, bottom + half)
    const joined = i > 0 && steps[i - 3] >= steps[i] - 1e-6
    if (joined) {
      upright(steps[i], steps[i - 2], steps[i + 2])
      upright(steps[i], steps[i - 1], steps[i + 3])
    } else {
      if (i > 0) upright(steps[i - 3], steps[i - 2], steps[i - 1])
      upright(steps[i], steps[i + 2], steps[i + 3])
    }
  }
  const last = steps.length - 4
  if (last >= 0) upright(steps[last + 1], steps[last + 2], steps[last + 3])
}
