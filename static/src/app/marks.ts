// Bookmarks as text: a list of names and the addresses they stand for, kept in the address itself as one option.

import type { State } from '../ui/state'

export const MARKS = 'marks.list'
const MOST = 50
const LONGEST_NAME = 80

export interface Mark {
  name: string
  /** "#view=…", as the address writes it; "" for the report as it opens. */
  hash: string
}

/** The marks in the option; malformed ones are ignored. */
export function readMarks(text: string | undefined): Mark[] {
  let rows: unknown
  try {
    rows = JSON.parse(text ?? '[]')
  } catch {
    return []
  }
  if (!Array.isArray(rows)) return []
  return rows
    .filter(
      (row): row is [string, string] =>
        Array.isArray(row) &&
        row.length === 2 &&
        row.every((part) => typeof part === 'string') &&
        /^(#|$)/.test(row[1]),
    )
    .slice(0, MOST)
    .map(([name, hash]) => ({ name: name.slice(0, LONGEST_NAME), hash }))
}

/** A place of this report with the bookmarks and the theme of `now`, which stay wherever the reader goes. */
export function keeping(place: State, { theme, options }: State): State {
  const { [MARKS]: _, ...others } = place.options
  return { ...place, theme, options: options[MARKS] ? { ...others, [MARKS]: options[MARKS] } : others }
}

/** Null for none: the address stays clean. */
export function writeMarks(marks: readonly Mark[]): string | null {
  return marks.length
    ? JSON.stringify(marks.slice(0, MOST).map(({ name, hash }) => [name.slice(0, LONGEST_NAME), hash]))
    : null
}
