// Everything the timeline needs of one device, prepared once. Works from the manifest alone until the columns arrive.

import type { Axis, DeviceData, DeviceInfo, Stacks } from '../../data/model'
import { allocatedCurve } from '../../data/device'
import { type AxisScale, eventScale, positionsIn, timeScale, withRoom } from './x-window'

/** Values or blocks of them that a block of the layer above stands for. */
const FAN = 64

/** Where memory ran out in the last tenth of the trace, the axis continues after it by this share of its length. */
const ROOM = 0.07
/** From this share of the height on, what never changes is folded away where nobody has said otherwise. */
const MOSTLY_CONSTANT = 0.5
/** Of the peak: less that never changes is not worth a fold. */
const LEAST_FOLDED = 0.25
/** Of the peak: where less changes than this there is nothing to look at. */
const LEAST_CHANGING = 0.02
/** Of what changes, shown of the constant part under it. */
const FOLD_SHARE = 0.06
/** A failed request is shown whole unless that would press the stack under it flatter than this share of the height. */
const FLATTEST = 1 / 2.5

/** A marked moment. */
export interface Mark {
  kind: 'peak' | 'oom' | 'snapshot'
  /** Event of the mark; -1 for a peak before the first event. */
  event: number
  /** Bytes at the peak, requested by an OOM. */
  bytes: number
  /** Free bytes of the device at an OOM; NaN where not known. */
  free: number
}

export class Scene {
  data: DeviceData | null = null
  /** What is drawn: the data, or the same with other sizes. */
  drawn: DeviceData | null = null
  /** Sizes and their curve where they are not the recorded ones. */
  shown: { size: Float64Array; allocated: Float64Array; reserved: Float64Array } | null = null
  /** What failed requests ask for, by event, where that is not the recorded. */
  requests: ReadonlyMap<number, number> | null = null
  /** Reserved memory is what the report is about: it stays in sight however far above the stack it is. */
  keepsReserved = false
  /** Bytes at the bottom of the stack that are allocated before the trace and never freed. */
  constant = 0
  /** 1 for allocations that are drawn; null: all. */
  private only: Uint8Array | null = null
  private sizes: readonly [Float64Array | null, Float64Array | null] = [null, null]
  stacks: Stacks | null = null
  allocatedMax: RangeMax | null = null
  reservedMax: RangeMax | null = null
  marks: Mark[]
  private times: AxisScale | null = null
  private readonly events: AxisScale

  constructor(readonly info: DeviceInfo) {
    this.events = this.roomy(eventScale(info))
    // A device without history has one position: there its peak says nothing.
    this.marks = info.allocations > 0 && info.events > 0 ? [peakMark(info)] : []
    for (const { event, requested, device_free } of info.ooms)
      this.marks.push({ kind: 'oom', event, bytes: requested, free: device_free ?? NaN })
  }

  setData(data: DeviceData, stacks: Stacks): void {
    this.data = data
    this.stacks = stacks
    this.constant = constantBytes(data)
    this.showSizes(null, null, null)
    const { other } = data
    for (let row = 0; row < other.event.length; row++) {
      const kind = this.info.actions[other.action[row]]
      if (kind === 'oom') this.freeAt(other.event[row], other.free[row])
      if (kind === 'snapshot') this.marks.push({ kind, event: other.event[row], bytes: other.size[row], free: NaN })
    }
  }

  /** Draws the allocations with other sizes (length N), and what is then reserved (length P); null: as recorded. */
  showSizes(
    size: Float64Array | null,
    reserved: Float64Array | null,
    requests: ReadonlyMap<number, number> | null,
  ): void {
    this.requests = requests
    this.sizes = [size, reserved]
    this.restack()
  }

  /** Draws these allocations alone, from zero; null: all. */
  showOnly(only: Uint8Array | null): void {
    if (only === this.only) return
    this.only = only
    this.restack()
  }

  /** Whether the allocations are drawn with other sizes than recorded. */
  get isChanged(): boolean {
    return this.sizes[0] !== null
  }

  get isPart(): boolean {
    return this.only !== null
  }

  private restack(): void {
    const { data, only } = this
    if (!data) return
    const [left, reserved] = this.sizes
    const size = only ? (left ?? data.size).map((bytes, id) => (only[id] ? bytes : 0)) : left
    this.shown =
      size || reserved
        ? {
            size: size ?? data.size,
            allocated: size ? allocatedCurve(data.start, data.end, size, data.P) : data.allocated,
            reserved: reserved ?? data.reserved,
          }
        : null
    // What is computed when first read stays where it is.
    this.drawn = this.shown ? Object.assign(Object.create(data) as DeviceData, this.shown) : data
    this.allocatedMax = new RangeMax(this.drawn.allocated)
    this.reservedMax = new RangeMax(this.drawn.reserved)
  }

  private freeAt(event: number, free: number): void {
    const mark = this.marks.find((one) => one.kind === 'oom' && one.event === event)
    if (mark) mark.free = free
  }

  get hasTimes(): boolean {
    return this.info.time0 !== null && this.info.events > 0
  }

  /** Null until the time axis has the columns and the times. */
  scale(axis: Axis): AxisScale | null {
    if (axis === 'event' || !this.hasTimes) return this.events
    if (!this.times) {
      const times = this.data && timeScale(this.data)
      this.times = times && this.roomy(times)
    }
    return this.times
  }

  /** Where the record ends on an axis; there may be room after it. */
  end({ grid }: AxisScale): number {
    return grid.origin + grid.extent
  }

  private roomy(scale: AxisScale): AxisScale {
    const { events, ooms } = this.info
    const last = ooms.length ? ooms[ooms.length - 1].event : -1
    return last >= 0.9 * events && events > 1 ? withRoom(scale, events, ROOM) : scale
  }

  /**
   * Top of the view that shows everything, also with larger sizes. Reserved and failed requests count unless they would press the stack flat; among
   * some allocations alone they mean nothing.
   */
  get yTop(): number {
    if (this.only && this.drawn && this.allocatedMax)
      return Math.max(1024, this.allocatedMax.max(0, this.drawn.P) * 1.08)
    const peak = Math.max(this.info.peak_bytes, this.shownPeak)
    const shownReserved = this.shown && this.reservedMax ? this.reservedMax.max(0, this.drawn!.P) : 0
    const reserved = Math.max(this.info.stats.peak_reserved_bytes || 0, shownReserved)
    const counts = this.keepsReserved || reserved <= peak / FLATTEST || peak === 0
    const top = Math.max(peak, counts ? reserved : 0)
    const failed = this.info.ooms.map(({ requested, allocated }) =>
      allocated === undefined ? 0 : allocated + requested,
    )
    return Math.max(1024, Math.max(top, Math.min(peak / FLATTEST, Math.max(0, ...failed))) * 1.08)
  }

  /** The peak allocated with other sizes; 0 where they are the recorded ones. */
  get shownPeak(): number {
    return this.shown && this.allocatedMax ? this.allocatedMax.max(0, this.drawn!.P) : 0
  }

  /** Whether much never changes, and something does. */
  get canFold(): boolean {
    const { constant, shown, info } = this
    const share = constant / info.peak_bytes
    return !shown && share >= LEAST_FOLDED && share <= 1 - LEAST_CHANGING
  }

  /**
   * Where the view that shows everything begins: at 0, or just below what changes. choice: "yes", "no", or undefined for what
   * suits the trace.
   */
  yBottom(choice: string | undefined): number {
    const { constant } = this
    const top = this.yTop
    if (choice === 'no' || !this.canFold) return 0
    if (choice !== 'yes' && constant < MOSTLY_CONSTANT * top) return 0
    return Math.max(0, constant - FOLD_SHARE * (top - constant))
  }

  /** Positions [from, to) of a stretch of the axis: from the state in force at its start to its last event. */
  positions(axis: Axis, x0: number, x1: number): [number, number] {
    const scale = this.scale(axis) ?? this.events
    return positionsIn({ P: this.info.events + 1, clockUs: this.data?.clockUs ?? null }, scale, x0, x1)
  }
}

/** Ids come in birth order, those from before the trace that outlive it first (snapreport/timeline/lifetimes.py). */
function constantBytes({ start, end, size, N, P, n }: DeviceData): number {
  let bytes = 0
  for (let id = 0; n > 0 && id < N && start[id] === 0 && end[id] >= P; id++) bytes += size[id]
  return bytes
}

function peakMark(info: DeviceInfo): Mark {
  return { kind: 'peak', event: info.peak_event, bytes: info.peak_bytes, free: NaN }
}

/** PyTorch may have counted a higher peak than the trace has, whose oldest events are lost. */
export function peakName(info: DeviceInfo): string {
  return info.lost_peak_bytes === undefined ? 'peak' : 'peak of the trace'
}

/** The greatest of all values; 0 where none is greater. */
export function greatestOf(values: Float64Array): number {
  let greatest = 0
  for (const value of values) if (value > greatest) greatest = value
  return greatest
}

/** Where a column of numbers is greatest between two positions, in a few steps however long the range. */
export class RangeMax {
  /** layers[k][b]: first index of the greatest value in block b of 64^(k+1) values */
  private readonly layers: Int32Array[] = []

  constructor(private readonly values: Float64Array) {
    let below: Int32Array | null = null
    let length = values.length
    while (length > FAN) {
      const blocks = Math.ceil(length / FAN)
      const layer = new Int32Array(blocks)
      for (let block = 0; block < blocks; block++) {
        const end = Math.min(length, (block + 1) * FAN)
        let best = below ? below[block * FAN] : block * FAN
        for (let i = block * FAN + 1; i < end; i++) {
          const candidate = below ? below[i] : i
          if (values[candidate] > values[best]) best = candidate
        }
        layer[block] = best
      }
      this.layers.push(layer)
      below = layer
      length = blocks
    }
  }

  /** First index of the greatest value in [from, to); `from` when the range is empty. */
  argmax(from: number, to: number): number {
    return this.search(-1, from, Math.min(to, this.values.length), from)
  }

  max(from: number, to: number): number {
    return this.values[this.argmax(from, to)]
  }

  /** Searches items [from, to) of a layer (-1: the values): its ragged ends here, the whole blocks between one layer up. */
  private search(depth: number, from: number, to: number, best: number): number {
    const { values } = this
    const layer = depth < 0 ? null : this.layers[depth]
    const firstBlock = Math.ceil(from / FAN)
    const lastBlock = Math.floor(to / FAN)
    const nested = firstBlock < lastBlock && depth + 1 < this.layers.length
    const headEnd = nested ? firstBlock * FAN : to
    for (let i = from; i < headEnd; i++) {
      const candidate = layer ? layer[i] : i
      if (values[candidate] > values[best]) best = candidate
    }
    if (!nested) return best
    best = this.search(depth + 1, firstBlock, lastBlock, best)
    for (let i = lastBlock * FAN; i < to; i++) {
      const candidate = layer ? layer[i] : i
      if (values[candidate] > values[best]) best = candidate
    }
    return best
  }
}
