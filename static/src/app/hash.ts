// The state in the URL hash, readable: #device=0&x=120..480&y=0..1073741824&select=17
// Only what differs from the start is written, so a report that was just opened keeps a clean address.

import {
  COLOURS,
  type ColourBy,
  isPlace,
  type Options,
  type Range,
  type State,
  type Store,
  type Theme,
  VIEWS,
  type ViewName,
} from '../ui/state'
import { decoded } from '../ui/format'

/** Browsers refuse more than 100 history calls in 30 s; a pan makes 60 frames a second. */
const WRITE_EVERY_MS = 400
/** Jumps that may come at once without waiting for that: with what is written regularly less than 100 in 30 s. */
const JUMPS_AT_ONCE = 20
/** The moment of the peak, where the report starts at another. */
const PEAK = 'peak'
/** The state of the history's entries that the page has written; an address that the reader enters has none. */
const OWN = 'snapreport'

export function writeHash(state: State, start: State): string {
  const parts: string[] = []
  if (state.view !== start.view) parts.push(`view=${state.view}`)
  if (state.device !== start.device) parts.push(`device=${state.device}`)
  if (state.axis !== start.axis) parts.push(`axis=${state.axis}`)
  if (state.x) parts.push(`x=${writeRange(state.x, 4)}`)
  if (state.y) parts.push(`y=${writeRange(state.y, 0)}`)
  if (state.select !== null) parts.push(`select=${state.select}`)
  if (state.oom !== null) parts.push(`oom=${state.oom}`)
  if (state.stack !== null) parts.push(`stack=${state.stack}`)
  if (state.at !== startMoment(start, state.device)) parts.push(`at=${state.at ?? PEAK}`)
  if (state.colour !== start.colour) parts.push(`colour=${state.colour}`)
  for (const name of Object.keys(state.options).sort()) parts.push(`${name}=${encodeURIComponent(state.options[name])}`)
  if (state.query) parts.push(`query=${encodeURIComponent(state.query)}`)
  if (state.noise) parts.push('noise=1')
  if (state.theme !== 'system') parts.push(`theme=${state.theme}`)
  return parts.length ? `#${parts.join('&')}` : ''
}

/** The moment where the hash names none: the start's on its own device, the peak on others. */
function startMoment(start: State, device: number): number | null {
  return device === start.device ? start.at : null
}

/** The start state with what the hash sets. Malformed parts of the hash are ignored. */
export function readHash(hash: string, start: State, devices: number): State {
  const fields = new Map<string, string>()
  for (const part of hash.replace(/^#/, '').split('&')) {
    const at = part.indexOf('=')
    if (at > 0) fields.set(part.slice(0, at), decoded(part.slice(at + 1)))
  }
  const view = fields.get('view') as ViewName
  const theme = fields.get('theme') as Theme
  const colour = fields.get('colour') as ColourBy
  const axis = fields.get('axis')
  const named = readWhole(fields.get('device'))
  const device = named !== null && named < devices ? named : start.device
  const select = readWhole(fields.get('select'))
  const oom = select === null ? readWhole(fields.get('oom')) : null
  return {
    ...start,
    // Reports of a job open on it, and no others have that view.
    view: VIEWS.includes(view) && (view !== 'job' || start.view === 'job') ? view : start.view,
    device,
    axis: axis === 'time' || axis === 'event' ? axis : start.axis,
    x: readRange(fields.get('x')),
    y: readRange(fields.get('y')),
    select,
    oom,
    stack: select === null && oom === null ? readWhole(fields.get('stack')) : null,
    at: fields.has('at') ? readEvent(fields.get('at')) : startMoment(start, device),
    colour: COLOURS.includes(colour) ? colour : start.colour,
    options: readOptions(fields),
    query: fields.get('query') ?? '',
    noise: fields.get('noise') === '1',
    theme: theme === 'light' || theme === 'dark' ? theme : 'system',
  }
}

/** Whether others can open the address: that of a notebook's frame, about:srcdoc, is the same in all. */
export const HAS_LINKS = globalThis.location?.protocol !== 'about:'

/** Keeps the address and the store in step, both ways: places and jumps are entries of the history, other moves change its last. */
export function bindHash(store: Store, start: State, devices: number): void {
  let timer = 0
  let last = 0
  /** Grows by WRITE_EVERY_MS with every write; while it is in the past, jumps are written at once. */
  let paid = -Infinity
  let known = location.hash
  let written = store.state
  let { jumps } = store
  try {
    history.replaceState(OWN, '')
  } catch {
    // As below.
  }
  const write = (): void => {
    timer = 0
    last = performance.now()
    paid = Math.max(paid, last - JUMPS_AT_ONCE * WRITE_EVERY_MS) + WRITE_EVERY_MS
    // A link was just followed: its event is pending, and its hash must not be overwritten.
    if (location.hash !== known) return
    const { state } = store
    const hash = writeHash(state, start)
    const isEntry = store.jumps > jumps || isPlace(written, state)
    written = state
    jumps = store.jumps
    if (hash === location.hash) return
    try {
      // Whole: in a notebook's frame (about:srcdoc) a hash alone would be the notebook's.
      const address = location.href.split('#')[0] + hash
      if (isEntry) history.pushState(OWN, '', address)
      else history.replaceState(OWN, '', address)
      known = location.hash
    } catch {
      // A page inside a sandbox may not change its address; everything else still works.
    }
  }
  store.subscribe(() => {
    const now = performance.now()
    // Back right after a jump, or one jump right after another, finds the jump's entry.
    const isAtOnce = store.jumps > jumps && paid <= now
    if (timer !== 0 && !isAtOnce) return
    clearTimeout(timer)
    timer = window.setTimeout(write, isAtOnce ? 0 : Math.max(0, last + WRITE_EVERY_MS - now))
  })
  window.addEventListener('hashchange', () => {
    clearTimeout(timer)
    timer = 0
    known = location.hash
    written = readHash(location.hash, start, devices)
    store.set(history.state === OWN ? keeping(written, store.state) : written)
  })
}

function writeRange(range: Range, digits: number): string {
  return range.map((value) => String(Number(value.toFixed(digits)))).join('..')
}

function readRange(text: string | undefined): Range | null {
  const match = /^(-?[\d.e+]+?)\.\.(-?[\d.e+]+)$/i.exec(text ?? '')
  if (!match) return null
  const low = Number(match[1])
  const high = Number(match[2])
  return Number.isFinite(low) && Number.isFinite(high) && high > low ? [low, high] : null
}

function readWhole(text: string | undefined): number | null {
  return text !== undefined && /^\d{1,15}$/.test(text) ? Number(text) : null
}

/** An event, or -1 for the state before the first; null: the peak. */
function readEvent(text: string | undefined): number | null {
  return text === '-1' ? -1 : readWhole(text)
}

/** Everything named "view.choice"; each view ignores values that it does not know. */
function readOptions(fields: ReadonlyMap<string, string>): Options {
  return Object.fromEntries([...fields].filter(([name]) => /^[a-z]+\.[a-z]+$/.test(name)))
}

export const MARKS = 'marks.list'
const MOST = 50
const LONGEST_NAME = 80

export interface Mark {
  name: string
  /** "#view=…", as the address writes it; "" for the report as it opens. */
  hash: string
}

/** The marks in the option; malformed ones are ignored. */
export function readMarks(text: string | undefined): Mark[] {
  let rows: unknown
  try {
    rows = JSON.parse(text ?? '[]')
  } catch {
    return []
  }
  if (!Array.isArray(rows)) return []
  return rows
    .filter(
      (row): row is [string, string] =>
        Array.isArray(row) &&
        row.length === 2 &&
        row.every((part) => typeof part === 'string') &&
        /^(#|$)/.test(row[1]),
    )
    .slice(0, MOST)
    .map(([name, hash]) => ({ name: name.slice(0, LONGEST_NAME), hash }))
}

/** A place of this report with the bookmarks and the theme of `now`, which stay wherever the reader goes. */
export function keeping(place: State, { theme, options }: State): State {
  const { [MARKS]: _, ...others } = place.options
  return { ...place, theme, options: options[MARKS] ? { ...others, [MARKS]: options[MARKS] } : others }
}

/** Null for none: the address stays clean. */
export function writeMarks(marks: readonly Mark[]): string | null {
  return marks.length
    ? JSON.stringify(marks.slice(0, MOST).map(({ name, hash }) => [name.slice(0, LONGEST_NAME), hash]))
    : null
}

/** Goes to an address of this report, as a link does. */
export function follow(store: Store, start: State, devices: number, hash: string): void {
  const { state } = store
  store.jump({ ...keeping(readHash(hash, start, devices), state), noise: state.noise })
}

/** `opened`: called with the link once the place is in the state. */
export function bindLinks(store: Store, start: State, devices: number, opened: (link: Element) => void): void {
  document.addEventListener('click', (event) => {
    if (
      event.defaultPrevented ||
      event.button !== 0 ||
      event.ctrlKey ||
      event.metaKey ||
      event.shiftKey ||
      event.altKey
    )
      return
    const link = event.target instanceof Element ? event.target.closest('a') : null
    const hash = link?.getAttribute('href')
    if (!link || !hash?.startsWith('#')) return
    event.preventDefault()
    follow(store, start, devices, hash)
    opened(link)
  })
}
