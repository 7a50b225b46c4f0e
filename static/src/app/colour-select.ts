// By what allocations are coloured: the choice in the toolbar, and the ways that a device can be coloured.

import type { DeviceInfo } from '../data/model'
import { h } from '../ui/dom'
import { COLOURS, type ColourBy, type State, type Store } from '../ui/state'
import { whyNot } from '../views/colouring'

const COLOUR_TITLES: Record<ColourBy, string> = {
  stack: 'Stack',
  category: 'Category',
  size: 'Size',
  age: 'Lifetime',
  stream: 'Stream',
  pool: 'Pool',
  step: 'Step',
  origin: 'Origin',
}

/** Views that show colours of allocations. */
const COLOURED: readonly State['view'][] = ['timeline', 'segments', 'flame', 'table']

export class ColourSelect {
  readonly element: HTMLElement
  private readonly select = h('select', { 'aria-label': 'Colour by', title: 'Colour by (C for the next)' })
  private readonly choices = new Map<ColourBy, HTMLOptionElement>()
  private info: DeviceInfo | undefined

  constructor(store: Store) {
    for (const by of COLOURS) {
      const choice = h('option', { value: by }, COLOUR_TITLES[by])
      this.choices.set(by, choice)
      this.select.append(choice)
    }
    this.select.addEventListener('change', () => store.set({ colour: this.select.value as ColourBy }))
    this.element = h('label.row.colour-select', h('span', 'Colour'), this.select)
  }

  render(state: State, info: DeviceInfo | undefined): void {
    this.element.hidden = !isColoured(state.view) || !info
    if (info && info !== this.info) {
      this.info = info
      for (const [by, choice] of this.choices) {
        const reason = whyNot(info, by)
        choice.disabled = reason !== null
        choice.textContent = reason ? `${COLOUR_TITLES[by]} (${reason})` : COLOUR_TITLES[by]
      }
    }
    this.select.value = state.colour
  }
}

export function isColoured(view: State['view']): boolean {
  return COLOURED.includes(view)
}

export function colourTitle(by: ColourBy): string {
  return COLOUR_TITLES[by]
}

/** The next way that the device can be coloured. */
export function nextColour(info: DeviceInfo, by: ColourBy): ColourBy {
  const possible = COLOURS.filter((colour) => colour === by || whyNot(info, colour) === null)
  return possible[(possible.indexOf(by) + 1) % possible.length]
}
