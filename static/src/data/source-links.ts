// Web or editor addresses of the lines that stack traces name, by rules from Python (snapreport/report/source_links.py)
// applied the same way there.

export interface SourceRule {
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
