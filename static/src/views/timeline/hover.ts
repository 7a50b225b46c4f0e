// What is under the pointer: its column and its allocation, marked over the picture, and a tooltip beside it.

import { FrameRequest } from '../../ui/frame-request'
import type { Store } from '../../ui/state'
import type { Column } from '../shared/column'
import { describeHit, type Hit } from '../shared/describe'
import { Tooltip } from '../shared/tooltip'
import type { Frame } from './frame'
import type { Hits } from './hits'
import { HoverLayer } from './hover-layer'
import { describeMark } from './marks'

interface Owner {
  store: Store
  hits: Hits
  /** The last drawn frame; null while a new one is requested, which shows what is under the pointer too. */
  frame(): Frame | null
  /** Level of the columns on the canvas. */
  level(): number
  /** CSS colour of what an allocation is coloured by; null for none. */
  colourOf(id: number): string | null
  /** The mark under the pointer can be clicked. */
  overMark(isOver: boolean): void
  /** Another column is under the pointer, or none. */
  changed(): void
}

export class Hover {
  readonly layer = new HoverLayer()
  readonly tooltip = new Tooltip()
  /** In pixels of the plot; null: the pointer is elsewhere. */
  at: { x: number; y: number } | null = null
  column: Column | null = null
  private hit: Hit | null = null
  private readonly frame = new FrameRequest(() => this.drawAlone())

  constructor(private readonly owner: Owner) {}

  /** Draws on the next frame what is under the pointer there, and nothing else. */
  set(at: { x: number; y: number } | null): void {
    this.at = at
    if (this.owner.frame()) this.frame.request()
  }

  /** Marks what is under the pointer in a new frame. `isHidden`: nothing, while a box is drawn. */
  draw(frame: Frame, isHidden: boolean): void {
    this.frame.cancel()
    const { hits, store, level } = this.owner
    const { at } = this
    const hit = at && !isHidden ? hits.allocationAt(frame, at.x, at.y) : null
    this.hit = hit
    this.column = hit?.column ?? null
    this.layer.draw(frame, hit, level(), hit?.id !== store.state.select)
  }

  /** To be called last, since placing it forces a layout, which then covers everything else that was written. */
  showTooltip(frame: Frame): void {
    const { at, hit, tooltip } = this
    const { hits, colourOf, overMark } = this.owner
    const { left, top } = frame.plot
    const mark = at && hits.markAt(frame, at.x, at.y)
    overMark(Boolean(mark))
    if (at && mark) tooltip.show(describeMark(frame.scene, mark), at.x + left, at.y + top, null)
    else if (at && hit) tooltip.show(describeHit(frame.scene, hit), at.x + left, at.y + top, colourOf(hit.id))
    else tooltip.hide()
  }

  private drawAlone(): void {
    const frame = this.owner.frame()
    if (!frame) return
    this.draw(frame, false)
    this.owner.changed()
    this.showTooltip(frame)
  }
}
