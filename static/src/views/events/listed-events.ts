// Which event each line of the list shows.

import { upperBound } from '../../layout/binary-search'

export class ListedEvents {
  /** `rows`: event of each line, ascending; null: every event in turn. `n`: events of the trace. */
  constructor(
    readonly rows: Int32Array | null,
    private readonly n: number,
  ) {}

  get count(): number {
    return this.rows ? this.rows.length : this.n
  }

  eventAt(line: number): number {
    return this.rows ? this.rows[line] : line
  }

  /** The line of an event, or of the next one that is listed. */
  lineOf(event: number): number {
    return this.rows ? Math.min(this.rows.length - 1, upperBound(this.rows, event - 1)) : event
  }
}
