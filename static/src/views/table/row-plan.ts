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

export class RowPlan {
  readonly count: number
  private readonly blocks: { place: number; opened: Opened; length: number }[]

  constructor(
    readonly order: Int32Array,
    opened: readonly Opened[],
  ) {
    this.blocks = opened
      .map((entry) => ({
        place: order.indexOf(entry.row),
        opened: entry,
        length: entry.ids.length + (entry.more > 0 ? 1 : 0),
      }))
      .filter(({ place }) => place >= 0)
      .sort((a, b) => a.place - b.place)
    this.count = order.length + this.blocks.reduce((sum, { length }) => sum + length, 0)
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
    return { kind: 'row', row: this.order[place] }
  }

  /** The line of a row; -1 when there is none. */
  lineOf(row: number): number {
    const place = this.order.indexOf(row)
    if (place < 0) return -1
    return this.blocks.reduce((line, block) => (block.place < place ? line + block.length : line), place)
  }

  isOpen(row: number): boolean {
    return this.blocks.some(({ opened }) => opened.row === row)
  }
}
