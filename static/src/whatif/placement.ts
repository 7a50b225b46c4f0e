// Device memory for a replay: a budget of bytes, and where new segments are placed. The twin of
// snapreport/allocator/placement.py; addresses are those of the device's AddressSpace.

import { facts, ROUND_LARGE } from '../allocator/facts'

const TOTAL = facts.replays.device_bytes
/** Above every recorded address. */
const ABOVE = 2 ** 50
const SLOT_BITS = 36
const WIDE_SLOT_BITS = 41

/** Each new segment lies above all others. */
export class DeviceMemory {
  readonly total: number
  protected next = ABOVE
  private used = 0

  constructor(readonly capacity: number) {
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
    const start = this.next
    this.next += aligned(size)
    return start
  }

  /** Addresses are not used twice. */
  release(_address: number, _size: number): void {}
}

/** Each new segment lies below all others. */
export class DescendingMemory extends DeviceMemory {
  protected override next = 0

  override reserve(size: number): number {
    this.next -= aligned(size)
    return this.next
  }
}

/** New segments lie in a random order, above and below the recorded ones: the library's order for the same seed. */
export class ShuffledMemory extends DeviceMemory {
  protected override next = 3 * 2 ** 49
  private random: number
  private readonly taken = new Set<number>()
  private readonly slots: [narrow: number, wide: number] = [0, 0]

  constructor(capacity: number, seed: number) {
    super(capacity)
    this.random = Math.imul(seed + 1, 0x9e3779b1) >>> 0
  }

  override reserve(size: number, mapped: boolean): number {
    const wide = size > 2 ** SLOT_BITS ? 1 : 0
    const bits = wide ? WIDE_SLOT_BITS : SLOT_BITS
    const count = 2 ** (49 - bits)
    if (size > 2 ** WIDE_SLOT_BITS || this.slots[wide] > count) return super.reserve(size, mapped)
    for (;;) {
      const draw = this.draw()
      const side = draw & 1 ? 2 ** 49 : -(2 ** 50)
      const start = side + ((draw >>> 1) % count) * 2 ** bits + wide * 2 ** 49
      if (this.taken.has(start)) continue
      this.taken.add(start)
      this.slots[wide]++
      return start
    }
  }

  override release(address: number, size: number): void {
    if (this.taken.delete(address)) this.slots[size > 2 ** SLOT_BITS ? 1 : 0]--
  }

  private draw(): number {
    let value = this.random
    value ^= value << 13
    value ^= value >>> 17
    value ^= value << 5
    this.random = value >>> 0
    return this.random
  }
}

function aligned(size: number): number {
  return Math.ceil(size / ROUND_LARGE) * ROUND_LARGE
}

/** The first `count` of: above, below, and random orders. */
export function placements(capacity: number, count: number): DeviceMemory[] {
  const every = [new DeviceMemory(capacity), new DescendingMemory(capacity)]
  for (let seed = 0; every.length < count; seed++) every.push(new ShuffledMemory(capacity, seed))
  return every
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
