// The recorded state at a trace's start, as blocks of the model. The twin of snapreport/allocator/start.py.

import { SMALL_BUFFER } from '../allocator/facts'
import type { CachingAllocator, Pools } from './allocator'
import { Block, type ExpandableSegment } from './blocks'
import type { StartSegment, Trace } from './trace'

/** Put the state into an allocator that has nothing: the number of contradictory blocks. `live`: blocks by id. */
export function restore(
  allocator: CachingAllocator,
  trace: Trace,
  pools: readonly Pools[],
  live: (Block | null)[],
): number {
  const growing = new Map<string, Block>()
  let { contradictions } = trace
  for (const segment of trace.start) contradictions += restoreSegment(allocator, segment, pools, live, growing)
  for (const block of growing.values()) close(block)
  allocator.peakReserved = allocator.reserved
  return contradictions
}

function restoreSegment(
  allocator: CachingAllocator,
  segment: StartSegment,
  pools: readonly Pools[],
  live: (Block | null)[],
  growing: Map<string, Block>,
): number {
  const { address, size, stream, small } = segment
  const owner = pools[segment.pool][small ? 0 : 1]
  const key = `${stream} ${segment.pool} ${small}`
  let previous: Block | null = null
  let expandable: ExpandableSegment | null = null
  if (segment.expandable) {
    previous = growing.get(key) ?? null
    expandable = previous?.expandable ?? null
    if (!previous || !expandable || address + size > expandable.address + expandable.size) {
      const granule = small ? SMALL_BUFFER : allocator.largeSegment
      const { total } = allocator.memory
      expandable = { address, size: Math.ceil((total + Math.floor(total / 8)) / granule) * granule, granule }
      if (previous) close(previous)
      previous = null
    } else if (previous.address + previous.size < address) previous = gap(previous, address)
  }
  let contradictions = 0
  const end = address + size
  let at = address
  for (const { address: start, size: length, id } of segment.blocks) {
    const cut = Math.min(Math.max(start + length, at), end) - Math.max(start, at)
    if (start !== at || cut !== length) contradictions++
    if (cut <= 0) continue
    const block = new Block(Math.max(start, at), cut, owner, stream)
    block.expandable = expandable
    block.splice(previous, null)
    previous = block
    at = block.address + cut
    if (id >= 0) {
      block.free = false
      live[id] = block
    } else owner.insert(block)
  }
  allocator.memory.take(size)
  allocator.reserved += size
  if (expandable && previous) growing.set(key, previous)
  return contradictions
}

function gap(previous: Block, address: number): Block {
  const start = previous.address + previous.size
  const block = new Block(start, address - start, previous.pool, previous.stream)
  block.mapped = false
  block.expandable = previous.expandable
  block.splice(previous, null)
  block.pool.insertUnmapped(block)
  return block
}

function close(block: Block): void {
  const { address, size } = block.expandable!
  if (block.address + block.size < address + size) gap(block, address + size)
}
