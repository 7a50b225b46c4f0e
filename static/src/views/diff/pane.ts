// The stack of a row. Where the same code stands on other lines or in another file before, both places are shown.

import type { Frame } from '../../data/model'
import { h } from '../../ui/dom'
import { shortPath } from '../../ui/format'
import { stackList } from '../../ui/stack-list'

/** before: frames of the same code in the earlier snapshot; null where it is not there. */
export function bothStacks(
  after: readonly Frame[],
  before: readonly Frame[] | null,
  showNoise: boolean,
  onShowNoise: () => void,
): HTMLElement {
  const list = stackList(after, showNoise, onShowNoise)
  if (!before) return list
  const items = [...list.querySelectorAll('li.frame')]
  const shown = after.filter((frame) => showNoise || !frame.noise)
  // Same code: without runtime noise, both have the same functions in the same order.
  const others = before.filter((frame) => !frame.noise)
  let at = 0
  shown.forEach((frame, i) => {
    if (frame.noise) return
    const other = others[at++]
    if (!other || (other.line === frame.line && other.filename === frame.filename)) return
    const place = `${other.filename}:${other.line}`
    items[i].append(
      h('span', { class: 'diff-was', title: place }, `before: ${shortPath(other.filename)}:${other.line}`),
    )
  })
  return list
}

/** Whether any frame but runtime noise stands elsewhere. */
export function hasMoved(after: readonly Frame[], before: readonly Frame[]): boolean {
  const [ours, theirs] = [after, before].map((frames) => frames.filter((frame) => !frame.noise))
  return ours.some(
    (frame, i) => theirs[i] !== undefined && (theirs[i].line !== frame.line || theirs[i].filename !== frame.filename),
  )
}
