// Requests that failed, drawn where they would have been: hatched blocks on top of the stack.

import { type Frame, xToPixel, yToPixel } from './frame'

/** A block in pixels of the plot, cut at its edges. */
export interface FailedRequest {
  event: number
  bytes: number
  x0: number
  x1: number
  y0: number
  y1: number
  /** It continues above the plot. */
  isCut: boolean
}

/** An event is usually thinner than a pixel; its failed request must be visible and clickable. */
const MIN_WIDTH = 44
const MIN_HEIGHT = 6
/** Failures closer together are one block's width apart or left out. */
const MOST = 8
const STRIPE = 9
/** Height of the steps that a stripe is made of, in CSS pixels. */
const STEP = 1.5

export function failedRequests(frame: Frame): FailedRequest[] {
  const { scene, scale, plot, window } = frame
  const found: FailedRequest[] = []
  let free = -Infinity
  for (const { event, requested: recorded, figures } of scene.info.ooms) {
    const requested = scene.requests?.get(event) ?? recorded
    const x = scale.toAxis(event)
    if (found.length === MOST || x > window.x1) break
    const below = scene.drawn?.allocated[event + 1] ?? figures?.allocated
    const left = xToPixel(frame, x)
    if (requested <= 0 || below === undefined || left < free) continue
    const right = Math.max(left + MIN_WIDTH, xToPixel(frame, scale.toAxis(event + 1)))
    const bottom = yToPixel(frame, below)
    const top = Math.min(yToPixel(frame, below + requested), bottom - MIN_HEIGHT)
    if (right <= 0 || bottom <= 0 || top >= plot.height) continue
    free = right + 4
    found.push({
      event,
      bytes: requested,
      x0: Math.max(0, left),
      x1: Math.min(plot.width, right),
      y0: Math.max(0, top),
      y1: Math.min(plot.height, bottom),
      isCut: top < 0,
    })
  }
  return found
}

export function drawFailedRequests(frame: Frame, blocks: readonly FailedRequest[]): void {
  const { rects, inks } = frame
  for (const { x0, x1, y0, y1, isCut } of blocks) {
    rects.ink(inks.panel.rgba, 0.72)
    rects.add(x0, y0, x1, y1)
    rects.ink(inks.oom.rgba, 0.6)
    // A stripe leans to the right: its steps are small enough to look like a line.
    for (let y = y0; y < y1; y += STEP) {
      const phase = (x0 + y1 - y) % STRIPE
      for (let x = x0 + STRIPE - phase - 3; x < x1; x += STRIPE) {
        const from = Math.max(x0, x)
        const to = Math.min(x1, x + 3)
        if (to > from) rects.add(from, y, to, Math.min(y1, y + STEP))
      }
    }
    rects.ink(inks.oom.rgba)
    if (!isCut) rects.add(x0, y0, x1, y0 + 1.5)
    rects.add(x0, y1 - 1.5, x1, y1)
    rects.add(x1 - 1.5, y0, x1, y1)
    rects.add(x0, y0, x0 + 1.5, y1)
  }
}

export function failedRequestAt(blocks: readonly FailedRequest[], x: number, y: number): FailedRequest | null {
  return blocks.find((block) => x >= block.x0 && x <= block.x1 && y >= block.y0 && y <= block.y1) ?? null
}
