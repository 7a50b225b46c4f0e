// Graphics cards by their memory, and how much of it PyTorch's allocator can use: those of the library.

import { facts } from '../allocator/facts'

const GIB = 2 ** 30
/** What the driver, the CUDA context and its kernels take beside the allocator. */
export const CONTEXT = facts.context_gib * GIB

export interface Card {
  name: string
  example: string
  /** Bytes for the allocator of a single process. */
  usable: number
  /** Where the card's total is on record. */
  source: string
}

export const CARDS: readonly Card[] = facts.cards.map(({ name, example, gib, source }) => ({
  name,
  example,
  usable: Math.floor(gib * GIB) - CONTEXT,
  source,
}))
