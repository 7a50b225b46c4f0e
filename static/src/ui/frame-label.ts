// "function  file:line  ←  caller …" as an element that keeps what tells names apart where there is little room: the callers
// and the folder of the file go first, then the end of the function; the line stays.

import { h, setText } from './dom'
import { shortName } from './format'

const PARTS = ['function', 'place', 'callers'] as const
/** Of a file's letters; digits are wider than most. */
const LETTER_CH = 0.9

export function frameLabel(text: string): HTMLElement {
  const parts = PARTS.map((name) => h('span', { class: `frame-${name}` }, h('bdi', { dir: 'ltr' })))
  const [name, place, callers] = parts
  const label = h('span.frame-label', h('span.frame-top', name, place), callers)
  writeFrameLabel(label, text)
  return label
}

/** Changes what a label says: `before` and `text`, in which the top C++ function has its short name. */
export function writeFrameLabel(label: HTMLElement, text: string, before = ''): void {
  const parts = partsOf(text)
  parts[0] = before + parts[0]
  const [top, callers] = label.children
  const elements = [...top.children, callers] as HTMLElement[]
  parts.forEach((words, i) => {
    const part = elements[i]
    setText(part.firstElementChild!, words)
    // An empty part has no gap beside it.
    part.hidden = words === ''
  })
  const [, place] = parts
  const folder = place.lastIndexOf('/') + 1
  // A file without a folder has nothing to lose before the function.
  top.classList.toggle('plain', folder === 0)
  elements[1].style.minWidth = folder > 0 ? `min(${(LETTER_CH * (place.length - folder + 1)).toFixed(1)}ch, 60%)` : ''
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
