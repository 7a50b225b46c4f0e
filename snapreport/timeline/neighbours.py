"""Lookup of ranges with an address and a lifetime: which is live at or next to an address at a position."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from snapreport.integers import stable_order

_AT_ONCE = 1 << 16


def ends_of(address: np.ndarray, size: np.ndarray) -> np.ndarray:
    """UInt64 end addresses of ranges of ``size`` bytes; an end beyond 64 bits, in a broken record, becomes the last
    address.
    """
    end = address + size.astype(np.uint64)
    return np.where(end < address, np.uint64(2**64 - 1), end)


def containing(start: np.ndarray, length: np.ndarray, address: np.ndarray) -> np.ndarray:
    """Int64 row of the range that contains each address, -1: none. ``start``: UInt64, ascending."""
    if not len(start):
        return np.full(len(address), -1, np.int64)
    row = np.searchsorted(start, address, "right").astype(np.int64) - 1
    return np.where((row >= 0) & (address - start[row] < length[row].astype(np.uint64)), row, -1)


class Lifetimes:
    """Lookup by address and position; ranges at one address do not overlap in time.

    address: UInt64. begin: first positions at which each is live (-1: from before the first event). end: first
    positions at which it no longer is (-1: never). Rows are indices into these arrays.
    """

    def __init__(self, address: np.ndarray, begin: np.ndarray, end: np.ndarray) -> None:
        self._row = stable_order(address)
        by_address = address[self._row]
        first = np.ones(len(by_address), bool)
        first[1:] = by_address[1:] != by_address[:-1]
        self.addresses = by_address[first]
        rank = np.cumsum(first) - 1
        begins = begin[self._row].astype(np.int64)
        never = np.iinfo(np.int64).max
        self._end = np.where(end[self._row] < 0, never, end[self._row].astype(np.int64))
        self._unit = int(begins.max(initial=0)) + 2
        self._key = rank * self._unit + begins + 1
        if (np.diff(self._key) < 0).any():
            order = np.argsort(self._key, kind="stable")
            self._row, self._key, self._end, rank = self._row[order], self._key[order], self._end[order], rank[order]
        self._rank = rank

    def at(self, rank: np.ndarray, position: np.ndarray) -> np.ndarray:
        """Row that is live at ``addresses[rank]`` at each position, -1 if none is."""
        if not len(self._key):
            return np.full(len(rank), -1, np.int64)
        wanted = rank * self._unit + np.minimum(position.astype(np.int64) + 1, self._unit - 1)
        found = np.searchsorted(self._key, wanted, "right") - 1
        live = (self._key[found] <= wanted) & (self._rank[found] == rank) & (self._end[found] > position)
        return np.where(live, self._row[found], -1)

    def next_from(self, address: np.ndarray, position: np.ndarray, limit: np.ndarray) -> np.ndarray:
        """Row of the live range with the lowest address from ``address`` to ``limit``, inclusive; -1 if there is none.

        Walks over all addresses ever used, for all queries at once; answered queries drop out.
        """
        result = np.full(len(address), -1, np.int64)
        for part in _parts(stable_order(address)):
            start = np.searchsorted(self.addresses, address[part], "left")
            stop = np.searchsorted(self.addresses, limit[part], "right")
            self._walk(result, part, start, position[part], stop, 1)
        return result

    def last_to(self, address: np.ndarray, position: np.ndarray) -> np.ndarray:
        """Row of the live range with the highest address at or below ``address``; -1 if there is none."""
        result = np.full(len(address), -1, np.int64)
        for part in _parts(stable_order(address)):
            start = np.searchsorted(self.addresses, address[part], "right") - 1
            self._walk(result, part, start, position[part], np.full(len(start), -1), -1)
        return result

    def first_born_from(self, address: np.ndarray, limit: np.ndarray, before: np.ndarray) -> np.ndarray:
        """Row of the lowest address from ``address`` to ``limit`` at which a range was born in the trace, before event
        ``before``.

        -1 if there is none.
        """
        rank, stop = np.searchsorted(self.addresses, address, "left"), np.searchsorted(self.addresses, limit, "right")
        result = np.full(len(rank), -1, np.int64)
        asking = np.flatnonzero(rank < stop)
        while len(asking):
            key = rank[asking] * self._unit + 1  # of a birth at event 0
            found = np.minimum(np.searchsorted(self._key, key), len(self._key) - 1)
            begin = self._key[found] - key
            hit = (self._rank[found] == rank[asking]) & (begin >= 0) & (begin < before[asking])
            result[asking[hit]] = self._row[found[hit]]
            rank[asking] += 1
            asking = asking[~hit & (rank[asking] < stop[asking])]
        return result

    def _walk(
        self,
        result: np.ndarray,
        asking: np.ndarray,
        rank: np.ndarray,
        position: np.ndarray,
        stop: np.ndarray,
        step: int,
    ) -> None:
        """Fill in ``result`` for the queries ``asking``, sorted by address, so that searches hit cached memory."""
        valid = np.flatnonzero(rank != stop if step < 0 else rank < stop)
        asking, rank, position, stop = asking[valid], rank[valid], position[valid], stop[valid]
        while len(asking):
            row = self.at(rank, position)
            result[asking] = row
            rank = rank + step
            left = (row < 0) & (rank != stop)
            asking, rank, position, stop = asking[left], rank[left], position[left], stop[left]


def _parts(order: np.ndarray) -> Iterator[np.ndarray]:
    """Queries in batches: each needs a dozen temporary columns, 30 MB for 300,000 queries at once."""
    for begin in range(0, len(order), _AT_ONCE):
        yield order[begin : begin + _AT_ONCE]
