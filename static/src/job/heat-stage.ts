// The canvas of the heat map, drawn by WebGL where the browser has it, else pixel by pixel.

import { GlContext } from '../gl/context'
import { HeatPainter } from '../gl/heat'
import { type HeatCells, type HeatStyle, type HeatWindow, paintHeat } from '../gl/heat-raster'
import { h } from '../ui/dom'
import { pictureRatio } from '../views/shared/plot-frame'

export class HeatStage {
  canvas = h('canvas', { class: 'heat-canvas', 'aria-hidden': 'true' })
  private readonly context: GlContext | null
  private readonly painter: HeatPainter | null
  private flat: { canvas: HTMLCanvasElement; ctx: CanvasRenderingContext2D } | null = null
  private last: (() => void) | null = null

  constructor() {
    this.context = GlContext.create(this.canvas)
    this.painter = this.context && new HeatPainter(this.context)
    if (this.context) this.context.onRestored = () => this.last?.()
  }

  get isWebGl(): boolean {
    return this.painter !== null && this.flat === null
  }

  /** Sizes in CSS pixels. */
  draw(cells: HeatCells, window: HeatWindow, style: HeatStyle, width: number, height: number): void {
    this.last = () => this.draw(cells, window, style, width, height)
    const { painter } = this
    const usesGl = painter?.fits(cells.columns, cells.rows) ?? false
    if (!usesGl) this.toFlat()
    const { canvas } = this
    const ratio = pictureRatio(width, height)
    const [across, down] = [width, height].map((length) => Math.max(1, Math.round(length * ratio)))
    if (canvas.width !== across || canvas.height !== down) [canvas.width, canvas.height] = [across, down]
    canvas.style.width = `${width}px`
    canvas.style.height = `${height}px`
    if (painter && usesGl) painter.draw(cells, window, style)
    else if (this.flat) {
      const image = this.flat.ctx.createImageData(across, down)
      paintHeat(new Uint32Array(image.data.buffer), across, down, cells, window, style)
      this.flat.ctx.putImageData(image, 0, 0)
    }
  }

  testContextLoss(): void {
    this.context?.testContextLoss()
  }

  /** A canvas that once had a WebGL context can have no other: it is replaced. */
  private toFlat(): void {
    if (this.flat) return
    const canvas = h('canvas', { class: 'heat-canvas', 'aria-hidden': 'true' })
    const ctx = canvas.getContext('2d', { willReadFrequently: true })
    if (!ctx) return
    this.canvas.replaceWith(canvas)
    this.canvas = canvas
    this.flat = { canvas, ctx }
  }
}
