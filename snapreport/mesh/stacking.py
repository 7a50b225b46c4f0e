"""Stacked offsets: allocations lie on each other in birth order, and slide down when one below goes.

Exactly, ``offset(a, s)`` is the sum of the sizes of those born before ``a`` that live at position ``s``. All functions
take positions as ``s`` = position + 1, so that ``s = 0`` is the state before the first event.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Lifetimes:
    """What stacking needs of one device, in birth order (index = allocation id).

    ``start``, ``end``: int64[N], live at s with ``start <= s < end``; ``size``: int64[N] bytes; ``stack``: int64[N];
    ``allocated``: int64[P], live bytes at every s.
    """

    start: Ints
    end: Ints
    size: Ints
    stack: Ints
    allocated: Ints

    @property
    def positions(self) -> int:
        return len(self.allocated)


def live_at(lifetimes: Lifetimes, s: int) -> Ints:
    """Ids that live at ``s``, bottom of the stack first. int64[live]."""
    return np.flatnonzero((lifetimes.start <= s) & (lifetimes.end > s))


def offsets_at(lifetimes: Lifetimes, s: int) -> tuple[Ints, Ints]:
    """Ids that live at ``s`` and the exact byte at which each begins. Two int64[live]."""
    ids = live_at(lifetimes, s)
    sizes = lifetimes.size[ids]
    return ids, np.cumsum(sizes) - sizes


def birth_offsets(lifetimes: Lifetimes) -> Ints:
    """The byte at which each allocation begins at the position it is born. int64[N].

    No replay is needed: when an allocation is born, everything else that lives is older and so lies below it, which
    leaves ``allocated - size``. Those from before the trace are born together and lie on each other in id order.
    """
    start, size = lifetimes.start, lifetimes.size
    offsets: Ints = np.maximum(lifetimes.allocated[start] - size, 0)
    before = int(np.searchsorted(start > 0, True)) if len(start) else 0
    offsets[:before] = np.cumsum(size[:before]) - size[:before]
    return offsets
