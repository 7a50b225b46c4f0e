// Hit testing on the plot: a mark, the shown column, an allocation in it.

import { pick } from '../../layout/pick'
import { type Column, columnAt } from '../shared/column'
import type { Hit } from '../shared/describe'
import { failedRequestAt } from './failed-requests'
import { type Frame, pixelToX, pixelToY } from './frame'
import { type Mark, markAt } from './marks'
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
    return columnAt(frame.scene, frame.axis, level < 0 ? frame.scale.grid.depth : level, axisX)
  }

  /** The allocation at a place, from the exact columns; null outside the plot and before they have arrived. */
  allocationAt(frame: Frame, x: number, y: number): Hit | null {
    const { plot, scene } = frame
    if (!scene.data || x < 0 || x > plot.width || y < 0 || y > plot.height) return null
    const column = this.columnAt(frame, x)
    return column && { column, id: pick(scene.drawn ?? scene.data, column.s, pixelToY(frame, y)) }
  }
}
