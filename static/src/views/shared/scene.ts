// Everything the timeline needs of one device, prepared once. Works from the manifest alone until the columns arrive.

import type { Axis, DeviceData, DeviceInfo, Stacks } from '../../data/model'
import { lowerBound } from '../../layout/binary-search'
import { allocatedCurve } from '../../data/device'
import { RangeMax } from './range-max'
import { type AxisScale, eventScale, timeScale, withRoom } from './scale'

/** Where memory ran out in the last tenth of the trace, the axis continues after it by this share of its length. */
const ROOM = 0.07
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
  readonly info: DeviceInfo
  data: DeviceData | null = null
  /** What is drawn: the data, or the same with other sizes. */
  drawn: DeviceData | null = null
  /** Sizes and their curve where they are not the recorded ones. */
  shown: { size: Float64Array; allocated: Float64Array; reserved: Float64Array } | null = null
  /** What failed requests ask for, by event, where that is not the recorded. */
  requests: ReadonlyMap<number, number> | null = null
  stacks: Stacks | null = null
  allocatedMax: RangeMax | null = null
  reservedMax: RangeMax | null = null
  marks: Mark[]
  private times: AxisScale | null = null
  private readonly events: AxisScale

  constructor(info: DeviceInfo) {
    this.info = info
    this.events = this.roomy(eventScale(info))
    // A device without history has one position: there its peak says nothing.
    this.marks = info.allocations > 0 && info.events > 0 ? [peakMark(info)] : []
    for (const { event, requested, figures } of info.ooms)
      this.marks.push({ kind: 'oom', event, bytes: requested, free: figures?.deviceFree ?? NaN })
  }

  setData(data: DeviceData, stacks: Stacks): void {
    this.data = data
    this.stacks = stacks
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
    const { data } = this
    if (!data) return
    this.requests = requests
    const isReplayed = size !== null || reserved !== null
    this.shown = isReplayed
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

  /** Top of the view that shows everything. Reserved and failed requests count unless they would press the stack flat. */
  get yTop(): number {
    const peak = this.info.peakBytes
    const reserved = this.info.stats.peak_reserved_bytes || 0
    const top = Math.max(peak, reserved <= peak / FLATTEST || peak === 0 ? reserved : 0)
    const failed = this.info.ooms.map(({ requested, figures }) => (figures ? figures.allocated + requested : 0))
    return Math.max(1024, Math.max(top, Math.min(peak / FLATTEST, Math.max(0, ...failed))) * 1.08)
  }

  /** Positions [from, to) of a stretch of the axis: from the state in force at its start to its last event. */
  positions(axis: Axis, x0: number, x1: number): [number, number] {
    const scale = this.scale(axis)
    const P = this.info.events + 1
    if (!scale || scale.axis === 'event') {
      const from = Math.min(P - 1, Math.max(0, Math.floor(x0 + 1)))
      return [from, Math.min(P, Math.max(from + 1, Math.ceil(x1 + 1)))]
    }
    const clock = this.data!.clockUs!
    const from = lowerBound(clock, x0)
    return [from, Math.max(from, lowerBound(clock, x1, from)) + 1]
  }
}

function peakMark(info: DeviceInfo): Mark {
  return { kind: 'peak', event: info.peakEvent, bytes: info.peakBytes, free: NaN }
}
