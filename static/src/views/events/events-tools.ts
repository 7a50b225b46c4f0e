// The controls of the events view: where to go, which events are listed, and the download.

import { h } from '../../ui/dom'
import { MatchesOnly } from '../shared/matches-only'

interface EventsActions {
  goToPlace(text: string): void
  goToPeak(): void
  goToOom(direction: 1 | -1): void
  listMatchesOnly(isOn: boolean): void
  save(): void
}

export class EventsTools {
  readonly element: HTMLElement
  private readonly place = h('input', {
    type: 'text',
    class: 'event-place',
    placeholder: 'Event or time',
    'aria-label': 'Go to event or time',
    title: 'Go to an event (1234) or a time (1.5 s): G',
  })
  private readonly only: MatchesOnly
  private readonly oom: HTMLElement

  constructor(actions: EventsActions) {
    this.only = new MatchesOnly((isOn) => actions.listMatchesOnly(isOn))
    this.place.addEventListener('keydown', (event) => event.key === 'Enter' && actions.goToPlace(this.place.value))
    this.place.addEventListener('input', () => this.place.removeAttribute('aria-invalid'))
    const button = (label: string, title: string, run: () => void): HTMLButtonElement =>
      h('button', { type: 'button', title, onclick: run }, label)
    this.oom = h(
      'span',
      { class: 'segmented' },
      button('‹ OOM', 'The out-of-memory error before (Shift + O)', () => actions.goToOom(-1)),
      button('OOM ›', 'The next out-of-memory error (O)', () => actions.goToOom(1)),
    )
    this.element = h(
      'div',
      { class: 'tools' },
      this.place,
      button('Peak', 'Go to the peak (P)', () => actions.goToPeak()),
      this.oom,
      this.only.element,
      button('CSV', 'Download the listed events as CSV', () => actions.save()),
    )
  }

  /** `matchesOnly`: null where there is no query. */
  render(matchesOnly: boolean | null, hasOom: boolean): void {
    this.only.render(matchesOnly)
    this.oom.hidden = !hasOom
  }

  /** For what is typed next. */
  focusPlace(): void {
    this.place.focus()
    this.place.select()
  }

  /** Marks what was typed as not understood. */
  refusePlace(): void {
    this.place.setAttribute('aria-invalid', 'true')
  }
}
