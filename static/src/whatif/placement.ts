// Device memory for a replay: a budget of bytes, and where new segments are placed. The twin of
// snapreport/allocator/placement.py; addresses are those of the device's AddressSpace.

import { ROUND_LARGE } from './blocks'

const TOTAL = 2 ** 40
/** Above every recorded address. */
const ABOVE = 2 ** 50

export class DeviceMemory {
  readonly total: number
  private used = 0
  private nextAbove = ABOVE
  private nextBelow = 0

  /** `descending`: new segments lie below all others instead of above. */
  constructor(
    readonly capacity: number,
    private readonly descending = false,
  ) {
    this.total = Math.min(capacity, TOTAL)
  }

  take(size: number): boolean {
    if (this.used + size > this.capacity) return false
    this.used += size
    return true
  }

  give(size: number): void {
    this.used -= size
  }

  reserve(size: number, _mapped: boolean): number {
    const length = Math.ceil(size / ROUND_LARGE) * ROUND_LARGE
    if (this.descending) return (this.nextBelow -= length)
    const start = this.nextAbove
    this.nextAbove += length
    return start
  }
}

/** New segments lie where the trace says, where it has one of the same size at that event. */
export class RecordedMemory extends DeviceMemory {
  event = -1

  /** `at`: by event of the request, the (address, bytes) of its segments; 0 bytes for mapped memory. */
  constructor(
    capacity: number,
    private readonly at: Map<number, [address: number, size: number][]>,
  ) {
    super(capacity)
  }

  override reserve(size: number, mapped: boolean): number {
    const segments = this.at.get(this.event)
    if (segments?.length && segments[0][1] === (mapped ? size : 0)) return segments.shift()![0]
    return super.reserve(size, mapped)
  }
}
