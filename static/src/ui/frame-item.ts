// A frame of a stack as an item of a list, and a stack as text, innermost frame first.

import type { Frame } from '../data/model'
import type { SourceLines } from '../data/source-links'
import { h } from './dom'

/** What a view says of a frame beside its place. */
export type Note = (frame: Frame) => HTMLElement | null

/** A frame with its place, a note of the view's and, where the report holds them, the lines around it. */
export function frameItem(frame: Frame, source: SourceLines | null, note: Note): HTMLElement {
  const place = placeOf(frame, frame.filename)
  const short = placeOf(frame, frame.file)
  const item = h(
    'li',
    { class: frame.noise ? 'frame noise' : 'frame' },
    h('span.name', { title: frame.name }, frame.name || '(no name)'),
    frame.address
      ? h('a.place', { title: place, href: frame.address, rel: 'noreferrer', target: targetOf(frame.address) }, short)
      : h('span.place', { title: place }, short),
  )
  for (const [key, value] of Object.entries(frame.fx ?? {})) {
    if (value !== null && value !== '') item.append(h('span.fx', `${key}: ${String(value)}`))
  }
  for (const more of [note(frame), source && quoteOf(source, frame)]) if (more) item.append(more)
  return item
}

/** Lines of source around a frame's, its own marked; null where the report does not hold them. */
function quoteOf(source: SourceLines, { filename, line }: Frame): HTMLElement | null {
  const quote = source.at(filename, line)
  if (!quote) return null
  const list = h('pre.source', { tabindex: 0, 'aria-label': `Source around line ${line}` })
  quote.lines.forEach((text, i) => {
    const number = quote.first + i
    list.append(
      h(
        'span',
        { class: number === line ? 'line here' : 'line', 'aria-current': number === line && 'true' },
        h('span.number', String(number)),
        text || ' ',
        '\n',
      ),
    )
  })
  return list
}

/** "file:line"; native frames often have neither, which is recorded as "??" and 0. */
function placeOf(frame: Frame, file: string): string {
  if (!file || file === '??') return ''
  return frame.line > 0 ? `${file}:${frame.line}` : file
}

/** A page opens beside the report; an editor's scheme would leave an empty tab behind. */
function targetOf(address: string): string | false {
  return /^https?:/.test(address) && '_blank'
}

/** One frame per line, for a ticket. */
export function stackText(frames: readonly Frame[], showNoise: boolean): string {
  return frames
    .filter((frame) => showNoise || !frame.noise)
    .map((frame) => `${frame.name} (${placeOf(frame, frame.filename) || 'unknown'})`)
    .join('\n')
}
