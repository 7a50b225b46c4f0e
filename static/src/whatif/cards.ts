// Graphics cards by their memory, and how much of it PyTorch's allocator can use. The twin of
// snapreport/allocator/cards.py, which names the sources.

const GIB = 2 ** 30
/** What the driver, the CUDA context and its kernels take beside the allocator. */
const CONTEXT = GIB / 2

export interface Card {
  name: string
  example: string
  /** Bytes for the allocator of a single process. */
  usable: number
}

const card = (name: string, example: string, total: number): Card => ({
  name,
  example,
  usable: Math.floor(total * GIB) - CONTEXT,
})

export const CARDS: readonly Card[] = [
  card('24 GB', 'RTX 4090', 23.52),
  card('40 GB', 'A100', 39.39),
  card('48 GB', 'L40', 44.4),
  card('80 GB', 'H100', 79.11),
  card('141 GB', 'H200', 139.8),
  card('192 GB', 'B200', 178.35),
]
