// "function  file:line  ←  caller …" as an element that keeps what tells names apart where there is little room: the callers
// and the folder of the file go first, then the end of the function; the line stays.

import { h, setText } from './dom'
import { shortName } from './format'

const PARTS = ['function', 'place', 'callers'] as const
/** Of a file's letters; digits are wider than most. */
const LETTER_CH = 0.9

export function frameLabel(text: string): HTMLElement {
  const parts = PARTS.map((name) => h('span', { class: `frame-${name}` }, h('bdi', { dir: 'ltr' })))
  const label = h('span', { class: 'frame-label' }, ...parts)
  writeFrameLabel(label, text)
  return label
}

/** Changes what a label says. Its text is `text`, but for C++ functions, which have their short names. */
export function writeFrameLabel(label: HTMLElement, text: string): void {
  const parts = partsOf(text)
  parts.forEach((words, i) => {
    const part = label.children[i] as HTMLElement
    setText(part.firstElementChild!, words)
    // An empty part has no gap beside it.
    part.hidden = words === ''
  })
  const [, place] = parts
  const letters = place.length - place.lastIndexOf('/')
  ;(label.children[1] as HTMLElement).style.minWidth = `min(${(LETTER_CH * letters).toFixed(1)}ch, 60%)`
}

/** The texts of PARTS, which together are the text. */
function partsOf(text: string): string[] {
  const end = text.indexOf('  ←  ')
  const first = end < 0 ? text : text.slice(0, end)
  const callers = end < 0 ? '' : text.slice(end)
  const gap = first.indexOf('  ')
  const isPlace = gap < 0 && /[\w\]>]:\d+$/.test(first)
  const words = gap >= 0 ? `${shortName(first.slice(0, gap))}  ` : isPlace ? '' : shortName(first)
  return [words, gap >= 0 ? first.slice(gap + 2) : isPlace ? first : '', callers]
}
