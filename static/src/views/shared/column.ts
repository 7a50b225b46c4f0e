// The column of a level at a place: the positions in it, and the one of them that it shows.

import type { Axis } from '../../data/model'
import { columnWidth } from '../../layout/grid'
import type { Scene } from './scene'

export interface Column {
  /** Extent in axis units. */
  x0: number
  x1: number
  /** Positions [from, to) in it. */
  from: number
  to: number
  /** The one it shows: the first at which allocated is greatest. */
  s: number
}

/** Null before the columns of the device have arrived, and outside the trace. */
export function columnAt(scene: Scene, axis: Axis, level: number, x: number): Column | null {
  const grid = scene.scale(axis)?.grid
  if (!grid || !scene.allocatedMax) return null
  const width = columnWidth(grid, Math.max(0, level))
  const index = Math.floor((x - grid.origin) / width)
  if (index < 0 || index * width >= grid.extent) return null
  const x0 = grid.origin + index * width
  const [from, to] = scene.positions(grid.axis, x0, x0 + width)
  return { x0, x1: x0 + width, from, to, s: scene.allocatedMax.argmax(from, to) }
}

/** Left edge and shown position of every column of a level between two places. */
export function columnsBetween(
  scene: Scene,
  axis: Axis,
  level: number,
  x0: number,
  x1: number,
): { x0: number; width: number; s: Int32Array } | null {
  const grid = scene.scale(axis)?.grid
  if (!grid || !scene.allocatedMax) return null
  const width = columnWidth(grid, level)
  const first = Math.max(0, Math.floor((x0 - grid.origin) / width))
  const last = Math.min(Math.ceil(grid.extent / width), Math.ceil((x1 - grid.origin) / width))
  const s = new Int32Array(Math.max(0, last - first))
  for (let i = 0; i < s.length; i++) {
    const left = grid.origin + (first + i) * width
    const [from, to] = scene.positions(grid.axis, left, left + width)
    s[i] = scene.allocatedMax.argmax(from, to)
  }
  return { x0: grid.origin + first * width, width, s }
}
