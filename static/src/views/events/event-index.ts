// Event → what it is. The file stores events as the ends of allocations and the rest; this restores their order.

import type { DeviceData, DeviceInfo } from '../../data/model'
import { upperBound } from '../../layout/binary-search'
import { tracksOf } from '../../steps/spans'

export const UNKNOWN = 0
/** An allocation begins. `ref`: the allocation. */
export const ALLOC = 1
/** Its free is requested; in a trace without completions it ends there. */
export const REQUEST = 2
/** Its free is completed. */
export const FREE = 3
/** Any other event. `ref`: the row in `other`. */
export const OTHER = 4

/** The actions that end and begin allocations, as recorders spell them, before those of `info.actions`. */
const ENDS = ['alloc', 'free_requested', 'free_completed'] as const
const FREED = 'free'

export interface EventIndex {
  /** Kind of each event (length n). */
  kind: Uint8Array
  /** Allocation or row, by kind. */
  ref: Int32Array
  /** Index into `names` of each event's action. */
  action: Uint8Array
  names: string[]
  /** Events of each action. */
  counts: Float64Array
  /** Events at which an allocation ended since its address was allocated anew, and the allocation: their row is the alloc. */
  replaced: Map<number, number>
}

/** O(n + N). */
export function indexEvents(info: DeviceInfo, data: DeviceData): EventIndex {
  const { n, N, start, end, P, freeRequestedEvent: requested, other } = data
  const kind = new Uint8Array(n)
  const ref = new Int32Array(n).fill(-1)
  for (let id = 0; id < N; id++) {
    if (end[id] === P) continue
    kind[end[id] - 1] = FREE
    ref[end[id] - 1] = id
  }
  for (let id = 0; id < N; id++) {
    if (requested[id] < 0) continue
    kind[requested[id]] = REQUEST
    ref[requested[id]] = id
  }
  const replaced = new Map<number, number>()
  for (let id = 0; id < N; id++) {
    const event = start[id] - 1
    if (event < 0) continue
    if (kind[event] === FREE) replaced.set(event, ref[event])
    kind[event] = ALLOC
    ref[event] = id
  }
  for (let row = 0; row < other.event.length; row++) {
    kind[other.event[row]] = OTHER
    ref[other.event[row]] = row
  }
  return { kind, ref, replaced, ...actionsOf(info, data, kind, ref) }
}

/** Action of each event, named exactly as recorded. */
function actionsOf(
  info: DeviceInfo,
  { n, other }: DeviceData,
  kind: Uint8Array,
  ref: Int32Array,
): Pick<EventIndex, 'action' | 'names' | 'counts'> {
  const names: string[] = [...ENDS]
  const numberOf = (name: string): number => {
    const known = names.indexOf(name)
    return known >= 0 ? known : names.push(name) - 1
  }
  const ofOther = info.actions.map(numberOf)
  const action = new Uint8Array(n)
  // Without the requests, whether ends are requests or completions shows only where some event is left unexplained.
  const isBlurred = info.left_out.includes('requested') && !kind.includes(UNKNOWN)
  const ofKind = [1, 0, 1, isBlurred ? numberOf(FREED) : 2]
  const counts = new Float64Array(names.length)
  for (let event = 0; event < n; event++) {
    action[event] = kind[event] === OTHER ? ofOther[other.action[ref[event]]] : ofKind[kind[event]]
    counts[action[event]]++
  }
  return { action, names, counts }
}

/** The allocation of an event; -1: none, or not known. */
export function allocationOf({ kind, ref }: EventIndex, event: number): number {
  return kind[event] === OTHER || kind[event] === UNKNOWN ? -1 : ref[event]
}

/** Events to list: those whose action is not hidden, and with a mask those whose allocation is in it. Null: all. O(n). */
export function listed(index: EventIndex, hidden: ReadonlySet<string>, mask: Uint8Array | null): Int32Array | null {
  if (hidden.size === 0 && !mask) return null
  const { action, names } = index
  const shown = names.map((name) => !hidden.has(name))
  const out = new Int32Array(action.length)
  let count = 0
  for (let event = 0; event < action.length; event++) {
    if (!shown[action[event]]) continue
    if (mask) {
      const id = allocationOf(index, event)
      if (id < 0 || mask[id] === 0) continue
    }
    out[count++] = event
  }
  return out.slice(0, count)
}

export interface Boundaries {
  /** Ascending. */
  event: Int32Array
  names: string[]
}

export function boundariesOf(info: DeviceInfo, data: DeviceData): Boundaries {
  const marks: { event: number; name: string }[] = []
  for (const { kind, names, name, first } of tracksOf(info, data)) {
    if (kind !== 'step' && kind !== 'annotation') continue
    for (let i = 0; i < first.length; i++) marks.push({ event: first[i], name: names[name[i]] })
  }
  marks.sort((a, b) => a.event - b.event)
  return { event: Int32Array.from(marks, ({ event }) => event), names: marks.map(({ name }) => name) }
}

/** Names of what begins after event `before` and not after `event`. */
export function namesBetween({ event: events, names }: Boundaries, before: number, event: number): string[] {
  return names.slice(upperBound(events, before), upperBound(events, event))
}

export class ListedEvents {
  /** `rows`: event of each line, ascending; null: every event in turn. `n`: events of the trace. */
  constructor(
    readonly rows: Int32Array | null,
    private readonly n: number,
  ) {}

  get count(): number {
    return this.rows ? this.rows.length : this.n
  }

  eventAt(line: number): number {
    return this.rows ? this.rows[line] : line
  }

  /** The line of an event, or of the next one that is listed. */
  lineOf(event: number): number {
    return this.rows ? Math.min(this.rows.length - 1, upperBound(this.rows, event - 1)) : event
  }
}
