// The columns of a table that fit its width, and the template that head, rows and foot share.

/** The room that a column needs. */
interface Wide {
  width: number
  /** The room it should have before a column of level 3 has any. */
  wanted?: number
  grow: number
  /** Pixels to which it grows, if not as far as all others. */
  most?: number
  level: number
}

/** Columns that fit: the least important are dropped first, of these the last. Those of level 1 stay. */
export function fitting<C extends Wide>(columns: readonly C[], width: number): C[] {
  const shown = [...columns]
  const extra = columns.reduce((sum, { width, wanted = width }) => sum + wanted - width, 0)
  for (let room = width - widthOf(shown) - extra, level = 3; level > 1 && room < 0; ) {
    const last = shown.map((column) => column.level === level).lastIndexOf(true)
    if (last >= 0) room += shown.splice(last, 1)[0].width
    else if (level-- === 3) room += extra
  }
  return shown
}

export function widthOf(columns: readonly Wide[]): number {
  return columns.reduce((sum, { width }) => sum + width, 0)
}

/** `most`: pixels to which a column grows; behind them the rest of a wide window stays free. */
export function templateOf(columns: readonly Wide[], most = Infinity): string {
  const widest = ({ grow, most: own = most }: Wide): string => (own < Infinity ? `${own}px` : `${grow}fr`)
  return columns
    .map((column) => (column.grow > 0 ? `minmax(${column.width}px, ${widest(column)})` : `${column.width}px`))
    .join(' ')
}
