// A few queries that show the grammar, behind a button of the search box. A click puts one into the box.

import { h } from '../ui/dom'

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

  constructor(put: (query: string) => void) {
    this.button = h(
      'button',
      {
        type: 'button',
        class: 'search-help-button',
        title: 'What can be searched',
        'aria-label': 'What can be searched',
        'aria-expanded': 'false',
        'aria-controls': 'search-help',
        onclick: () => this.toggle(),
      },
      'i',
    )
    const list = h('dl')
    for (const [query, meaning] of EXAMPLES) {
      list.append(
        h(
          'dt',
          {},
          h(
            'button',
            {
              type: 'button',
              onclick: () => {
                this.close()
                put(query)
              },
            },
            query,
          ),
        ),
        h('dd', {}, meaning),
      )
    }
    this.element = h(
      'div',
      { class: 'search-help', id: 'search-help', role: 'group', 'aria-label': 'Examples of queries', hidden: true },
      list,
      h(
        'p',
        {},
        'Sizes: B, KiB, MiB, GiB (KB, MB, GB are powers of 1000). Times: µs, ms, s, min. Enter and Shift + Enter step through the matches, the largest first.',
      ),
    )
    document.addEventListener('pointerdown', ({ target }) => {
      if (!this.element.contains(target as Node) && target !== this.button) this.close()
    })
  }

  toggle(): void {
    this.element.hidden = !this.element.hidden
    this.button.setAttribute('aria-expanded', String(!this.element.hidden))
  }

  /** False when it was not open. The focus does not vanish with it. */
  close(): boolean {
    const { hidden } = this.element
    if (!hidden) {
      if (this.element.contains(document.activeElement)) this.button.focus()
      this.toggle()
    }
    return !hidden
  }
}
