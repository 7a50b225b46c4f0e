// The controls of the events view: where to go, which events are listed, and the download.

import type { DeviceData } from '../../data/model'
import { formatCount } from '../../layout/format'
import { usToEvent } from '../../layout/ticks'
import { button } from '../../ui/controls'
import { fill, h } from '../../ui/dom'
import { MatchesOnly } from '../shared/controls'
import type { EventIndex } from './event-index'

interface EventsActions {
  goToPlace(text: string): void
  goToPeak(): void
  goToOom(direction: 1 | -1): void
  listMatchesOnly(isOn: boolean): void
  save(): void
}

export class EventsTools {
  readonly element: HTMLElement
  private readonly place = h('input.event-place', {
    type: 'text',
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
    this.oom = h(
      'span.segmented',
      button('‹ OOM', 'The out-of-memory error before (Shift + O)', () => actions.goToOom(-1)),
      button('OOM ›', 'The next out-of-memory error (O)', () => actions.goToOom(1)),
    )
    this.element = h(
      'div.row.wrap',
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

export class EventsBar {
  readonly actions = h('fieldset.row.wrap.event-actions', { 'aria-label': 'Actions that are listed' })
  readonly ends = h('p.event-ends', { role: 'group', 'aria-label': 'Events of the selected allocation', hidden: true })

  /** `onToggle`: an action's box was changed. */
  showActions(
    { names, counts }: EventIndex,
    hidden: ReadonlySet<string>,
    onToggle: (name: string, listed: boolean) => void,
  ): void {
    const focused = document.activeElement instanceof HTMLElement ? document.activeElement.dataset.action : undefined
    fill(
      this.actions,
      ...names.flatMap((name, i) => {
        if (counts[i] === 0) return []
        const box = h('input', { type: 'checkbox', checked: !hidden.has(name), 'data-action': name })
        box.addEventListener('change', () => onToggle(name, box.checked))
        return [
          h('label', { class: name === 'oom' ? 'switch alarm' : 'switch' }, box, `${name} (${formatCount(counts[i])})`),
        ]
      }),
    )
    if (focused !== undefined)
      [...this.actions.querySelectorAll('input')].find((box) => box.dataset.action === focused)?.focus()
  }

  /** Links to the events of an allocation; null: none is selected. */
  showEnds(id: number | null, ends: readonly { event: number; action: string }[], onGo: (event: number) => void): void {
    this.ends.hidden = id === null
    if (id === null) return
    fill(
      this.ends,
      `Allocation #${formatCount(id)}: `,
      ...ends.flatMap(({ event, action }) => [
        h('button.link', { 'data-event': event, onclick: () => onGo(event) }, `${action} ${formatCount(event)}`),
        '  ',
      ]),
      ends.length === 0 ? 'no event of it was recorded' : '',
    )
  }
}

const UNITS: Record<string, number> = { us: 1, µs: 1, μs: 1, ms: 1e3, s: 1e6, min: 60e6, h: 3600e6 }

/** The event that text names, clamped to the trace; a string says why there is none. "1,234" is an event, "+1.5 s" a time. */
export function readPlace(text: string, data: Pick<DeviceData, 'n' | 'clockUs'>): number | string {
  const whole = /^#?\s*(-?\d[\d,_]*)$/.exec(text.trim())
  if (whole) return within(Number(whole[1].replace(/[,_]/g, '')), data.n)
  const time = /^\+?\s*(\d[\d,_]*(?:\.\d+)?)\s*(us|µs|μs|ms|s|min|h)$/i.exec(text.trim())
  if (!time) return 'an event like 1234, or a time since the first event like 1.5 s'
  if (!data.clockUs) return 'this report holds no times'
  const us = Number(time[1].replace(/[,_]/g, '')) * UNITS[time[2].toLowerCase()]
  return within(Math.floor(usToEvent(data.clockUs, us)), data.n)
}

function within(event: number, n: number): number {
  return Math.max(0, Math.min(n - 1, event))
}
