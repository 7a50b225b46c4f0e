// Moving from cell to cell by keys.

import { childrenOf, type FlameLayout } from '../../flame/layout'

/** The cell that an arrow key leads to: down to the first child, up to the parent, sideways among neighbours; null for other keys. */
export function moved(layout: FlameLayout, at: number, key: string): number | null {
  const { cells, rows } = layout
  const here = Math.max(0, Math.min(cells.length - 1, at))
  const { row, parent } = cells[here]
  switch (key) {
    case 'ArrowDown': {
      const [first, end] = childrenOf(layout, here)
      return end > first ? first : here
    }
    case 'ArrowUp':
      return parent < 0 ? here : parent
    // Past the last sibling the next cell of the row follows: cousins.
    case 'ArrowLeft':
      return Math.max(rows[row], here - 1)
    case 'ArrowRight':
      return Math.min(rows[row + 1] - 1, here + 1)
    case 'Home':
      return 0
    default:
      return null
  }
}

/** Where a cell of one layout is in another: the same kind over the same rows and depth; 0 where there is none. */
export function sameCell(before: FlameLayout, at: number, after: FlameLayout): number {
  const cell = before.cells[at]
  if (!cell) return 0
  return Math.max(
    0,
    after.cells.findIndex(
      (other) =>
        other.kind === cell.kind && other.depth === cell.depth && other.low === cell.low && other.high === cell.high,
    ),
  )
}
