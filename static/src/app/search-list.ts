// The list of suggestions under the search box: a listbox that never takes the focus.

import type { Suggestion } from '../search/suggest'
import { fill, h } from '../ui/dom'

export class SearchList {
  readonly element = h('ul', {
    class: 'search-list',
    id: 'search-list',
    role: 'listbox',
    'aria-label': 'Suggestions',
    hidden: true,
  })
  /** Called with what was chosen by a click. */
  onPick: (suggestion: Suggestion) => void = () => {}
  private shown: Suggestion[] = []
  private active = -1

  constructor(private readonly input: HTMLInputElement) {
    // The box keeps the focus while the list is clicked.
    this.element.addEventListener('pointerdown', (event) => event.preventDefault())
    this.element.addEventListener('click', (event) => {
      const option = (event.target as Element).closest('[role=option]')
      const at = option ? [...this.element.children].indexOf(option) : -1
      if (at >= 0) this.onPick(this.shown[at])
    })
  }

  get chosen(): Suggestion | null {
    return this.shown[this.active] ?? null
  }

  get isOpen(): boolean {
    return !this.element.hidden
  }

  show(suggestions: Suggestion[]): void {
    this.shown = suggestions
    fill(
      this.element,
      ...suggestions.map(({ label, detail }, i) =>
        h(
          'li',
          { role: 'option', id: `search-option-${i}`, 'aria-selected': 'false' },
          h('span', { class: 'label' }, label),
          h('span', { class: 'detail' }, detail),
        ),
      ),
    )
    this.element.hidden = suggestions.length === 0
    this.input.setAttribute('aria-expanded', String(this.isOpen))
    this.mark(-1)
  }

  close(): void {
    this.show([])
  }

  /** Makes the next or the one before active; past either end none is. */
  move(by: number): void {
    const count = this.shown.length + 1
    this.mark(((this.active + 1 + by + count) % count) - 1)
  }

  private mark(active: number): void {
    this.element.children[this.active]?.setAttribute('aria-selected', 'false')
    this.active = active
    const option = this.element.children[active]
    option?.setAttribute('aria-selected', 'true')
    option?.scrollIntoView({ block: 'nearest' })
    if (option) this.input.setAttribute('aria-activedescendant', option.id)
    else this.input.removeAttribute('aria-activedescendant')
  }
}
