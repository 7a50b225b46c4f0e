// The base of the pictures that are drawn on a canvas and take the pointer and the keys: their elements, their size in CSS
// and device pixels, and drawing on the next animation frame.

import { h } from '../../ui/dom'
import { FrameRequest } from '../../ui/frame-request'
import { prepareCanvas } from './canvas'
import { Tooltip } from './tooltip'

export abstract class CanvasView {
  readonly element: HTMLElement
  readonly tooltip = new Tooltip()
  protected readonly canvas = h('canvas', { 'aria-hidden': 'true' })
  /** What has the focus, and the size of the picture. Views put the canvas into it. */
  protected readonly plot: HTMLElement
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
}
