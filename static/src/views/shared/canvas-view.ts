// The base of the pictures that are drawn on a canvas and take the pointer and the keys: their elements, their size in CSS
// and device pixels, and drawing on the next animation frame.

import { firstWhere } from '../../layout/binary-search'
import { h } from '../../ui/dom'
import { FrameRequest } from '../../ui/frame-request'
import { type Inks, word } from './inks'
import { type Box, pictureRatio } from './plot-frame'
import { Tooltip } from './tooltip'

export abstract class CanvasView {
  readonly element: HTMLElement
  readonly tooltip = new Tooltip()
  protected readonly canvas = h('canvas', { 'aria-hidden': 'true' })
  /** What has the focus, and the size of the picture. Views put the canvas into it. */
  protected readonly plot: HTMLElement
  private readonly pixels = document.createElement('canvas')
  protected readonly frame = new FrameRequest(() => this.draw())

  /**
   * Attributes of the plot, and the class of the element around it and the tooltip. Without one the plot is the element, and
   * whoever has it places the tooltip.
   */
  constructor(attributes: Record<string, string>, className: string | null) {
    this.plot = h('div', { tabindex: 0, role: 'application', ...attributes })
    this.element = className === null ? this.plot : h('div', { class: className }, this.plot, this.tooltip.element)
  }

  picture(): HTMLCanvasElement {
    return this.canvas
  }

  /** Draws what is shown; does nothing before there is something. */
  protected abstract draw(): void

  /** Empties a canvas over the whole plot and gives a context in CSS pixels. */
  protected begin(canvas: HTMLCanvasElement): CanvasRenderingContext2D {
    return prepareCanvas(canvas, this.plot.clientWidth, this.plot.clientHeight)
  }

  /**
   * Paints a box of the picture as 32-bit words on the panel's colour. `isTransposed`: the words are columns of the picture,
   * one after the other, instead of rows.
   */
  protected paintPixels(
    ctx: CanvasRenderingContext2D,
    box: Box,
    inks: Inks,
    isTransposed: boolean,
    paint: (words: Uint32Array, width: number, height: number) => void,
  ): void {
    const ratio = pictureRatio(box.width, box.height)
    const width = Math.max(1, Math.round(box.width * ratio))
    const height = Math.max(1, Math.round(box.height * ratio))
    const image = isTransposed ? new ImageData(height, width) : new ImageData(width, height)
    paint(new Uint32Array(image.data.buffer).fill(word(inks.panel)), width, height)
    this.pixels.width = image.width
    this.pixels.height = image.height
    this.pixels.getContext('2d', { willReadFrequently: true })!.putImageData(image, 0, 0)
    if (!isTransposed) return ctx.drawImage(this.pixels, box.left, box.top, box.width, box.height)
    ctx.save()
    ctx.transform(0, box.height / height, box.width / width, 0, box.left, box.top)
    ctx.drawImage(this.pixels, 0, 0)
    ctx.restore()
  }
}

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

/** Of every label on a canvas. */
export const FONT = '11.5px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif'

/** The text with its end cut off where it does not fit; "" where nothing does. */
export function fitted(ctx: CanvasRenderingContext2D, text: string, width: number): string {
  if (ctx.measureText(text).width <= width) return text
  const cut = (count: number): string => `${text.slice(0, count)}…`
  const letters = Math.max(0, Math.min(text.length, Math.ceil(width / 2)))
  const most = firstWhere(1, letters + 1, (count) => ctx.measureText(cut(count)).width > width) - 1
  return most === 0 ? '' : cut(most)
}
