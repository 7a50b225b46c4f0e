// PyTorch's CUDACachingAllocator for one device. The twin of snapreport/allocator/model.py: both give the same addresses,
// segments and retries for the same requests.

import { MIN_BLOCK, SMALL_SIZE } from '../allocator/facts'
import { Block, type BlockPool, firstNotBelow, merge, segmentSize } from './blocks'
import { bestExpandable, type Growing, grow, unmap } from './expandable'
import { SEGMENT_ALLOC, SEGMENT_FREE } from './blocks'
import type { DeviceMemory } from './placement'
import type { AllocatorSettings } from './settings'

/** The small and the large pool of a memory pool. */
export type Pools = readonly [small: BlockPool, large: BlockPool]

export class CachingAllocator implements Growing {
  reserved = 0
  peakReserved = 0
  retries = 0
  readonly expandable: boolean
  /** Bytes of a granule of expandable segments in the large pool. */
  readonly largeSegment: number
  private readonly collects: boolean
  private readonly threshold: number
  private ranked = 0

  /** `limit`: bytes that a memory fraction allows; null: none was set. `onSegment` is called for every segment event. */
  constructor(
    readonly memory: DeviceMemory,
    private readonly settings: AllocatorSettings,
    private readonly defaultPools: Pools,
    private readonly limit: number | null,
    readonly onSegment: (action: number, size: number) => void,
  ) {
    this.expandable = settings.expandable
    this.largeSegment = settings.largeSegment
    this.collects = limit !== null && settings.threshold > 0
    this.threshold = Math.floor(settings.threshold * (limit ?? 0))
  }

  /** A block for a rounded size; null when out of memory. */
  allocate(size: number, stream: number, pools: Pools): Block | null {
    const pool = pools[size > SMALL_SIZE ? 1 : 0]
    let block = this.takeFree(pool, stream, size) ?? this.getMemory(pool, stream, size)
    if (!block) return null
    const left = block.size - size
    const isSplit =
      pool.small || this.expandable ? left >= MIN_BLOCK : left > SMALL_SIZE && size < this.settings.maxSplit
    if (left && isSplit) {
      const rest = block
      block = new Block(rest.address, size, pool, stream)
      block.expandable = rest.expandable
      block.rank = this.partRank(rest)
      block.splice(rest.previous, rest)
      rest.address += size
      rest.size = left
      pool.insert(rest)
    }
    block.free = false
    return block
  }

  /** A completed free. */
  freeBlock(block: Block): void {
    if (block.previous?.mapped) merge(block, block.previous)
    if (block.next?.mapped) merge(block, block.next)
    block.free = true
    block.pool.insert(block)
  }

  /** Free every unused segment of the default pools, unmap every unused granule. */
  releaseCached(): void {
    const [small, large] = this.defaultPools
    for (const pool of [large, small]) {
      const toUnmap: Block[] = []
      for (const block of pool.inOrder()) {
        if (block.expandable) toUnmap.push(block)
        else if (!block.previous && !block.next) this.releaseSegment(block)
      }
      for (const block of toUnmap) unmap(this, block)
    }
  }

  addReserved(size: number): void {
    this.reserved += size
    if (this.reserved > this.peakReserved) this.peakReserved = this.reserved
  }

  /** Of a new segment. */
  nextRank(): number {
    return this.settings.tieBreak === 'address' ? 0 : ++this.ranked
  }

  /** Of a new part of a block. */
  partRank(block: Block): number {
    return this.settings.tieBreak === 'block' ? ++this.ranked : block.rank
  }

  private takeFree(pool: BlockPool, stream: number, size: number): Block | null {
    if (this.collects) pool.requests++
    const blocks = pool.free.get(stream)
    if (!blocks) return null
    let at = firstNotBelow(blocks, size, -1, 0)
    if (at === blocks.length) return null
    if (blocks[at].expandable) at = bestExpandable(blocks, at, this.expandable)
    if (at === blocks.length) return null
    const block = blocks[at]
    const { maxSplit, maxNonSplitRounding } = this.settings
    if (size < maxSplit ? block.size >= maxSplit : block.size >= size + maxNonSplitRounding) return null
    pool.take(blocks, at)
    return block
  }

  private getMemory(pool: BlockPool, stream: number, size: number): Block | null {
    if (this.collects) this.collectGarbage()
    let block = this.newSegment(pool, stream, size)
    if (!block && this.releaseOversize(pool, stream, size)) block = this.newSegment(pool, stream, size)
    if (!block) {
      this.releaseCached()
      this.retries++
      block = this.newSegment(pool, stream, size)
    }
    return block
  }

  private newSegment(pool: BlockPool, stream: number, size: number): Block | null {
    const length = segmentSize(size, this.largeSegment)
    if (this.limit !== null && this.reserved + length > this.limit) return null
    if (this.expandable) return grow(this, pool, stream, size)
    if (!this.memory.take(length)) return null
    const block = new Block(this.memory.reserve(length, true), length, pool, stream)
    block.rank = this.nextRank()
    this.addReserved(length)
    this.onSegment(SEGMENT_ALLOC, length)
    return block
  }

  private releaseSegment(block: Block): void {
    this.onSegment(SEGMENT_FREE, block.size)
    block.pool.remove(block)
    this.memory.give(block.size)
    this.memory.release(block.address, block.size)
    this.reserved -= block.size
  }

  private releaseOversize(pool: BlockPool, stream: number, size: number): boolean {
    const limit = this.settings.maxSplit
    if (limit === Infinity) return false
    const wanted = Math.max(size, limit)
    const blocks = pool.free.get(stream) ?? []
    const fitting = blocks[firstNotBelow(blocks, wanted, -1, 0)]
    if (fitting && !fitting.expandable) {
      this.releaseSegment(fitting)
      return true
    }
    let released = 0
    for (const block of [...blocks].reverse()) {
      if (released >= wanted || block.size < limit) break
      if (!block.expandable && !block.previous && !block.next) {
        released += block.size
        this.releaseSegment(block)
      }
    }
    return released >= wanted
  }

  private collectGarbage(): void {
    const excess = this.reserved - this.threshold
    if (excess <= 0) return
    const pool = this.defaultPools[1]
    let blocks = pool.inOrder().filter((block) => !block.previous && !block.next && !block.expandable)
    let totalAge = blocks.reduce((sum, block) => sum + pool.requests - block.age, 0)
    let released = 0
    for (let found = true; released < excess && found && blocks.length; ) {
      const average = totalAge / blocks.length
      found = false
      const younger: Block[] = []
      for (const block of blocks) {
        const age = pool.requests - block.age
        if (age >= average) {
          found = true
          released += block.size
          totalAge -= age
          this.releaseSegment(block)
        } else younger.push(block)
      }
      blocks = younger
    }
  }
}
