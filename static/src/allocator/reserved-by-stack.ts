// Reserved memory by the stack trace that made PyTorch ask the driver for it. Twin of snapreport/timeline/segment_causes.py.

import type { DeviceData } from '../data/model'
import { firstWhere } from '../layout/binary-search'
import { historyOf } from './neighbours'

/** The actions that reserve. */
const RESERVES = ['segment_alloc', 'segment_map']

/** Bytes and number of the ranges that are reserved at a position, by stack; 0: unknown, as of most from before the trace. */
export function reservedByStack(
  data: DeviceData,
  stacks: number,
  position: number,
): { value: Float64Array; count: Float64Array } {
  const { info, other } = data
  const { space, history } = historyOf(data)
  const ranges = new Ranges()
  const final = finalStacks(data)
  for (let row = 0; row < history.count; row++) {
    if (history.from[row] > 0) continue
    // What is freed in the trace and allocated there again by someone else is not the final one.
    const stack = history.to[row] === data.P ? (final.get(history.start[row]) ?? 0) : 0
    ranges.put({ start: history.start[row], end: history.end[row], stack })
  }
  for (let i = 0; i < other.event.length && other.event[i] < position; i++) {
    const action = info.actions[other.action[i]]
    if (!action.startsWith('segment_')) continue
    const start = space.of(other.addrHi[i], other.addrLo[i])
    const end = start + other.size[i]
    ranges.cut(start, end)
    if (RESERVES.includes(action)) ranges.put({ start, end, stack: other.stack[i] })
  }
  const value = new Float64Array(stacks)
  const count = new Float64Array(stacks)
  for (const { start, end, stack } of ranges.sorted) {
    value[stack] += end - start
    count[stack]++
  }
  return { value, count }
}

/** The stacks that reserved anything, which need not have allocated. */
export function* reservingStacks({ info, segments, other }: DeviceData): Generator<number> {
  yield 0
  yield* segments.stack
  for (let i = 0; i < other.event.length; i++)
    if (RESERVES.includes(info.actions[other.action[i]])) yield other.stack[i]
}

/** Stack by first address of the segments of the final state. */
function finalStacks(data: DeviceData): Map<number, number> {
  const { addrHi, addrLo, stack } = data.segments
  const { space } = historyOf(data)
  return new Map(Array.from(stack, (of, i) => [space.of(addrHi[i], addrLo[i]), of]))
}

interface Range {
  start: number
  end: number
  stack: number
}

/** Reserved ranges that do not overlap, by address. */
class Ranges {
  readonly sorted: Range[] = []

  put(range: Range): void {
    const at = this.firstFrom(range.start)
    if (range.start < range.end && this.sorted[at]?.start !== range.start) this.sorted.splice(at, 0, range)
  }

  /** Removes what is reserved from `start` to `end`. */
  cut(start: number, end: number): void {
    const first = Math.max(this.firstFrom(start) - 1, 0)
    const touched = this.sorted.slice(first, this.firstFrom(end)).filter((range) => range.end > start)
    for (const range of touched) {
      this.sorted.splice(this.sorted.indexOf(range), 1)
      this.put({ ...range, end: start })
      this.put({ ...range, start: Math.max(end, range.start) })
    }
  }

  private firstFrom(address: number): number {
    return firstWhere(0, this.sorted.length, (i) => this.sorted[i].start >= address)
  }
}
