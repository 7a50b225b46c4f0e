// The list of keys, as a dialog.

import { h } from '../ui/dom'
import { KEY_HELP, type KeyHelp, POINTER_HELP } from './keyboard'

export class HelpDialog {
  readonly element: HTMLDialogElement

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
      h('div', { class: 'help-columns' }, listOf(POINTER_HELP), listOf(KEY_HELP)),
    )
    this.element.addEventListener('click', (event) => {
      if (event.target === this.element) this.close() // the backdrop
    })
  }

  toggle(): void {
    if (!this.close()) this.element.showModal()
  }

  /** False when it was not open. */
  close(): boolean {
    const { open } = this.element
    if (open) this.element.close()
    return open
  }
}

function listOf(entries: readonly KeyHelp[]): HTMLElement {
  const list = h('dl')
  for (const { keys, text } of entries) list.append(h('dt', {}, h('kbd', {}, keys)), h('dd', {}, text))
  return list
}
