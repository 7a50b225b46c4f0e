// The runs of a what-if as rows, and the minimum memory with the cards that have it, in words. The twin of
// snapreport/report/whatif_text.py.

import { formatBytes, formatCount, formatShare } from '../../layout/format'
import { h } from '../../ui/dom'
import { CARDS, CONTEXT } from '../../whatif/cards'
import { OWN, type WhatIfRun } from '../../whatif/job'
import type { Minimum } from '../../whatif/minimum'

export const HEADS = ['Settings', 'Peak reserved', 'Change', 'Error bar', 'Retries', 'Out of memory']

/** `pick`: draw the run over the recorded curve; `failure`: a link to the request of an event. */
export function runRow(
  run: WhatIfRun,
  base: number | null,
  isChosen: boolean,
  pick: () => void,
  failure: (event: number) => Node,
): HTMLElement {
  const { peakReserved: peak, low, high, oomEvent, retries, note } = run
  const isUnknown = peak === null && note !== ''
  const bar = low === null || high === null ? '' : low === high ? 'none' : `${formatBytes(low)} to ${formatBytes(high)}`
  const isBase = run.settings === OWN && !run.without
  return h(
    'tr',
    { 'aria-selected': String(isChosen) },
    h(
      'th',
      { scope: 'row' },
      h(
        'button.link',
        { title: 'Draw this run over the recorded curve', onclick: pick },
        ...breakable(isBase ? `${OWN}, replayed` : nameOf(run)),
      ),
      note && h('div.soft', note),
    ),
    h('td', peak === null ? '–' : formatBytes(peak)),
    h('td', isBase ? '' : changeText(peak, base)),
    h('td', bar),
    h('td', isUnknown ? '–' : formatCount(retries)),
    h('td', isUnknown ? '–' : oomEvent === null || oomEvent < 0 ? failureText(oomEvent) : failure(oomEvent)),
  )
}

/** Settings in a narrow column break behind `_`, `:` and `,`, not within a word. */
function breakable(name: string): (string | Node)[] {
  return name.split(/(?<=[_:,])/).flatMap((part) => [part, h('wbr')])
}

/** The event of the request that fails; -1: restoring what was live at the start. */
function failureText(event: number | null): string {
  return event === null ? 'no' : event < 0 ? 'at the start' : `event ${formatCount(event)}`
}

/** What was recorded, above the replays. `oomEvent`: the first failed request, null for none. */
export function recordedRow(peak: number, oomEvent: number | null): HTMLElement {
  const cells = [formatBytes(peak), '', '', '', failureText(oomEvent)]
  return h('tr', h('th', { scope: 'row' }, 'recorded'), ...cells.map((text) => h('td', text)))
}

export function nameOf({ settings, without }: Pick<WhatIfRun, 'settings' | 'without'>): string {
  return without ? `${settings}, without` : settings
}

function changeText(peak: number | null, base: number | null): string {
  if (peak === null || base === null) return ''
  if (peak === base) return 'none'
  const sign = peak < base ? '−' : '+'
  const bytes = Math.abs(peak - base)
  return `${sign}${formatBytes(bytes)} (${sign}${formatShare(bytes, base)})`
}

/** A sentence per search, then the cards. */
export function minimumParts(found: readonly Minimum[]): Node[] {
  if (!found.length) return []
  const lines = found.map((least) => h('p', minimumText(least)))
  const beside = `For the allocator: what CUDA reports for the card, less ${formatBytes(CONTEXT)} for the CUDA context. NCCL and other processes take more.`
  return [...lines, h('p', cardText(found[0])), cardsTable(found), h('p.soft', beside)]
}

function minimumText({ settings, memory, retries, monotone }: Minimum): string {
  const under = settings === OWN ? 'the recorded settings' : settings
  if (memory === null) return `Under ${under} the trace fails on any device.`
  const cost = retries === 0 ? 'no retry' : retries === 1 ? '1 retry' : `${formatCount(retries)} retries`
  const tail = monotone ? '' : ' Some sizes just above it fail again.'
  return `Minimum memory under ${under}: ${exact(memory)} for the allocator, with ${cost}.${tail}`
}

/** In MiB, since it is a multiple of 2 MiB, which three digits of GiB would hide. */
function exact(memory: number): string {
  const mib = `${formatCount(memory / 2 ** 20)} MiB`
  return memory < 2 ** 30 ? mib : `${formatBytes(memory)} (${mib})`
}

/** The smallest card that is large enough, and the one below. */
function cardText({ memory, fits }: Minimum): string {
  const at = fits.indexOf(true)
  if (memory === null || at < 0)
    return `The trace fits on none of the cards known, the largest of which has ${CARDS.at(-1)!.name}.`
  const { name, example, usable } = CARDS[at]
  const text = `The trace fits on a card of ${name} (${example}) with ${formatBytes(usable - memory)} to spare`
  if (at === 0) return `${text}.`
  return `${text}; one of ${CARDS[at - 1].name} is ${formatBytes(memory - CARDS[at - 1].usable)} too small.`
}

function cardsTable(found: readonly Minimum[]): HTMLElement {
  const heads = ['Card', 'For the allocator', ...found.map(({ settings }) => settings)]
  return h(
    'table.cards',
    h('thead', h('tr', ...heads.map((head) => h('th', { scope: 'col' }, head)))),
    h(
      'tbody',
      ...CARDS.map(({ name, example, usable, source }, at) =>
        h(
          'tr',
          h('th', { scope: 'row' }, `${name} (${example})`),
          h('td', { title: `Memory of the card: ${source}` }, formatBytes(usable)),
          ...found.map(({ memory, fits }) => h('td', spareText(memory, fits[at], usable))),
        ),
      ),
    ),
  )
}

function spareText(memory: number | null, fits: boolean, usable: number): string {
  if (memory === null) return 'fails'
  if (usable < memory) return `${formatBytes(memory - usable)} too small`
  return fits ? `${formatBytes(usable - memory)} to spare` : 'fails, though less would do'
}

export function errorBarText(placements: number, residual: number): string {
  const wider = residual
    ? `, widened by the ${formatBytes(residual)} that the replayed recorded settings are off by`
    : ''
  return `Error bar: the lowest and the highest peak of ${placements} replays, which place new segments at other addresses${wider}; "none" where all agree.`
}
