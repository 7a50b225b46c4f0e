"""Things that have an address and a lifetime: which of them is live at or next to an address at a position."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from snapreport.ordering import stable_order

_AT_ONCE = 1 << 16


def ends_of(address: np.ndarray, size: np.ndarray) -> np.ndarray:
    """UInt64 addresses behind things of ``size`` bytes; what a broken record puts beyond 64 bits ends at the last
    one.
    """
    end = address + size.astype(np.uint64)
    return np.where(end < address, np.uint64(2**64 - 1), end)


class Lifetimes:
    """Looked up by address and position; things at one address follow each other in time.

    address: UInt64. begin: positions from which each is there (-1: from before the first event). end: positions from
    which it is gone (-1: never). Rows are numbers of these arrays.
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
        self._unit = int(max(begins.max(initial=0), 0)) + 2
        self._key = rank * self._unit + begins + 1
        if (np.diff(self._key) < 0).any():
            order = np.argsort(self._key, kind="stable")
            self._row, self._key, self._end, rank = self._row[order], self._key[order], self._end[order], rank[order]
        self._rank = rank

    def at(self, rank: np.ndarray, position: np.ndarray) -> np.ndarray:
        """Row that is live at ``addresses[rank]`` at each position, -1 where none is."""
        if not len(self._key):
            return np.full(len(rank), -1, np.int64)
        wanted = rank * self._unit + np.minimum(position.astype(np.int64) + 1, self._unit - 1)
        found = np.maximum(np.searchsorted(self._key, wanted, "right") - 1, 0)
        live = (self._key[found] <= wanted) & (self._rank[found] == rank) & (self._end[found] > position)
        return np.where(live, self._row[found], -1)

    def next_from(self, address: np.ndarray, position: np.ndarray, limit: np.ndarray) -> np.ndarray:
        """Row of the live one with the lowest address from ``address`` up to and with ``limit``; -1 where there is
        none.

        Walks over the addresses that were ever used, all queries at once; those that have their answer drop out.
        """
        result = np.full(len(address), -1, np.int64)
        for part in _parts(stable_order(address)):
            start = np.searchsorted(self.addresses, address[part], "left")
            stop = np.searchsorted(self.addresses, limit[part], "right")
            self._walk(result, part, start, position[part], stop, 1)
        return result

    def last_to(self, address: np.ndarray, position: np.ndarray) -> np.ndarray:
        """Row of the live one with the greatest address at or below ``address``; -1 where there is none."""
        result = np.full(len(address), -1, np.int64)
        for part in _parts(stable_order(address)):
            start = np.searchsorted(self.addresses, address[part], "right") - 1
            self._walk(result, part, start, position[part], np.full(len(start), -1), -1)
        return result

    def first_born_from(self, address: np.ndarray, limit: np.ndarray, before: np.ndarray) -> np.ndarray:
        """Row of the lowest address from ``address`` to ``limit`` at which something was born in the trace, before
        event ``before``.

        -1 where there is none.
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
        """Fill in ``result`` for the queries ``asking``, which are in order of address: a search finds its way in
        memory that it has just seen.
        """
        valid = np.flatnonzero(rank != stop if step < 0 else rank < stop)
        asking, rank, position, stop = asking[valid], rank[valid], position[valid], stop[valid]
        while len(asking):
            row = self.at(rank, position)
            result[asking] = row
            rank = rank + step
            left = (row < 0) & (rank != stop)
            asking, rank, position, stop = asking[left], rank[left], position[left], stop[left]


def _parts(order: np.ndarray) -> Iterator[np.ndarray]:
    """Queries, some at a time: a dozen columns of each are at work, 30 MB for 300,000 queries at once."""
    for begin in range(0, len(order), _AT_ONCE):
        yield order[begin : begin + _AT_ONCE]
