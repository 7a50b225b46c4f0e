// The chips above the timeline, which Python has written: pointing at one shows its allocations and their curve. A click is an
// ordinary link (report-links.ts). Details of a failure or a finding offer the remedies that are among the chips.

import type { DeviceData, Stacks } from '../data/model'
import { h } from '../ui/dom'
import { stackText } from '../ui/frame-item'
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

/** Whether the first chip of a device is about reserved memory. */
export function isAboutReserved(device: number): boolean {
  const { kind } = document.querySelector<HTMLElement>(`#top .chip[data-device="${device}"]`)?.dataset ?? {}
  return kind === 'fragmentation' || kind === 'churn'
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
  const list = h('ol.remedies', ...shown.map((each) => h('li', ...each.cloneNode(true).childNodes)))
  return [h('h3', 'Remedies'), list]
}

/** The first chip: the cause and its remedy; without chips the headline. */
export function verdictText(): string {
  const chip = document.querySelector('#top .verdict .chip') ?? document.querySelector('#top .headline')
  return chip ? textOf(chip) : ''
}

function textOf(element: Element): string {
  return (element.textContent ?? '').replace(/\s+/g, ' ').trim()
}

/** What a ticket says, as Markdown: the verdict, the culprit's stack, the best remedies, the legend and the address. */
export function ticketText(
  { title, legend, address }: { title: string; legend: readonly string[]; address: string },
  data: DeviceData | null,
  stacks: Stacks | null,
): string {
  const chips = [...document.querySelectorAll<HTMLElement>('#top .verdict .chip')]
  const [worst] = chips
  const remedies = chips.flatMap((chip) =>
    chip.dataset.remedy === undefined ? [...chip.querySelectorAll('.remedy')] : chip,
  )
  const stack = worst && data ? culprit(worst, data) : 0
  const frames = stack > 0 && stacks ? stacks.frames(stack) : []
  const lines = (texts: readonly string[]): string[] => texts.map((text) => `- ${text}`)
  const cause = worst?.cloneNode(true) as HTMLElement | undefined
  for (const remedy of cause?.querySelectorAll('.remedy') ?? []) remedy.remove()
  return [
    `## ${title}`,
    ...(cause ? [textOf(cause)] : [...document.querySelectorAll('#top .headline')].map(textOf)),
    ...(frames.length ? [['```', stackText(frames, false).trim(), '```'].join('\n')] : []),
    ...(remedies.length ? [lines(remedies.slice(0, MOST).map(textOf)).join('\n')] : []),
    ...(legend.length ? [lines(legend).join('\n')] : []),
    ...(address ? [address] : []),
  ].join('\n\n')
}

/** The stack that a chip's link opens, or that of the request that failed; 0: none. */
function culprit(chip: HTMLElement, { other }: DeviceData): number {
  const hash = chip.querySelector('a[href^="#"]')?.getAttribute('href') ?? ''
  const [, kind, number] = /[#&](stack|oom)=(\d+)/.exec(hash) ?? []
  return kind === 'oom' ? (other.stack[other.event.indexOf(Number(number))] ?? 0) : Number(number ?? 0)
}
