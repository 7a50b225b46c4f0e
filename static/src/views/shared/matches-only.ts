// The checkbox that leaves out of a list whatever does not match the query; there is one only while there is a query.

import { h } from '../../ui/dom'

export class MatchesOnly {
  readonly element: HTMLElement
  private readonly box = h('input', { type: 'checkbox' })

  constructor(onChange: (isOn: boolean) => void) {
    this.element = h('label', { class: 'switch', title: 'Show only what matches the query' }, this.box, 'Matches only')
    this.box.addEventListener('change', () => onChange(this.box.checked))
  }

  /** null: there is no query. */
  render(isOn: boolean | null): void {
    this.element.hidden = isOn === null
    this.box.checked = isOn === true
  }
}
