// The size of a canvas in CSS and in device pixels.

import { FONT } from './font'

/** Sizes a canvas to CSS pixels, and returns device pixels for each. What was drawn stays where the size does. */
export function sizeCanvas(canvas: HTMLCanvasElement, width: number, height: number): number {
  const ratio = devicePixelRatio || 1
  const across = Math.max(1, Math.round(width * ratio))
  const down = Math.max(1, Math.round(height * ratio))
  if (canvas.width !== across || canvas.height !== down) {
    canvas.width = across
    canvas.height = down
  }
  canvas.style.width = `${width}px`
  canvas.style.height = `${height}px`
  return ratio
}

/** Sizes a canvas, empties it, and gives its context as it is at first, but in CSS pixels. */
export function prepareCanvas(canvas: HTMLCanvasElement, width: number, height: number): CanvasRenderingContext2D {
  const ratio = sizeCanvas(canvas, width, height)
  const across = canvas.width
  canvas.width = across // also where the size stays: this resets the context
  const ctx = canvas.getContext('2d')!
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0)
  ctx.font = FONT
  return ctx
}
