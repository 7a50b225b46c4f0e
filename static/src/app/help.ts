// The help: what keys and the pointer do, by view. What a key does is in keyboard.ts.

import { fill, h } from '../ui/dom'
import type { ViewName } from '../ui/state'

/** What keys and the pointer do, by the views that they belong to; none: all. */
export interface KeyHelp {
  title: string
  views: readonly ViewName[]
  keys: readonly (readonly [keys: string, text: string])[]
}

const HELP: readonly KeyHelp[] = [
  {
    title: 'Timeline',
    views: ['timeline'],
    keys: [
      ['A D, ← →', 'Move in time'],
      ['↑ ↓, Shift + W S', 'Move in bytes'],
      ['W S, + −', 'Zoom in time'],
      ['Shift + ↑ ↓', 'Zoom in bytes'],
      ['0, Home', 'Show everything'],
      ['P', 'Go to the peak'],
      ['O', 'Go to the next out-of-memory error'],
      ['[ ]', 'Select the allocation before or after'],
      ['M, Shift + click', 'Set the moment that other views show; M again: the peak'],
      ['T', 'Event or time axis'],
      ['B', 'Box zoom by plain drag'],
      ['R, Shift + R', 'Ruler: drag to measure; measure the window'],
      ['G, Shift + drag', 'Select the range on screen, or a part of it: what is allocated and freed there'],
      [', .', 'Zoom to the step or span before or after'],
    ],
  },
  {
    title: 'Segments',
    views: ['segments'],
    keys: [
      ['← → (Shift), P O E', 'Step by events; peak, out of memory, end'],
      ['↑ ↓ (Shift), Z, V', 'Blocks (segments); zoom into one; over time'],
    ],
  },
  {
    title: 'Reserved',
    views: ['reserved'],
    keys: [
      ['← → (Shift), P O E', 'Step by events; peak, out of memory, end'],
      ['F G, Enter', 'Worst fragmentation, worst split; segments at the moment'],
    ],
  },
  {
    title: 'Flame',
    views: ['flame'],
    keys: [
      ['↑ ↓ ← →, Enter', 'Parent, child, neighbours; focus (Escape: all)'],
      ['Right click, menu key', 'Callers and callees; searches'],
    ],
  },
  {
    title: 'Tables',
    views: ['table', 'xray', 'diff'],
    keys: [['↑ ↓, Enter, Space', 'Move; select or find; list the largest of a group']],
  },
  {
    title: 'Events',
    views: ['events'],
    keys: [['Enter, Space, X, G', 'Set the moment; select; other end; go to an event or time']],
  },
  {
    title: 'Job',
    views: ['job'],
    keys: [['← ↑ → ↓, Enter, + −, Z', 'Move the cell (Shift: select); pick its rank; zoom; zoom to the selection']],
  },
  {
    title: 'Mouse',
    views: ['timeline', 'segments', 'reserved'],
    keys: [
      ['Drag', 'Move'],
      ['Wheel', 'Zoom in time at the pointer'],
      ['Shift + wheel', 'Zoom in bytes'],
      ['Ctrl or Alt + drag', 'Zoom to a box'],
      ['Double click', 'Show everything'],
      ['Click', 'Pin an allocation'],
      ['Right click', 'Search for what is there, or leave it out'],
    ],
  },
  {
    title: 'All views',
    views: [],
    keys: [
      ['/', 'Search'],
      ['1 … 7', 'Views in the order of their tabs'],
      ['N', 'Show runtime frames'],
      ['C', 'Colour by the next property'],
      ['L', 'Split: open or close the second pane; keys go to the pane in focus'],
      ['K', 'Bookmarks'],
      ['← →, Escape', 'In the story: the step before, the next; close it'],
      ['Escape', 'Cancel a box, clear the selection'],
      ['?', 'This help'],
    ],
  },
]

/** Groups of the view first, then those of all views, then the others, of views that the report has. */
export function helpFor(view: ViewName, views: readonly ViewName[]): KeyHelp[] {
  const rank = (group: KeyHelp): number => (group.views.includes(view) ? 0 : group.views.length === 0 ? 1 : 2)
  return HELP.filter((group) => rank(group) === 1 || group.views.some((one) => views.includes(one))).sort(
    (a, b) => rank(a) - rank(b),
  )
}

export class HelpDialog {
  readonly element: HTMLDialogElement
  private readonly columns = h('div.help-columns')

  constructor() {
    this.element = h(
      'dialog.help.floating',
      { 'aria-label': 'Keys and mouse' },
      h(
        'header.row',
        h('h2', 'Keys and mouse'),
        h('button.close', { 'aria-label': 'Close help', onclick: () => this.close() }, '✕'),
      ),
      this.columns,
    )
    this.element.addEventListener('click', (event) => {
      if (event.target === this.element) this.close() // the backdrop
    })
  }

  /** Opens with the keys of the view on screen first. */
  toggle(view: ViewName, views: readonly ViewName[]): void {
    if (this.close()) return
    fill(this.columns, ...helpFor(view, views).map(groupOf))
    this.element.showModal()
  }

  /** False when it was not open. */
  close(): boolean {
    const { open } = this.element
    if (open) this.element.close()
    return open
  }
}

function groupOf({ title, keys }: KeyHelp): HTMLElement {
  const list = h('dl')
  for (const [key, text] of keys) list.append(h('dt', h('kbd', key)), h('dd', text))
  return h('section', h('h3', title), list)
}
