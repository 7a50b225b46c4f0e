// The state of the page, as one immutable object. Views are functions of it; the URL hash mirrors it.

import type { Axis } from '../data/model'

export type Theme = 'system' | 'light' | 'dark'
export type Range = readonly [number, number]
/** Choices that belong to one view, by "view.choice": { 'flame.root': 'leaf' }. Absent ones have the view's default. */
export type Options = Readonly<Record<string, string>>

/** In the order of their tabs. */
export const VIEWS = [
  'job',
  'timeline',
  'segments',
  'reserved',
  'flame',
  'xray',
  'table',
  'events',
  'summary',
  'diff',
] as const
export type ViewName = (typeof VIEWS)[number]

export const COLOURS = ['stack', 'category', 'size', 'age', 'stream', 'pool', 'step', 'origin'] as const
export type ColourBy = (typeof COLOURS)[number]

export interface State {
  /** DeviceInfo.index */
  readonly device: number
  readonly view: ViewName
  readonly axis: Axis
  /** Window in events (fractions allowed) whatever the axis, so that a link survives a change of axis; null: all. */
  readonly x: Range | null
  /** Window in bytes; null: all. */
  readonly y: Range | null
  /** Allocation id */
  readonly select: number | null
  /** The out-of-memory event whose details are open. Of `select`, `oom` and `stack` one at most is not null. */
  readonly oom: number | null
  /** The stack whose details are open. */
  readonly stack: number | null
  /** The moment that views of one moment show: an event (-1: before the first); null: the peak. */
  readonly at: number | null
  readonly query: string
  readonly colour: ColourBy
  readonly options: Options
  readonly theme: Theme
  /** Show the frames of the interpreter loop, the dispatcher and the unwinder. */
  readonly noise: boolean
}

/** Option of the state: the selected range of events, "first..last". */
export const RANGE = 'timeline.range'

/** No details are open. */
export const CLOSED = { select: null, oom: null, stack: null }

export type Listener = (state: State, before: State) => void

export class Store {
  /** Grows with every move that is an entry of the history, whatever it changes: see `isPlace`. */
  jumps = 0
  private current: State
  private readonly listeners: Listener[] = []

  constructor(state: State) {
    this.current = Object.freeze(state)
  }

  get state(): State {
    return this.current
  }

  /**
   * Changes some fields. Another device starts with a fresh window, no moment and no details unless these are set too; what
   * opens details closes those of anything else.
   */
  set(patch: Partial<State>): void {
    const before = this.current
    const isOther = patch.device !== undefined && patch.device !== before.device
    const opens = [patch.select, patch.oom, patch.stack].some((one) => one !== undefined && one !== null)
    const fresh = isOther
      ? { x: null, y: null, at: null, ...CLOSED, options: patched(before.options, { [RANGE]: null }) }
      : opens
        ? CLOSED
        : {}
    const next: State = Object.freeze({ ...before, ...fresh, ...patch })
    if (JSON.stringify(next) === JSON.stringify(before)) return
    this.current = next
    for (const listener of this.listeners) listener(next, before)
  }

  /** The same for a move that Back undoes: to an event, or along a link. */
  jump(patch: Partial<State>): void {
    this.jumps++
    this.set(patch)
  }

  /** Closes the details of whatever is open; where nothing is, the selected range. */
  close(): void {
    const { select, oom, stack } = this.current
    if (select === null && oom === null && stack === null) this.setOption(RANGE, null)
    else this.set(CLOSED)
  }

  /** Changes one choice of a view; null: back to its default. */
  setOption(name: string, value: string | null): void {
    this.set({ options: patched(this.current.options, { [name]: value }) })
  }

  subscribe(listener: Listener): void {
    this.listeners.push(listener)
  }
}

/** Whether Back goes from `b` to `a`: another view, device, moment, selection or range, or another rank or panel of a job. A pan, a
 * zoom and a query's letters are not. */
export function isPlace(a: State, b: State): boolean {
  const keys = ['view', 'device', 'select', 'oom', 'stack', 'at'] as const
  const ofOptions = ['job.rank', 'job.tab', 'job.stack', RANGE]
  return keys.some((key) => a[key] !== b[key]) || ofOptions.some((name) => a.options[name] !== b.options[name])
}

/** Options with some changed; null: back to the default. */
export function patched(options: Options, patch: Readonly<Record<string, string | null>>): Options {
  const entries = Object.entries({ ...options, ...patch })
  return Object.fromEntries(entries.filter((entry): entry is [string, string] => entry[1] !== null))
}
