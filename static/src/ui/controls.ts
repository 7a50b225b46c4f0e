// The controls that toolbars and panels are made of.

import { h } from './dom'

/** A button with a tooltip. */
export function button(label: string, title: string, run: () => void): HTMLButtonElement {
  return h('button', { title, onclick: run }, label)
}

/** A square in a colour beside what it stands for; null: in none, but as wide. */
export function swatch(colour: string | null, title: string | null = null): HTMLElement {
  const mark = h('span.swatch', { title })
  if (colour) mark.style.background = colour
  return mark
}

/** A menu of values, each with its name. */
export function menu(
  label: string,
  choices: readonly (readonly [value: string, name: string])[],
  choose: (value: string) => void,
): HTMLSelectElement {
  const options = choices.map(([value, name]) => h('option', { value }, name))
  const select = h('select', { 'aria-label': label, title: label }, ...options)
  select.addEventListener('change', () => choose(select.value))
  return select
}

/** Buttons of which one is pressed. */
export class Segmented<T> {
  readonly element: HTMLElement
  readonly buttons: ReadonlyMap<T, HTMLButtonElement>

  constructor(
    label: string,
    choices: readonly (readonly [value: T, name: string, title?: string])[],
    choose: (value: T) => void,
  ) {
    this.buttons = new Map(
      choices.map(([value, name, title = '']) => [value, button(name, title, () => choose(value))]),
    )
    this.element = h('div.segmented', { role: 'group', 'aria-label': label }, ...this.buttons.values())
  }

  show(value: T): void {
    for (const [each, button] of this.buttons) button.setAttribute('aria-pressed', String(each === value))
  }
}
