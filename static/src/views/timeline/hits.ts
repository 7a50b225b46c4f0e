// Hit testing on the plot: a mark, the shown column, an allocation in it.

import { pick } from '../../layout/pick'
import type { Store } from '../../ui/state'
import { type Column, columnAt } from '../shared/column'
import type { Hit } from '../shared/describe'
import { failedRequestAt, type Mark, markAt } from './marks'
import { type Frame, pixelToX, pixelToY } from './frame'
import type { Navigator } from './navigator'
import type { Overlay } from './overlay'
import type { Picture } from './picture'

/** Places are pixels of the plot of `frame`. */
export class Hits {
  constructor(
    private readonly picture: Picture,
    private readonly overlay: Overlay,
  ) {}

  /** The mark whose arrow is at a place, or the failure whose hatched block is. */
  markAt(frame: Frame, x: number, y: number): Mark | null {
    const failed = failedRequestAt(this.overlay.failed, x, y)
    return failed
      ? (frame.scene.marks.find(({ kind, event }) => kind === 'oom' && event === failed.event) ?? null)
      : markAt(frame, x, y)
  }

  /** The shown column at a place; null before the columns of the device have arrived, and outside the trace. */
  columnAt(frame: Frame, x: number): Column | null {
    if (!frame.scene.data) return null
    const axisX = pixelToX(frame, x)
    const level = this.picture.levelAt(axisX)
    return columnAt(frame.scene, frame.scale.axis, level < 0 ? frame.scale.grid.depth : level, axisX)
  }

  /** The allocation at a place, from the exact columns; null outside the plot and before they have arrived. */
  allocationAt(frame: Frame, x: number, y: number): Hit | null {
    const { plot, scene } = frame
    if (!scene.data || x < 0 || x > plot.width || y < 0 || y > plot.height) return null
    const column = this.columnAt(frame, x)
    return column && { column, id: pick(scene.drawn ?? scene.data, column.s, pixelToY(frame, y)) }
  }
}

export class Clicks {
  constructor(
    private readonly store: Store,
    private readonly navigator: Navigator,
    private readonly hits: Hits,
  ) {}

  /** A click at a place in pixels of the plot; with shift it sets the moment. */
  click(frame: Frame, x: number, y: number, shift: boolean): void {
    const { store, hits } = this
    if (shift && y >= 0) return this.setMoment(frame, x)
    const mark = hits.markAt(frame, x, y)
    if (mark?.kind === 'oom') return store.set({ oom: mark.event, at: mark.event })
    if (mark) return this.navigator.centreOn(mark.event)
    const hit = hits.allocationAt(frame, x, y)
    if (!hit) return
    if (hit.id >= 0) store.set({ select: hit.id })
    else store.close()
  }

  /** Sets the moment to that of the column at a place; where it is that already, back to the peak. */
  setMoment(frame: Frame, x: number): void {
    const column = this.hits.columnAt(frame, Math.max(0, Math.min(frame.plot.width, x)))
    if (!column || frame.scene.info.events === 0) return
    const event = column.s - 1
    this.store.set({ at: event === this.store.state.at ? null : event })
  }
}
