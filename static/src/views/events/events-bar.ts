// The controls above the events: which actions are listed, and the events of the selected allocation.

import { fill, h } from '../../ui/dom'
import { formatCount } from '../../layout/format'
import type { EventIndex } from './event-index'

export class EventsBar {
  readonly actions = h('fieldset', { class: 'event-actions', 'aria-label': 'Actions that are listed' })
  readonly ends = h('p', {
    class: 'event-ends',
    role: 'group',
    'aria-label': 'Events of the selected allocation',
    hidden: true,
  })

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
        h(
          'button',
          { type: 'button', class: 'link', 'data-event': event, onclick: () => onGo(event) },
          `${action} ${formatCount(event)}`,
        ),
        '  ',
      ]),
      ends.length === 0 ? 'no event of it was recorded' : '',
    )
  }
}
