// Which line of the list shows what: rows in their order, and under an opened one its largest allocations.

export interface Opened {
  /** The row it belongs to. */
  row: number
  ids: readonly number[]
  /** Allocations of it that are not listed. */
  more: number
}

export type Line =
  | { kind: 'row'; row: number }
  | { kind: 'child'; row: number; id: number }
  | { kind: 'more'; row: number; count: number }
  /** The last rows of the order, folded into one line. */
  | { kind: 'folded'; row: number; count: number }

export class RowPlan {
  readonly count: number
  private readonly blocks: { place: number; opened: Opened; length: number }[]

  /** Rows that have lines of their own. */
  private readonly listed: number

  /** folded: how many of the last rows share one line. */
  constructor(
    readonly order: Int32Array,
    opened: readonly Opened[],
    private readonly folded = 0,
  ) {
    const listed = order.length - folded
    this.blocks = opened
      .map((entry) => ({
        place: order.indexOf(entry.row),
        opened: entry,
        length: entry.ids.length + (entry.more > 0 ? 1 : 0),
      }))
      .filter(({ place }) => place >= 0 && place < listed)
      .sort((a, b) => a.place - b.place)
    this.listed = listed
    this.count = listed + Number(folded > 0) + this.blocks.reduce((sum, { length }) => sum + length, 0)
  }

  /** What line `index` shows. A handful of rows is opened at most: walking them is quick. */
  at(index: number): Line {
    let place = index
    for (const block of this.blocks) {
      if (place <= block.place) break
      const under = place - block.place - 1
      if (under < block.length) {
        const { row, ids, more } = block.opened
        return under < ids.length ? { kind: 'child', row, id: ids[under] } : { kind: 'more', row, count: more }
      }
      place -= block.length
    }
    const row = this.order[place]
    return place < this.listed ? { kind: 'row', row } : { kind: 'folded', row, count: this.folded }
  }

  /** The line of a row; -1 when there is none. */
  lineOf(row: number): number {
    const place = this.order.indexOf(row)
    if (place < 0 || place >= this.listed) return -1
    return this.blocks.reduce((line, block) => (block.place < place ? line + block.length : line), place)
  }

  isOpen(row: number): boolean {
    return this.blocks.some(({ opened }) => opened.row === row)
  }
}
