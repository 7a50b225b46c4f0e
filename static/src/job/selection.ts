// The brush: a set of rows and a range of columns, and both as text for the address.

import type { JobData } from './job-data'

/** First and last column, both included. */
export type ColumnRange = readonly [first: number, last: number]

/** "0..7,12": rank numbers, runs joined. Rows that share a rank number or have none are written by their keys. */
export function writeRows(data: JobData, rows: Iterable<number>): string {
  const keys = [...rows].map((row) => data.keyOf(row))
  const numbers = keys
    .filter((key) => /^\d+$/.test(key))
    .map(Number)
    .sort((a, b) => a - b)
  const parts: string[] = []
  for (let i = 0; i < numbers.length; ) {
    let end = i
    while (end + 1 < numbers.length && numbers[end + 1] === numbers[end] + 1) end++
    parts.push(end - i >= 2 ? `${numbers[i]}..${numbers[end]}` : numbers.slice(i, end + 1).join(','))
    i = end + 1
  }
  return [...parts, ...keys.filter((key) => !/^\d+$/.test(key))].join(',')
}

/** The rows that a text names; malformed parts are ignored. Null: none. */
export function readRows(data: JobData, text: string | undefined): ReadonlySet<number> | null {
  const rows = new Set<number>()
  for (const part of (text ?? '').split(',')) {
    const range = /^(\d{1,9})\.\.(\d{1,9})$/.exec(part)
    if (range) {
      const [first, last] = [Number(range[1]), Number(range[2])]
      for (let row = 0; row < data.rows; row++) {
        if (data.rank[row] >= first && data.rank[row] <= last && !data.keyOf(row).includes('.')) rows.add(row)
      }
    } else {
      const row = data.rowOf(part)
      if (row !== null) rows.add(row)
    }
  }
  return rows.size ? rows : null
}

export function writeColumns(range: ColumnRange | null): string | null {
  return range && `${range[0]}..${range[1]}`
}

/** A range inside an axis of so many columns; null: all of it. */
export function readColumns(text: string | undefined, columns: number): ColumnRange | null {
  const match = /^(\d{1,6})\.\.(\d{1,6})$/.exec(text ?? '')
  if (!match) return null
  const [first, last] = [Number(match[1]), Math.min(columns - 1, Number(match[2]))]
  return first <= last ? [first, last] : null
}

/** The rows that a drag from one place of the order to another covers. */
export function brushedRows(order: ArrayLike<number>, from: number, to: number): number[] {
  const first = Math.max(0, Math.min(from, to))
  const last = Math.min(order.length - 1, Math.max(from, to))
  const rows: number[] = []
  for (let place = first; place <= last; place++) rows.push(order[place])
  return rows
}

/** "ranks 0 to 7, 12 and 14"; so many runs at most. */
export function rowsInWords(data: JobData, rows: readonly number[], most = 6): string {
  const text = writeRows(data, rows)
  const runs = text.split(',').map((run) => run.replace('..', '–'))
  const shown = runs.slice(0, most)
  const hidden = runs.length - shown.length
  const joined = hidden > 0 ? `${shown.join(', ')} and ${hidden} more` : lastWithAnd(shown)
  return `${rows.length === 1 ? 'rank' : 'ranks'} ${joined}`
}

function lastWithAnd(words: readonly string[]): string {
  return words.length < 2 ? words.join('') : `${words.slice(0, -1).join(', ')} and ${words[words.length - 1]}`
}
