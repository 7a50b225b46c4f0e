// The path from the whole tree to the focused frame, as buttons that lead back.

import type { Frame } from '../../data/model'
import type { FlameTree, Node } from '../../flame/tree'
import { fill, h } from '../../ui/dom'
import { plural } from '../../ui/format'

/** Callers shown by name; those further out are counted. */
const SHOWN = 4

/** goTo: depth 0 is the whole tree. */
export function renderCrumbs(
  element: HTMLElement,
  tree: FlameTree,
  focus: { node: Node; stack: number } | null,
  frame: (id: number) => Frame,
  goTo: (depth: number) => void,
  after: HTMLElement,
): void {
  element.hidden = !focus
  if (!focus) return
  const { paths } = tree
  const row = paths.rowOf[focus.stack]
  const { depth } = focus.node
  const name = (at: number): string => frame(paths.frameOfKey[paths.key(row, at - 1)]).name || '?'
  const list = h(
    'ol',
    h('li', h('button.link.clip', { title: 'Show the whole tree (Escape)', onclick: () => goTo(0) }, 'All')),
  )
  const first = Math.max(1, depth - SHOWN)
  if (first > 1) list.append(h('li.soft', `… ${plural(first - 1, 'frame')} …`))
  for (let at = first; at < depth; at++) {
    list.append(h('li', h('button.link.clip', { onclick: () => goTo(at) }, name(at))))
  }
  list.append(h('li', { 'aria-current': 'true' }, name(depth)))
  fill(element, list, after)
}
