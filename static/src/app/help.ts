// The list of keys, as a dialog.

import { fill, h } from '../ui/dom'
import type { ViewName } from '../ui/state'
import { helpFor, type KeyHelp } from './keyboard'

export class HelpDialog {
  readonly element: HTMLDialogElement
  private readonly columns = h('div', { class: 'help-columns' })

  constructor() {
    this.element = h(
      'dialog',
      { class: 'help', 'aria-label': 'Keys and mouse' },
      h(
        'header',
        {},
        h('h2', {}, 'Keys and mouse'),
        h('button', { type: 'button', class: 'close', 'aria-label': 'Close help', onclick: () => this.close() }, '✕'),
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
  for (const [key, text] of keys) list.append(h('dt', {}, h('kbd', {}, key)), h('dd', {}, text))
  return h('section', {}, h('h3', {}, title), list)
}
