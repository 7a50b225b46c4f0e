// Lines of source that the report includes (--source): frames quote them.

import type { DecodedBlob } from './columns'

export interface Quote {
  /** Number of the first line. */
  first: number
  lines: readonly string[]
}

/** So many lines are shown on either side; the file may hold more where ranges were merged. */
const AROUND = 3

export class SourceLines {
  constructor(private readonly files: ReadonlyMap<string, readonly Quote[]>) {}

  /** The lines around a frame's own; null where the report does not include them. */
  at(filename: string, line: number): Quote | null {
    const stretch = this.files.get(filename)?.find(({ first, lines }) => first <= line && line < first + lines.length)
    if (!stretch) return null
    const from = Math.max(stretch.first, line - AROUND)
    return { first: from, lines: stretch.lines.slice(from - stretch.first, line + AROUND + 1 - stretch.first) }
  }
}

export function readSource(blob: DecodedBlob): SourceLines {
  const files = blob.json<Record<string, [number, string[]][]>>('files')
  // A map: file names come from the snapshot, "__proto__" among them.
  return new SourceLines(
    new Map(
      Object.entries(files).map(([name, stretches]) => [name, stretches.map(([first, lines]) => ({ first, lines }))]),
    ),
  )
}
