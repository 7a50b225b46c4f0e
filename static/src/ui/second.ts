// The second pane shows the same view of another device or at another moment. Its own choices are in the
// options of the state, under "split.", so that links and bookmarks include them; everything else is the first pane's.

import type { DeviceInfo } from '../data/model'
import type { Options, Range, State, ViewName } from './state'

/** The second pane's own part of the state. */
export interface Second {
  device: number
  /** As in State: an event, -1 before the first; null: the peak. */
  at: number | null
  /** Its window where windows are not linked; null: all. */
  x: Range | null
  select: number | null
  /** The out-of-memory event whose details are open. */
  oom: number | null
  /** Its window does not follow the first pane's. */
  apart: boolean
  /** Stacked vertically rather than side by side. */
  stacked: boolean
}

/** Whether a view can be shown twice: it shows one device, and no comparison of its own. */
export function canSplit(view: ViewName): boolean {
  return view !== 'summary' && view !== 'diff' && view !== 'job'
}

/** Null without a second pane, or where what the options say of it is no device of the report. */
export function secondOf(options: Options, devices: number): Second | null {
  const device = whole(options['split.device'])
  if (device === null || device >= devices) return null
  const [low, high] = (options['split.window'] ?? '').split('..').map(Number)
  return {
    device,
    at: options['split.at'] === '-1' ? -1 : whole(options['split.at']),
    x: high > low ? [low, high] : null,
    select: whole(options['split.select']),
    oom: whole(options['split.oom']),
    apart: options['split.apart'] === '1',
    stacked: options['split.stacked'] === '1',
  }
}

/** The options with this second pane, or without one. */
export function withSecond(options: Options, second: Second | null): Options {
  const rest = Object.entries(options).filter(([name]) => !name.startsWith('split.'))
  if (!second) return Object.fromEntries(rest)
  const { device, at, x, select, oom, apart, stacked } = second
  return {
    ...Object.fromEntries(rest),
    'split.device': String(device),
    ...(at !== null && { 'split.at': String(at) }),
    ...(apart && { 'split.apart': '1' }),
    ...(apart && x && { 'split.window': x.map((value) => String(Number(value.toFixed(4)))).join('..') }),
    ...(select !== null && { 'split.select': String(select) }),
    ...(oom !== null && { 'split.oom': String(oom) }),
    ...(stacked && { 'split.stacked': '1' }),
  }
}

/** The whole state of the second pane. Where windows are linked it shows the same part of its trace. */
export function stateOfSecond(first: State, second: Second, devices: readonly DeviceInfo[]): State {
  const { device, at, select, oom, apart } = second
  const x = apart ? second.x : samePart(first.x, devices[first.device], devices[device])
  return { ...first, device, at, select, x, oom, stack: null, options: withSecond(first.options, null) }
}

/** The first pane's state and the second's own after the second pane's state has changed to `shown`. */
export function afterSecond(first: State, second: Second, shown: State, devices: readonly DeviceInfo[]): State {
  const { device, at, select, view, axis, y, query, colour, theme, noise, oom } = shown
  const x = second.apart ? first.x : samePart(shown.x, devices[device], devices[first.device])
  const own: Second = { ...second, device, at, select, oom, x: second.apart ? shown.x : null }
  // One panel of details: what is opened on one side closes the other's.
  const opened = (select !== null && select !== second.select) || (oom !== null && oom !== second.oom)
  const closed = opened ? { select: null, oom: null, stack: null } : {}
  const stack = shown.stack === null ? {} : { select: null, oom: null, stack: shown.stack }
  const options = withSecond(shown.options, own)
  return { ...first, view, axis, x, y, query, colour, theme, noise, options, ...closed, ...stack }
}

/** The first choice for a second pane: the next device with data, else the end of the same trace. */
export function firstSecond(first: State, devices: readonly DeviceInfo[]): Second {
  const here = devices[first.device]
  const others = [...devices.slice(first.device + 1), ...devices.slice(0, first.device)]
  const other = others.find(({ events }) => events > 0)
  const start = { x: null, select: null, oom: null, apart: false, stacked: false }
  if (other) return { ...start, device: other.index, at: null }
  const last = here.events - 1
  return { ...start, device: here.index, at: (first.at ?? here.peak_event) === last ? null : last }
}

/** A window over the same part of another trace. */
function samePart(x: Range | null, from: DeviceInfo, to: DeviceInfo): Range | null {
  if (!x || from.events === to.events) return x
  const factor = Math.max(1, to.events) / Math.max(1, from.events)
  return [(x[0] + 1) * factor - 1, (x[1] + 1) * factor - 1]
}

function whole(text: string | undefined): number | null {
  return text !== undefined && /^\d{1,15}$/.test(text) ? Number(text) : null
}
