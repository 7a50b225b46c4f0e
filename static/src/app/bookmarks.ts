// Bookmarks: the view under a name, in a small popover. They live in the address, so a copied link carries them.

import { fill, h } from '../ui/dom'
import { Popup } from '../ui/popup'
import type { State, Store } from '../ui/state'
import { HAS_LINKS, keeping, MARKS, type Mark, readHash, readMarks, writeHash, writeMarks } from './hash'

export class Bookmarks {
  /** The button and, under it, the popover. */
  readonly element: HTMLElement
  private readonly button: HTMLButtonElement
  private readonly popover = h('div.popover.floating.marks', {
    role: 'dialog',
    'aria-label': 'Bookmarks',
    hidden: true,
  })
  private readonly list = h('ul.mark-list')
  private readonly name = h('input', { type: 'text', maxlength: 80, 'aria-label': 'Name of the new bookmark' })
  private readonly popup: Popup
  private shown = ''
  /** Index of the mark that is being renamed. */
  private renaming = -1

  /** start: the state of a report that was just opened. suggest: a name for what is on screen. */
  constructor(
    private readonly store: Store,
    private readonly start: State,
    private readonly devices: number,
    private readonly suggest: () => string,
  ) {
    this.button = h('button', { 'aria-haspopup': 'dialog', title: 'Bookmarks of views (K)' }, 'Bookmarks')
    const form = h('form.row.fill.mark-form', this.name, h('button', { type: 'submit' }, 'Save view'))
    form.addEventListener('submit', (event) => {
      event.preventDefault()
      this.add(this.name.value.trim() || this.suggest())
    })
    fill(this.popover, form, this.list)
    this.element = h('div.popover-anchor', this.button, this.popover)
    this.popup = new Popup(this.element, this.button, (isOpen) => this.show(isOpen))
    store.subscribe(() => this.render())
    this.render()
  }

  toggle(): void {
    this.popup.toggle()
  }

  private show(isOpen: boolean): void {
    this.popover.hidden = !isOpen
    this.rename(-1)
    if (!isOpen) return
    this.name.value = ''
    this.name.placeholder = this.suggest()
    this.keepInWindow()
    this.name.focus()
  }

  /** The popover opens to the left where it would leave the window. */
  private keepInWindow(): void {
    this.popover.style.left = '0px'
    const over = this.popover.getBoundingClientRect().right - (document.documentElement.clientWidth - 8)
    if (over > 0) this.popover.style.left = `${-over}px`
  }

  private get marks(): Mark[] {
    return readMarks(this.store.state.options[MARKS])
  }

  private write(marks: readonly Mark[]): void {
    this.renaming = -1
    this.store.setOption(MARKS, writeMarks(marks))
  }

  /** What is on screen, without the marks themselves and the theme, which stay as they are. */
  private add(name: string): void {
    const { [MARKS]: _, ...options } = this.store.state.options
    const hash = writeHash({ ...this.store.state, options, theme: 'system' }, this.start)
    this.write([...this.marks, { name, hash }])
    this.name.value = ''
    this.name.placeholder = this.suggest()
  }

  private go({ hash }: Mark): void {
    this.store.jump(keeping(readHash(hash, this.start, this.devices), this.store.state))
  }

  private render(): void {
    const text = this.store.state.options[MARKS] ?? ''
    const key = `${this.renaming}/${text}`
    if (key === this.shown) return
    this.shown = key
    const { marks } = this
    const label = marks.length ? `Bookmarks (${marks.length})` : 'Bookmarks'
    if (this.button.textContent !== label) this.button.textContent = label
    fill(this.list, ...marks.map((mark, i) => this.item(mark, i)))
    if (marks.length === 0)
      fill(this.list, h('li.soft', `No bookmarks yet.${HAS_LINKS ? ' The link to this page stores them.' : ''}`))
  }

  private item(mark: Mark, i: number): HTMLElement {
    if (i === this.renaming) return this.renameItem(mark, i)
    return h(
      'li',
      h(
        'button.link.clip.fill.mark-go',
        { title: mark.hash || 'the report as it opens', onclick: () => this.go(mark) },
        mark.name,
      ),
      h('button', { 'aria-label': `Rename ${mark.name}`, title: 'Rename', onclick: () => this.rename(i) }, '✎'),
      h('button', { 'aria-label': `Remove ${mark.name}`, title: 'Remove', onclick: () => this.remove(i) }, '✕'),
    )
  }

  private renameItem(mark: Mark, i: number): HTMLElement {
    const field = h('input', {
      type: 'text',
      maxlength: 80,
      'aria-label': `New name of ${mark.name}`,
      value: mark.name,
    })
    const form = h('form.row.fill.mark-form', field, h('button', { type: 'submit' }, 'Rename'))
    form.addEventListener('submit', (event) => {
      event.preventDefault()
      const name = field.value.trim() || mark.name
      this.renaming = -1
      this.shown = ''
      this.write(this.marks.map((other, at) => (at === i ? { ...other, name } : other)))
      this.render()
      this.name.focus()
    })
    return h('li', form)
  }

  private rename(i: number): void {
    this.renaming = i
    this.render()
    this.list.querySelector('input')?.select()
  }

  private remove(i: number): void {
    this.write(this.marks.filter((_, at) => at !== i))
    this.name.focus()
  }
}
