// Blocks and the pools of free ones. The twin of snapreport/allocator/blocks.py.

import { LARGE_BUFFER, MIN_LARGE_ALLOC, ROUND_LARGE, SMALL_BUFFER, SMALL_SIZE } from '../allocator/facts'
import { firstWhere } from '../layout/binary-search'
import { remembered } from '../data/remembered'

/** Actions of segment events. */
export const SEGMENT_ALLOC = 0
export const SEGMENT_FREE = 1
export const SEGMENT_MAP = 2
export const SEGMENT_UNMAP = 3

/** Bytes of the cudaMalloc for a rounded size that no free block fits. */
export function segmentSize(size: number, largeSegment = LARGE_BUFFER): number {
  if (size <= SMALL_SIZE) return SMALL_BUFFER
  return size < MIN_LARGE_ALLOC ? largeSegment : Math.ceil(size / ROUND_LARGE) * ROUND_LARGE
}

/** Recorded segments overlap, so that two free blocks of the model had one address. */
export class OverlapError extends Error {}

export interface ExpandableSegment {
  address: number
  size: number
  granule: number
}

export class Block {
  previous: Block | null = null
  next: Block | null = null
  /** False while it is allocated or its free is pending. */
  free = true
  mapped = true
  expandable: ExpandableSegment | null = null
  age = 0
  /** Orders free blocks of equal size before their address does. */
  rank = 0

  constructor(
    public address: number,
    public size: number,
    readonly pool: BlockPool,
    readonly stream: number,
  ) {}

  splice(before: Block | null, after: Block | null): void {
    if (before) before.next = this
    this.previous = before
    if (after) after.previous = this
    this.next = after
  }
}

/** The free blocks of one pool. Per stream: mapped ones by size, rank and address, others by address. */
export class BlockPool {
  readonly free = new Map<number, Block[]>()
  readonly unmapped = new Map<number, Block[]>()
  private readonly addresses = new Set<number>()
  requests = 0

  constructor(readonly small: boolean) {}

  insert(block: Block): void {
    this.addresses.add(block.address)
    const blocks = remembered(this.free, block.stream, () => [])
    blocks.splice(firstNotBelow(blocks, block.size, block.rank, block.address), 0, block)
    block.age = this.requests
  }

  remove(block: Block): void {
    const blocks = this.free.get(block.stream)!
    this.take(blocks, firstNotBelow(blocks, block.size, block.rank, block.address))
  }

  /** Removes the block at an index of a stream's. Throws OverlapError where another one had its address. */
  take(blocks: Block[], at: number): void {
    if (at >= blocks.length || !this.addresses.delete(blocks[at].address)) throw new OverlapError()
    blocks.splice(at, 1)
  }

  insertUnmapped(block: Block): void {
    this.addresses.add(block.address)
    const blocks = remembered(this.unmapped, block.stream, () => [])
    blocks.splice(firstAtOrAbove(blocks, block.address), 0, block)
  }

  removeUnmapped(block: Block): void {
    const blocks = this.unmapped.get(block.stream)!
    this.take(blocks, firstAtOrAbove(blocks, block.address))
  }

  /** Free mapped blocks in PyTorch's order. */
  inOrder(): Block[] {
    const streams = [...this.free.keys()].sort((a, b) => a - b)
    return streams.flatMap((stream) => this.free.get(stream)!)
  }
}

/** The first of `blocks` that is not below (size, rank, address). */
export function firstNotBelow(blocks: readonly Block[], size: number, rank: number, address: number): number {
  return firstWhere(0, blocks.length, (i) => {
    const block = blocks[i]
    return block.size !== size ? block.size > size : block.rank !== rank ? block.rank > rank : block.address >= address
  })
}

function firstAtOrAbove(blocks: readonly Block[], address: number): number {
  return firstWhere(0, blocks.length, (i) => blocks[i].address >= address)
}

/** Let `block`, which is in no pool, absorb a neighbour that is free. */
export function merge(block: Block, neighbour: Block | null): void {
  if (!neighbour?.free || block.mapped !== neighbour.mapped) return
  if (neighbour.mapped) neighbour.pool.remove(neighbour)
  else neighbour.pool.removeUnmapped(neighbour)
  if (block.previous === neighbour) {
    block.address = neighbour.address
    block.previous = neighbour.previous
    if (block.previous) block.previous.next = block
  } else {
    block.next = neighbour.next
    if (block.next) block.next.previous = block
  }
  block.size += neighbour.size
}
