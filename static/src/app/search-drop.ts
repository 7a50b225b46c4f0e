// What opens under the search box: suggestions, a listbox that never takes the focus, and examples of queries behind a button.

import type { Suggestion } from '../search/suggest'
import { fill, h } from '../ui/dom'
import { Popup } from '../ui/popup'

export class SearchList {
  readonly element = h('ul.floating.search-list', {
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
          h('span.clip.label', label),
          h('span.detail', detail),
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

const EXAMPLES: readonly (readonly [query: string, meaning: string])[] = [
  ['attention', 'a word in a function, a file, a category, a pool or metadata'],
  ['forward -dropout', 'both must hold; - negates'],
  ['size>64MiB live:peak', 'large and alive at the peak'],
  ['category:gradient OR category:activation', 'either; OR binds less than the blank'],
  ['live:peak -source:inferred', 'at the peak, of a category that is not inferred'],
  ['(linear OR conv) size:1MiB..1GiB', 'parentheses; a range includes both ends'],
  ['file:model.py:120', 'a frame in this file at this line'],
  ['func:"operator()"', 'in quotes nothing is special'],
  ['event:1000..2000 lifetime>5000', 'allocated in these events, alive for long'],
  ['time:1.5s.. -live:end', 'allocated after 1.5 s and freed in the end'],
  ['step:3..5 -live:end', 'allocated in these steps and freed in the end'],
  ['live:step 3 -freed-in:step 3', 'alive in this step and not freed in it'],
  ['live:peak top:20', 'the 20 largest at the peak'],
  ['free-stack:empty_cache', 'freed by a stack with this word'],
  ['addr:0x7f5c00000000', 'the allocations that held this address'],
  ['live:oom', 'what was there when memory ran out'],
]

export class SearchHelp {
  readonly button: HTMLButtonElement
  readonly element: HTMLElement
  private readonly popup: Popup

  constructor(put: (query: string) => void) {
    this.button = h(
      'button.quiet.small.search-help-button',
      { title: 'What can be searched', 'aria-label': 'What can be searched', 'aria-controls': 'search-help' },
      'i',
    )
    const list = h('dl')
    for (const [query, meaning] of EXAMPLES) {
      const choose = (): void => {
        this.close()
        put(query)
      }
      list.append(h('dt', h('button', { onclick: choose }, query)), h('dd', meaning))
    }
    this.element = h(
      'div.floating.search-help',
      { id: 'search-help', role: 'group', 'aria-label': 'Examples of queries', hidden: true },
      list,
      h(
        'p',
        'Sizes: B, KiB, MiB, GiB (KB, MB, GB are powers of 1000). Times: µs, ms, s, min. Enter and Shift + Enter step through the matches, the largest first.',
      ),
    )
    this.popup = new Popup(this.element, this.button, (isOpen) => {
      this.element.hidden = !isOpen
    })
  }

  /** False when it was not open. */
  close(): boolean {
    return this.popup.close()
  }
}
