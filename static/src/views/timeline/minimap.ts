// The whole trace in a strip, with the window as a brush: drag it, drag its edges, or draw a new one.

import { css, type Inks } from '../shared/inks'
import { h } from '../../ui/dom'
import type { AxisScale } from '../shared/x-window'
import type { Scene } from '../shared/scene'
import { Memo } from '../memo'
import type { Frame } from './frame'

const EDGE_PIXELS = 7

type Drag = { kind: 'move' | 'left' | 'right' | 'new'; from: number; x0: number; x1: number }

export class Minimap {
  readonly element = h('canvas.minimap', {
    'aria-hidden': 'true',
    title: 'The whole trace. Drag the window, its edges, or draw a new one.',
  })
  private readonly picture = document.createElement('canvas')
  private readonly ctx: CanvasRenderingContext2D
  private readonly pictureCtx: CanvasRenderingContext2D
  private readonly pictures = new Memo<void>()
  private drag: Drag | null = null
  private scale: AxisScale | null = null
  private shown: { x0: number; x1: number } = { x0: 0, x1: 1 }

  constructor(
    private readonly onWindow: (x0: number, x1: number) => void,
    private readonly onFit: () => void,
  ) {
    this.ctx = this.element.getContext('2d')!
    this.pictureCtx = this.picture.getContext('2d')!
    this.element.addEventListener('pointerdown', this.down)
    this.element.addEventListener('pointermove', this.move)
    this.element.addEventListener('pointerup', () => (this.drag = null))
    this.element.addEventListener('pointercancel', () => (this.drag = null))
    this.element.addEventListener('dblclick', () => this.onFit())
  }

  draw({ scene, scale, window, plot, inks }: Frame, marginRight: number): void {
    this.scale = scale
    this.shown = window
    const { element, picture } = this
    element.style.marginLeft = `${plot.left}px`
    element.style.width = `calc(100% - ${plot.left + marginRight}px)`
    const ratio = devicePixelRatio || 1
    const width = Math.max(1, Math.round(element.clientWidth * ratio))
    const height = Math.max(1, Math.round(element.clientHeight * ratio))
    this.pictures.get([scene.info, scale.axis, width, height, inks, scene.allocatedMax], () => {
      for (const canvas of [element, picture]) [canvas.width, canvas.height] = [width, height]
      drawPicture(this.pictureCtx, scene, scale, inks)
    })
    const { ctx } = this
    ctx.setTransform(1, 0, 0, 1, 0, 0)
    ctx.clearRect(0, 0, width, height)
    ctx.drawImage(picture, 0, 0)
    const left = this.toPixel(window.x0) * ratio
    // A window of one event in a million is thinner than a pixel; the brush stays wide enough to see and drag.
    const right = Math.max(left + 3 * ratio, this.toPixel(window.x1) * ratio)
    ctx.fillStyle = css(inks.panel)
    ctx.globalAlpha = 0.62
    ctx.fillRect(0, 0, left, height)
    ctx.fillRect(right, 0, width - right, height)
    ctx.globalAlpha = 1
    ctx.strokeStyle = css(inks.accent)
    ctx.lineWidth = 1.5 * ratio
    ctx.strokeRect(left + ratio, ratio, Math.max(ratio, right - left - 2 * ratio), height - 2 * ratio)
    ctx.fillStyle = css(inks.accent)
    for (const x of [left, right - 3 * ratio]) ctx.fillRect(x, height * 0.3, 3 * ratio, height * 0.4)
  }

  private toPixel(x: number): number {
    const { x0, x1 } = this.scale!
    return ((x - x0) / (x1 - x0)) * this.element.clientWidth
  }

  private toX(pixel: number): number {
    const { x0, x1 } = this.scale!
    return x0 + (pixel / Math.max(1, this.element.clientWidth)) * (x1 - x0)
  }

  private dragAt(pixel: number): Drag['kind'] {
    const left = this.toPixel(this.shown.x0)
    const right = Math.max(left + 3, this.toPixel(this.shown.x1))
    const whole = this.shown.x0 <= this.scale!.x0 && this.shown.x1 >= this.scale!.x1
    if (Math.abs(pixel - left) <= EDGE_PIXELS) return 'left'
    if (Math.abs(pixel - right) <= EDGE_PIXELS) return 'right'
    // A window over everything cannot be moved: inside it a new one is drawn.
    return pixel > left && pixel < right && !whole ? 'move' : 'new'
  }

  private readonly down = (event: PointerEvent): void => {
    if (!this.scale || event.button !== 0) return
    this.element.setPointerCapture(event.pointerId)
    const pixel = event.clientX - this.element.getBoundingClientRect().left
    this.drag = { kind: this.dragAt(pixel), from: this.toX(pixel), ...this.shown }
  }

  private readonly move = (event: PointerEvent): void => {
    if (!this.scale) return
    const pixel = event.clientX - this.element.getBoundingClientRect().left
    const { drag } = this
    if (!drag) {
      const kind = this.dragAt(pixel)
      this.element.style.cursor = kind === 'move' ? 'grab' : kind === 'new' ? 'crosshair' : 'ew-resize'
      return
    }
    const x = this.toX(pixel)
    if (drag.kind === 'move') this.onWindow(drag.x0 + x - drag.from, drag.x1 + x - drag.from)
    else if (drag.kind === 'new') {
      if (Math.abs(this.toPixel(x) - this.toPixel(drag.from)) > 3)
        this.onWindow(Math.min(x, drag.from), Math.max(x, drag.from))
    } else {
      const fixed = drag.kind === 'left' ? drag.x1 : drag.x0
      this.onWindow(Math.min(x, fixed), Math.max(x, fixed))
    }
  }
}

function drawPicture(ctx: CanvasRenderingContext2D, scene: Scene, scale: AxisScale, inks: Inks): void {
  const { width, height } = ctx.canvas
  ctx.clearRect(0, 0, width, height)
  if (!scene.data || !scene.allocatedMax || !scene.reservedMax) return
  const top = scene.yTop
  const perPixel = (scale.x1 - scale.x0) / width
  const y = (bytes: number): number => height - (bytes / top) * (height - 3)
  const column = (pixel: number): [number, number] =>
    scene.positions(scale.axis, scale.x0 + pixel * perPixel, scale.x0 + (pixel + 1) * perPixel)
  const end = Math.min(width, Math.ceil((scene.end(scale) - scale.x0) / perPixel))
  ctx.fillStyle = css(inks.soft)
  ctx.globalAlpha = 0.55
  for (let pixel = 0; pixel < end; pixel++) {
    const at = y(scene.allocatedMax.max(...column(pixel)))
    ctx.fillRect(pixel, at, 1, height - at)
  }
  ctx.globalAlpha = 1
  ctx.fillStyle = css(inks.reserved)
  for (let pixel = 0; pixel < end && !scene.isPart; pixel++) {
    ctx.fillRect(pixel, Math.max(0, y(scene.reservedMax.max(...column(pixel)))), 1, Math.max(1, height / 40))
  }
  // A failure over what was noted at the same event.
  const rest = scene.marks.filter(({ kind }) => kind !== 'oom')
  for (const mark of [...rest, ...scene.marks.filter(({ kind }) => kind === 'oom')]) {
    ctx.fillStyle = css(inks[mark.kind])
    const x = ((scale.toAxis(mark.event) - scale.x0) / (scale.x1 - scale.x0)) * width
    ctx.fillRect(Math.round(x), 0, Math.max(1, devicePixelRatio || 1), height)
  }
}
