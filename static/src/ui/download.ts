// Files made in the page. A link to a blob works from file:// and needs no network.

import { h } from './dom'

/** How long the page may work on a file before it handles input, in ms. */
const SLICE_MS = 30
/** Rows in one piece of a file. */
const PIECE = 2000

/**
 * Passes a file to the browser. Returns a message no stronger than what is known: a sandboxed frame may be refused silently, and
 * a page never learns whether a file was written.
 */
export function download(name: string, type: string, parts: BlobPart[]): string {
  const url = URL.createObjectURL(new Blob(parts, { type }))
  const link = h('a.offscreen', { href: url, download: name })
  document.body.append(link)
  link.click()
  link.remove()
  // The browser reads the blob after the click; a minute is more than it needs to begin.
  setTimeout(() => URL.revokeObjectURL(url), 60_000)
  return isSandboxed()
    ? `This viewer may refuse downloads. If ${name} does not arrive, open the report itself in a browser.`
    : `Saving as ${name}`
}

/** A frame without an origin of its own, as CI servers and mail programs show reports in. */
export function isSandboxed(): boolean {
  return window.parent !== window && window.origin === 'null'
}

/** Text of `count` rows in pieces, made a few ms at a time. */
export async function inPieces(count: number, textOf: (row: number) => string): Promise<string[]> {
  const pieces: string[] = []
  let since = performance.now()
  for (let from = 0; from < count; from += PIECE) {
    let piece = ''
    for (let row = from, to = Math.min(count, from + PIECE); row < to; row++) piece += textOf(row)
    pieces.push(piece)
    if (performance.now() - since > SLICE_MS) {
      await new Promise((resolve) => setTimeout(resolve))
      since = performance.now()
    }
  }
  return pieces
}

/** One line of CSV as RFC 4180 has it; null is an empty field. */
export function csvLine(fields: readonly (string | number | null)[]): string {
  return fields.map(csvField).join(',') + '\r\n'
}

/** Spreadsheets run a cell that begins like a formula. OWASP's remedy is an apostrophe, which they take for "this is text". */
const FORMULA = /^[=+\-@\t\r\n＝＋－＠]/

function csvField(value: string | number | null): string {
  if (value === null) return ''
  const text = typeof value === 'string' && FORMULA.test(value) ? `'${value}` : String(value)
  return /[",\r\n]|^\s|\s$/.test(text) ? `"${text.replaceAll('"', '""')}"` : text
}

/** Words for a file's name: "Run 7: cuda:0" → "run-7-cuda-0". */
export function fileName(...words: string[]): string {
  return (
    words
      .join(' ')
      .toLowerCase()
      .replace(/[^\p{L}\p{N}]+/gu, '-')
      .replace(/^-+|-+$/g, '')
      .slice(0, 80) || 'snapshot'
  )
}
