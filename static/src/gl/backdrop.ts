// One frame on the canvas: tiles, lines over them, and what a drag draws (a box, the ruler). While nothing but the last
// changes, the first two are kept as one texture, and a frame takes away what the last one drew and draws the new: where
// graphics are emulated, a drag then costs a tenth of drawing everything again.

import type { GlContext } from './context'
import type { GlStage, Shown } from './gl-stage'
import type { RectList, RectPainter } from './rects'
import { freeTexture, makeTexture, type Texture } from './program'

/** What the canvas shows, less what a drag draws. */
interface Base {
  shown: Shown
  lines: RectList
  generation: number
  /** Of the canvas, in its own and in CSS pixels. */
  size: readonly number[]
}

/** Removing more rectangles than this one by one is not cheaper than copying everything. */
const MAX_UNCOVERED = 2000

export class Backdrop {
  private base: Base | null = null
  /** The base, as long as it does not change. */
  private picture: Texture | null = null
  private isCached = false
  /** What a drag drew in the last frame; null: the whole canvas has to be restored. */
  private over: RectList | null = null

  constructor(
    private readonly context: GlContext,
    private readonly stage: GlStage,
    private readonly painter: RectPainter,
  ) {}

  /** Draws what the stage shows and rectangles onto the canvas, which is width × height CSS pixels. */
  draw(rects: RectList, width: number, height: number): void {
    const { context, stage, painter } = this
    const { screen, generation } = context
    const size = [screen.width, screen.height, width, height]
    const { base } = this
    const isSame =
      base !== null &&
      base.generation === generation &&
      base.size.join() === size.join() &&
      base.lines.count === rects.fixed &&
      isSameShown(base.shown, stage.shown) &&
      rects.startsWith(base.lines)
    const picture = isSame && context.isSoftware ? this.keep(rects, width, height) : null
    if (!picture) {
      this.isCached = false
      this.base = { shown: stage.shown, lines: rects.slice(0, rects.fixed), generation, size }
      stage.drawShown(screen)
      painter.draw(screen, rects, 0, rects.count, width, height)
      return
    }
    if (this.over && this.over.count <= MAX_UNCOVERED) painter.uncover(screen, this.over, picture, width, height)
    else stage.copy(screen, picture)
    painter.draw(screen, rects, rects.fixed, rects.count, width, height)
    this.over = rects.slice(rects.fixed, rects.count)
  }

  /** The base as a texture, drawn when the same base is shown a second time; null while the context is lost. */
  private keep(rects: RectList, width: number, height: number): Texture | null {
    const { context, stage, painter } = this
    const { screen, generation } = context
    if (this.isCached) return this.picture
    const old = this.picture
    if (!old || old.generation !== generation || old.width !== screen.width || old.height !== screen.height) {
      if (old) freeTexture(context, old)
      this.picture = makeTexture(context, screen.width, screen.height, 0)
    }
    if (!this.picture) return null
    stage.drawShown(this.picture)
    painter.draw(this.picture, rects, 0, rects.fixed, width, height)
    this.isCached = true
    this.over = null
    return this.picture
  }
}

function isSameShown(a: Shown, b: Shown): boolean {
  return (
    a.fast === b.fast &&
    a.background.join() === b.background.join() &&
    JSON.stringify(a.parts) === JSON.stringify(b.parts) &&
    a.pictures.every((picture, i) => picture === b.pictures[i])
  )
}
