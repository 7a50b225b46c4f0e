// A whole stack as a list, innermost frame first: the program's own frames stand out, runs of library, C++ and runtime
// frames are folded behind their counts.

import type { Frame } from '../data/model'
import { isOwn } from '../data/own-frames'
import type { SourceLines } from '../data/source-links'
import { formatCount } from '../layout/format'
import { h } from './dom'
import { plural, shortName } from './format'
import { frameItem, type Note } from './frame-item'

/** More own frames than this in a row are folded too: recursion, and frameworks that live in the program's folder. */
const MOST_IN_A_ROW = 12
/** Frames that are laid out at once: more on demand. A recursion may be 200,000 frames deep. */
const MOST_ITEMS = 300

type ItemOf = (frame: Frame) => HTMLElement

/** `named`: the frame that names the stack, which is never folded; `isOpen`: nothing is. */
export function foldedStack(
  frames: readonly Frame[],
  named: Frame | null,
  isOpen: boolean,
  source: SourceLines | null,
  note: Note = () => null,
): HTMLElement {
  const itemOf: ItemOf = (frame) => frameItem(frame, source, note)
  if (frames.length === 0) return h('p.soft', 'No stack trace was recorded.')
  const list = h('ol.frames')
  if (isOpen) {
    appendFrames(list, frames, 0, itemOf)
    return list
  }
  const isTelling = tellingIn(frames)
  const isShown = (frame: Frame): boolean => frame === named || isTelling(frame)
  let run: Frame[] = []
  let row = 0
  const flush = (): void => {
    // Runtime frames alone are only in the count of the whole stack.
    if (run.some((frame) => !frame.noise)) list.append(foldOf(run, itemOf))
    run = []
  }
  let shown = 0
  for (const frame of frames) {
    row = isShown(frame) ? row + 1 : 0
    if (row === 0 || row > MOST_IN_A_ROW || shown >= MOST_ITEMS) {
      run.push(frame)
      continue
    }
    flush()
    shown++
    list.append(itemOf(frame))
  }
  flush()
  return list
}

/** Own frames; in a stack without any the Python ones, in one of C++ alone those that are not the runtime's. */
function tellingIn(frames: readonly Frame[]): (frame: Frame) => boolean {
  if (frames.some(isOwn)) return isOwn
  if (frames.some((frame) => frame.python && !frame.noise)) return (frame) => frame.python && !frame.noise
  if (frames.some((frame) => !frame.noise)) return (frame) => !frame.noise
  return () => true
}

function foldOf(run: readonly Frame[], itemOf: ItemOf): HTMLElement {
  const inner = h('ol.frames', { hidden: true })
  const button = h(
    'button.quiet.fold',
    { 'aria-expanded': 'false', title: 'Show these frames (N shows all)' },
    h('span.fold-count', countOf(run)),
    h('span.clip', nameOf(run)),
  )
  button.addEventListener('click', () => {
    if (!inner.firstChild) appendFrames(inner, run, 0, itemOf)
    inner.hidden = !inner.hidden
    button.setAttribute('aria-expanded', String(!inner.hidden))
  })
  return h('li.folded', button, inner)
}

/** MOST_ITEMS frames from `from` on, and a button for those behind them. */
function appendFrames(list: HTMLElement, frames: readonly Frame[], from: number, itemOf: ItemOf): void {
  const end = Math.min(frames.length, from + MOST_ITEMS)
  for (let at = from; at < end; at++) list.append(itemOf(frames[at]))
  if (end === frames.length) return
  const next = Math.min(MOST_ITEMS, frames.length - end)
  const more = h('li.frame')
  const show = (): void => {
    more.remove()
    appendFrames(list, frames, end, itemOf)
  }
  const title = `${formatCount(frames.length - end)} frames are not shown yet`
  more.append(h('button.link', { title, onclick: show }, `${formatCount(next)} more frames`))
  list.append(more)
}

/** "4 library, 28 C++ frames" */
export function countOf(run: readonly Frame[]): string {
  const count = { own: 0, library: 0, 'C++': 0, runtime: 0 }
  for (const frame of run) count[kindOf(frame)]++
  const parts = Object.entries(count).filter(([, frames]) => frames > 0)
  const [last, frames] = parts.pop()!
  return [...parts.map(([kind, some]) => `${some} ${kind}`), plural(frames, `${last} frame`)].join(', ')
}

function kindOf(frame: Frame): 'own' | 'library' | 'C++' | 'runtime' {
  if (frame.noise) return 'runtime'
  if (!frame.python) return 'C++'
  return frame.library ? 'library' : 'own'
}

/** The most informative frame of a run, unless all of it is the runtime's. */
function nameOf(run: readonly Frame[]): string {
  const frame = run.find((one) => one.python && !one.noise) ?? run.find((one) => !one.noise)
  if (!frame) return ''
  const place = frame.filename && frame.filename !== '??' && frame.line > 0
  return `${shortName(frame.name)}${place ? ` ${frame.file}:${frame.line}` : ''}`
}
