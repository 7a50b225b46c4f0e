// Graphics cards by their memory, and how much of it PyTorch's allocator can use. The twin of
// snapreport/allocator/cards.py.

const GIB = 2 ** 30
/** What the driver, the CUDA context and its kernels take beside the allocator. */
export const CONTEXT = GIB / 2

export interface Card {
  name: string
  example: string
  /** Bytes for the allocator of a single process. */
  usable: number
  /** Where the card's total is on record. */
  source: string
}

const card = (name: string, example: string, total: number, source: string): Card => ({
  name,
  example,
  usable: Math.floor(total * GIB) - CONTEXT,
  source: `https://github.com/${source}`,
})

export const CARDS: readonly Card[] = [
  card('24 GB', 'RTX 4090', 23.52, 'Soul-AILab/SoulX-FlashTalk/issues/5'),
  card('40 GB', 'A100', 39.39, 'Wan-Video/Wan2.2/issues/87'),
  card('48 GB', 'L40', 44.4, 'QwenLM/Qwen3-VL/issues/2097'),
  card('80 GB', 'H100', 79.11, 'vllm-project/vllm/issues/27508'),
  card('141 GB', 'H200', 139.8, 'RightNow-AI/autokernel/issues/5'),
  card('192 GB', 'B200', 178.35, 'pytorch/ao/pull/4002'),
]
