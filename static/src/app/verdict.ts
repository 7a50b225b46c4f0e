// The chips above the timeline, which Python has written: pointing at one shows its allocations and their curve. A click is an
// ordinary link (report-links.ts). Details of a failure or a finding offer the remedies that are among the chips.

import { h } from '../ui/dom'
import type { State } from '../ui/state'

const MOST = 3

interface Page {
  state(): State
  /** Shows the allocations of a query as if it were in the search box; null: none. */
  preview(query: string | null): void
  /** Opens the largest stack of what the query matches. */
  openLargest(): void
}

export function bindVerdict({ state, preview, openLargest }: Page): void {
  const verdict = document.querySelector('#top .verdict')
  const enter = ({ target }: Event): void => {
    const chip = target instanceof Element ? target.closest<HTMLElement>('.chip') : null
    const query = chip?.dataset.query
    preview(query && Number(chip.dataset.device) === state().device ? query : null)
  }
  verdict?.addEventListener('click', () => {
    // The link is followed by then.
    setTimeout(() => {
      const { query, select, oom, stack } = state()
      if (query !== '' && [select, oom, stack].every((one) => one === null)) openLargest()
    })
  })
  verdict?.addEventListener('pointerover', enter)
  verdict?.addEventListener('focusin', enter)
  for (const leave of ['pointerleave', 'focusout']) verdict?.addEventListener(leave, () => preview(null))
}

/** What the report advises for what is open: with a query that of its own chip, else the best of the device. */
export function remediesPart({ device, query, oom }: State): Node[] {
  const chips = [...document.querySelectorAll<HTMLElement>(`#top .chip[data-device="${device}"]`)]
  const own = chips.filter((chip) => query !== '' && chip.dataset.query === query)
  const problem = own.some((chip) => chip.dataset.remedy === undefined) || oom !== null
  const remedies = chips.flatMap((chip) => [
    // A remedy is a chip, or part of a problem's.
    ...(chip.dataset.remedy === undefined ? chip.querySelectorAll('.remedy') : [chip]),
  ])
  const shown = problem ? remedies.slice(0, MOST) : own
  if (shown.length === 0) return []
  const list = h('ol', { class: 'remedies' }, ...shown.map((each) => h('li', {}, ...each.cloneNode(true).childNodes)))
  return [h('h3', {}, 'Remedies'), list]
}
