// Curves over the picture: reserved, and the top edge of the stack. Zoomed out, a pixel shows the greatest value in it.

import { type Frame, pixelToX, xToPixel, yToPixel } from './frame'
import { Memo } from '../memo'
import type { RangeMax } from '../shared/range-max'

export class Lines {
  private readonly edge = new Memo<number[]>()
  private readonly reserved = new Memo<number[]>()

  /** Bytes by position to draw over the stack, and what finds their greatest; null: none. */
  curve: { values: Float64Array; greatest: RangeMax } | null = null

  draw(frame: Frame): void {
    const { scene, scale, window, plot, inks, rects } = frame
    const { drawn: data, allocatedMax, reservedMax } = scene
    if (!data || !allocatedMax || !reservedMax) return
    // Steps are cached while only the pointer moves: a thousand searches on a million positions take 2 ms.
    const seen = [scale, window.x0, window.x1, window.y0, window.y1, plot.width, plot.height]
    const edge = this.edge.get([data, ...seen], () => stepsOf(frame, allocatedMax, data.allocated))
    // Uprights of narrow spikes are close together: as dark as the level parts they would hide the spikes' bands.
    rects.ink(inks.ink.rgba, 0.25)
    addUprights(frame, edge, 1)
    rects.ink(inks.ink.rgba, 0.8)
    addTreads(frame, edge, 1)
    if (this.curve && this.curve.values.length === data.P)
      addCurve(frame, stepsOf(frame, this.curve.greatest, this.curve.values), inks.accent)
    if (scene.info.stats.peak_reserved_bytes <= 0) return
    const reserved = this.reserved.get([data, ...seen], () => stepsOf(frame, reservedMax, data.reserved))
    addCurve(frame, reserved, inks.reserved)
  }
}

/** A line in an ink, with a halo. */
function addCurve(frame: Frame, steps: number[], own: Frame['inks']['ink']): void {
  for (const [ink, thickness] of [
    [frame.inks.halo, 4],
    [own, 2],
  ] as const) {
    frame.rects.ink(ink.rgba)
    addUprights(frame, steps, thickness)
    addTreads(frame, steps, thickness)
  }
}

/** What is reserved at the right end of the window: pixels from the top of the plot; `above`: the line is out of sight upwards. */
export function reservedAtEnd(frame: Frame): { y: number; above: boolean; bytes: number } | null {
  const { scene, window, scale } = frame
  const { drawn: data } = scene
  if (!data || scene.info.stats.peak_reserved_bytes <= 0) return null
  const [, to] = scene.positions(scale.axis, window.x0, window.x1)
  const bytes = data.reserved[Math.min(to, data.reserved.length) - 1]
  if (bytes < window.y0) return null
  return bytes > window.y1 ? { y: 0, above: true, bytes } : { y: yToPixel(frame, bytes), above: false, bytes }
}

/** x0, x1, y per step: neighbours have different y. */
function stepsOf(frame: Frame, greatest: RangeMax, values: Float64Array): number[] {
  const { scene, scale, window, plot } = frame
  const [from, to] = scene.positions(scale.axis, window.x0, window.x1)
  const steps: number[] = []
  const push = (x0: number, x1: number, y: number): void => {
    if (steps.length && steps[steps.length - 1] === y) steps[steps.length - 2] = x1
    else steps.push(x0, x1, y)
  }
  if (to - from <= plot.width) {
    for (let s = from; s < to; s++) {
      push(xToPixel(frame, scale.toAxis(s - 1)), xToPixel(frame, scale.toAxis(s)), yToPixel(frame, values[s]))
    }
  } else {
    // There may be room after the last event, where nothing is known.
    const end = Math.min(plot.width, xToPixel(frame, scene.end(scale)))
    for (let x = 0; x < end; x++) {
      const [low, high] = scene.positions(scale.axis, pixelToX(frame, x), pixelToX(frame, x + 1))
      push(x, x + 1, yToPixel(frame, greatest.max(low, high)))
    }
  }
  return steps
}

/** The level parts of a line of some thickness; clipped to what can be seen. */
function addTreads({ rects, plot }: Frame, steps: number[], thickness: number): void {
  const half = thickness / 2
  for (let i = 0; i < steps.length; i += 3) {
    const x0 = Math.max(-8, steps[i])
    const x1 = Math.min(plot.width + 8, steps[i + 1])
    const y = clipY(plot.height, steps[i + 2])
    if (x1 > x0) rects.add(x0, y - half, x1, y + half)
  }
}

/** The upright parts, where two steps meet. */
function addUprights({ rects, plot }: Frame, steps: number[], thickness: number): void {
  const half = thickness / 2
  for (let i = 3; i < steps.length; i += 3) {
    const before = clipY(plot.height, steps[i - 1])
    const y = clipY(plot.height, steps[i + 2])
    rects.add(steps[i] - half, Math.min(before, y) - half, steps[i] + half, Math.max(before, y) + half)
  }
}

function clipY(height: number, y: number): number {
  return Math.min(height + 8, Math.max(-8, y))
}
