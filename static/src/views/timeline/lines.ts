// Curves over the picture: reserved, and the top edge of the stack. Zoomed out, a pixel shows the greatest value in it.

import { type Frame, pixelToX, xToPixel, yToPixel } from './frame'
import type { RangeMax } from './range-max'

export function drawLines(frame: Frame): void {
  const { scene, inks, rects } = frame
  if (!scene.data || !scene.allocatedMax || !scene.reservedMax) return
  const edge = stepsOf(frame, scene.allocatedMax, scene.data.allocated)
  rects.ink(inks.ink.rgba, 0.8)
  addSteps(frame, edge, 1)
  if (scene.info.stats.peak_reserved_bytes <= 0) return
  const reserved = stepsOf(frame, scene.reservedMax, scene.data.reserved)
  rects.ink(inks.halo.rgba)
  addSteps(frame, reserved, 4)
  rects.ink(inks.reserved.rgba)
  addSteps(frame, reserved, 2)
}

/** Where the label of the reserved line goes: pixels from the top of the plot; `above`: the line is out of sight upwards. */
export function reservedLabel(frame: Frame): { y: number; above: boolean } | null {
  const { scene, window, scale } = frame
  const { data } = scene
  if (!data || scene.info.stats.peak_reserved_bytes <= 0) return null
  const [, to] = scene.positions(scale.axis, window.x0, window.x1)
  const last = data.reserved[Math.min(to, data.reserved.length) - 1]
  if (last < window.y0) return null
  return last > window.y1 ? { y: 0, above: true } : { y: yToPixel(frame, last), above: false }
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
    for (let x = 0; x < plot.width; x++) {
      const [low, high] = scene.positions(scale.axis, pixelToX(frame, x), pixelToX(frame, x + 1))
      push(x, x + 1, yToPixel(frame, greatest.max(low, high)))
    }
  }
  return steps
}

/** A line of some thickness along the steps, upright where they meet; clipped to what can be seen. */
function addSteps({ rects, plot }: Frame, steps: number[], thickness: number): void {
  const half = thickness / 2
  const clip = (y: number): number => Math.min(plot.height + 8, Math.max(-8, y))
  for (let i = 0; i < steps.length; i += 3) {
    const x0 = Math.max(-8, steps[i])
    const x1 = Math.min(plot.width + 8, steps[i + 1])
    const y = clip(steps[i + 2])
    if (x1 > x0) rects.add(x0, y - half, x1, y + half)
    if (i === 0) continue
    const before = clip(steps[i - 1])
    rects.add(x0 - half, Math.min(before, y) - half, x0 + half, Math.max(before, y) + half)
  }
}
