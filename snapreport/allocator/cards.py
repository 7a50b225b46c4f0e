"""Graphics cards by their memory, and how much of it PyTorch's allocator can use."""

from __future__ import annotations

from dataclasses import dataclass

GIB = 1 << 30
CONTEXT = GIB // 2
"""What the driver, the CUDA context and its kernels take of a card beside the allocator: "process has … in use" less
allocated and reserved memory is 0.44 to 0.50 GiB in the messages that the sources quote. NCCL takes more.
"""


@dataclass(frozen=True)
class Card:
    """name: as it is sold. total: bytes that CUDA reports for it (cudaMemGetInfo). source: where that is on record."""

    name: str
    example: str
    total: int
    source: str

    @property
    def usable(self) -> int:
        """Bytes for the allocator of a single process without NCCL."""
        return self.total - CONTEXT


CARDS = (
    Card("24 GB", "RTX 4090", int(23.52 * GIB), "https://github.com/Soul-AILab/SoulX-FlashTalk/issues/5"),
    Card("40 GB", "A100", int(39.50 * GIB), "https://github.com/TianheWu/CoSeR/issues/10"),
    Card("48 GB", "L40S", int(44.40 * GIB), "https://github.com/QwenLM/Qwen3-VL/issues/2097"),
    Card("80 GB", "A100", int(79.25 * GIB), "https://github.com/levihsu/OOTDiffusion/issues/235"),
    Card("141 GB", "H200", int(139.72 * GIB), "out-of-memory messages of PyTorch on an H200"),
    Card("192 GB", "B200", int(178.35 * GIB), "https://github.com/pytorch/ao/pull/4002"),
)
"""Of several cards of one size the one where CUDA reports least; ECC and the driver's own part are off already."""
