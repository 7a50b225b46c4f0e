// Web or editor addresses of the lines that stack traces name, by rules from Python (snapreport/report/source_links.py)
// applied the same way there.

import type { DecodedBlob } from './columns'

interface SourceRule {
  /** The folder that file names begin with; "" for every file. */
  root: string
  /** The address with {path} and {line} to be filled in. */
  url: string
  /** With root "", absolute file names too. */
  absolute: boolean
}

export type LineAddress = (filename: string, line: number, isOwn: boolean) => string | null

/** Schemes that would run a script when a link is followed. Python allows far fewer schemes; this is the last check. */
const RUNS_SCRIPT = /^[\s\0]*(javascript|data|vbscript|blob):/i
const NOT_OWN = new Set(['..', '.', '', 'site-packages', 'dist-packages'])

/** A function from a frame's place to the address of its line; null where no rule names the file. */
export function lineAddress(rules: readonly SourceRule[]): LineAddress {
  // Longest first, as a working tree may be inside another.
  const known = rules.filter(({ url }) => !RUNS_SCRIPT.test(url)).sort((a, b) => b.root.length - a.root.length)
  return (filename, line, isOwn) => {
    const file = filename.replace(/\\/g, '/')
    const rule = known.find((each) => fits(each, file, isOwn))
    if (!rule || line <= 0) return null
    const parts = (rule.root ? file.slice(rule.root.length + 1) : file.replace(/^\//, '')).split('/')
    const name = parts[parts.length - 1]
    if (parts.some((part) => NOT_OWN.has(part)) || name.startsWith('<') || name === '??') return null
    try {
      const path = parts.map(quoted).join('/')
      return rule.url.replace(/\{(path|line)\}/g, (_, key) => (key === 'path' ? path : String(line)))
    } catch {
      return null // a lone surrogate: no URL can hold it
    }
  }
}

function fits({ root, absolute }: SourceRule, file: string, isOwn: boolean): boolean {
  if (root) return file.startsWith(`${root}/`)
  return isOwn && (absolute || !/^(\/|[A-Za-z]:\/)/.test(file))
}

/** Percent-encoded as Python's quote() does; a colon stays, as a drive's ("C:") has to. */
function quoted(part: string): string {
  return encodeURIComponent(part)
    .replace(/[!'()*]/g, (char) => `%${char.charCodeAt(0).toString(16).toUpperCase()}`)
    .replace(/%3A/g, ':')
}

interface Quote {
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
