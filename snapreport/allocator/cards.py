"""Graphics cards by their memory, and how much of it PyTorch's allocator can use."""

from __future__ import annotations

from msgspec import Struct

from snapreport import allocator_facts as facts

GIB = 1 << 30
CONTEXT = int(facts.CONTEXT_GIB * GIB)
"""What the driver, the CUDA context and its kernels use of a card beside the allocator. In PyTorch's out-of-memory
messages, "this process has … in use" less allocated and reserved memory is 0.44 GiB (the source of the 24 GB row) to
0.50 GiB (48 GB). With four ranks and NCCL it is 0.74 GiB (40 GB).
"""


class Card(Struct, frozen=True):
    """name: its product name. total: bytes that CUDA reports for the whole card. source: where that is on record, an
    out-of-memory message or a device query with the card's name beside it.
    """

    name: str
    example: str
    total: int
    source: str

    @property
    def usable(self) -> int:
        """Bytes for the allocator of a single process without NCCL."""
        return self.total - CONTEXT


CARDS = tuple(Card(card["name"], card["example"], int(card["gib"] * GIB), card["source"]) for card in facts.CARDS)
"""One card of each size, with the least that a source reports for it: drivers differ by some 0.3 GiB. Other cards of
one size differ more: an A10 or L4 with ECC has 22 of its 24 GB, an MI300X all of its 192.
"""
