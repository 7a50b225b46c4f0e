"""How PyTorch's caching allocator rounds a request and when it splits a block: the rules of
c10/cuda/CUDACachingAllocator.cpp.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from msgspec import Struct

from snapreport.allocator_facts import CONSTANTS

MIN_BLOCK = CONSTANTS["min_block"]  # every block's size is a multiple of it
# Largest rounded request of the small pool; remainders split off in the large pool are larger.
SMALL_SIZE = CONSTANTS["small_size"]
INTERVALS = CONSTANTS["intervals"]


class AllocatorRules(Struct, frozen=True):
    """The rounding and splitting rules from the recorded settings.

    divisions: for requests below 2 MiB, and from 2, 4, 8 … MiB: the number of steps per power of two (0: round only to
    512 bytes). max_split_size: blocks are not split for requests of this many bytes or more; None: no limit.
    expandable: whether expandable segments were enabled when the snapshot was taken.
    """

    divisions: tuple[int, ...] = (0,) * INTERVALS
    max_split_size: int | None = None
    expandable: bool = False

    def rounded(self, size: np.ndarray) -> np.ndarray:
        """Int64 bytes of a block for each of ``size`` requested bytes, without any unsplit remainder."""
        result: np.ndarray = np.maximum(-(-size // MIN_BLOCK), 1) * MIN_BLOCK
        if any(divisions > 1 for divisions in self.divisions):
            power = np.frexp(size.astype(np.float64))[1].astype(np.int64) - 1
            divisions = np.array(self.divisions, np.int64)[np.clip(power - 20, 0, INTERVALS - 1)]
            coarse = (divisions > 1) & (size > MIN_BLOCK * divisions)
            step = np.int64(1) << np.maximum(power - (np.frexp(np.maximum(divisions, 1).astype(np.float64))[1] - 1), 0)
            result = np.where(coarse, -(-size // step) * step, result)
        return result


def allocator_rules(settings: Mapping[str, Any]) -> AllocatorRules:
    """The rules of a snapshot's ``allocator_settings``; absent or invalid values have their defaults."""
    given = settings.get("roundup_power2_divisions")
    given = given if isinstance(given, dict) else {}
    divisions = tuple(_count(given.get(str(1 << n))) for n in range(INTERVALS))
    split = settings.get("max_split_size")
    limit = split if isinstance(split, int) and not isinstance(split, bool) and 0 < split < 2**62 else None
    return AllocatorRules(divisions, limit, settings.get("expandable_segments") is True)


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= 2**20 else 0
