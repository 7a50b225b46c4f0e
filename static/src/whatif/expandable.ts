// Expandable segments: address space reserved once, memory mapped into it in granules. The twin of
// snapreport/allocator/expandable.py.

import { SMALL_BUFFER } from '../allocator/facts'
import { Block, type BlockPool, merge, SEGMENT_MAP, SEGMENT_UNMAP } from './blocks'
import type { DeviceMemory } from './placement'

/** What mapping needs of the allocator. */
export interface Growing {
  reserved: number
  readonly memory: DeviceMemory
  /** Bytes of a granule of expandable segments in the large pool. */
  readonly largeSegment: number
  readonly onSegment: (action: number, size: number) => void
  nextRank(): number
  partRank(block: Block): number
  addReserved(length: number): void
}

/** The index of the free block to use, from `at` on, where the one there is expandable; the length: none serves. */
export function bestExpandable(blocks: readonly Block[], at: number, expandable: boolean): number {
  if (!expandable) {
    while (at < blocks.length && blocks[at].expandable) at++
    return at
  }
  while (blocks[at].expandable && at + 1 < blocks.length && reach(blocks[at + 1]) < reach(blocks[at])) at++
  return at
}

function reach({ size, next }: Block): number {
  return next && !next.mapped ? size + next.size : size
}

/** A free block of at least `size` bytes made by mapping memory, removed from its pool; null where memory is short. */
export function grow(allocator: Growing, pool: BlockPool, stream: number, size: number): Block | null {
  let candidate = findAddressSpace(allocator, pool, stream, size)
  if (!candidate.mapped && !map(allocator, candidate, Math.min(candidate.size, size))) return null
  while (candidate.size < size) {
    const following = candidate.next
    // A request for more than the address space of a segment, 1 1/8 of the device's memory.
    if (!following || !map(allocator, following, Math.min(size - candidate.size, following.size))) return null
    candidate = following
  }
  pool.remove(candidate)
  return candidate
}

function findAddressSpace(allocator: Growing, pool: BlockPool, stream: number, size: number): Block {
  for (const unmapped of pool.unmapped.get(stream) ?? []) {
    const first = unmapped.previous?.free ? unmapped.previous : unmapped
    let room = 0
    for (let block: Block | null = first; room < size && block?.free; block = block.next) room += block.size
    if (room >= size) return first
  }
  const granule = pool.small ? SMALL_BUFFER : allocator.largeSegment
  const { total } = allocator.memory
  const length = Math.max(1, Math.ceil((total + Math.floor(total / 8)) / granule)) * granule
  const address = allocator.memory.reserve(length, false)
  const block = new Block(address, length, pool, stream)
  block.mapped = false
  block.expandable = { address, size: length, granule }
  block.rank = allocator.nextRank()
  pool.insertUnmapped(block)
  return block
}

function map(allocator: Growing, block: Block, size: number): boolean {
  const { expandable, pool } = block
  const { address, granule } = expandable!
  const start = block.address
  const length = address + Math.ceil((start + size - address) / granule) * granule - start
  if (!allocator.memory.take(length)) return false
  pool.removeUnmapped(block)
  block.mapped = true
  if (length < block.size) {
    const rest = partOf(allocator, block, start + length, block.size - length)
    rest.mapped = false
    rest.splice(block, block.next)
    pool.insertUnmapped(rest)
    block.size = length
  }
  merge(block, block.previous)
  merge(block, block.next)
  pool.insert(block)
  allocator.addReserved(length)
  allocator.onSegment(SEGMENT_MAP, length)
  return true
}

/** Unmap the whole granules inside a free block. */
export function unmap(allocator: Growing, block: Block): void {
  const { expandable, pool } = block
  const { address, granule } = expandable!
  const start = address + Math.ceil((block.address - address) / granule) * granule
  const end = address + Math.floor((block.address + block.size - address) / granule) * granule
  if (start >= end) return
  pool.remove(block)
  const before = start - block.address
  const after = block.address + block.size - end
  if (before) {
    const rest = partOf(allocator, block, block.address, before)
    rest.splice(block.previous, block)
    pool.insert(rest)
  }
  if (after) {
    const rest = partOf(allocator, block, end, after)
    rest.splice(block, block.next)
    pool.insert(rest)
  }
  block.address = start
  block.size = end - start
  block.mapped = false
  merge(block, block.previous)
  merge(block, block.next)
  pool.insertUnmapped(block)
  allocator.memory.give(end - start)
  allocator.reserved -= end - start
  allocator.onSegment(SEGMENT_UNMAP, end - start)
  if (!block.previous && !block.next) {
    pool.removeUnmapped(block)
    allocator.memory.release(expandable!.address, expandable!.size)
  }
}

function partOf(allocator: Growing, block: Block, address: number, size: number): Block {
  const part = new Block(address, size, block.pool, block.stream)
  part.expandable = block.expandable
  part.rank = allocator.partRank(block)
  return part
}
