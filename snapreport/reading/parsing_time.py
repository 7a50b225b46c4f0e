"""Whether parsing the entries of a pickle takes less time than unpickling them."""

from __future__ import annotations

import functools
import pickle
import statistics
import time

# Parsing is given up once it has taken longer than unpickling what was read so far and collecting columns, and this
# share of unpickling the file, or so many seconds, in which a recorder's frames and layouts become known. Parsing what
# a recorder writes takes half of unpickling.
_COLLECTED = 2.5  # times unpickling: 2 to 3.3 with columns to collect
ALLOWED_SHARE, ALLOWED_SECONDS = 0.1, 0.05
# The share of that while a quarter of the entries or more had to be read alone.
UNREAD_SHARE = 0.25
# The share of that after which parsing is given up though its last pieces were faster than unpickling. Without patience
# slow moments of a machine ended parsing of 900,000 different stacks in two loads of seven, at 1.5 in one of eight.
PATIENCE = 2


class ParsingTime:
    """Of a pickle of ``size`` bytes."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._bytes, self._seconds = 0, 0.0
        self._recent_bytes, self._recent_seconds = 0.0, 0.0  # of the last pieces, each half as much as the next

    def add(self, count: int, seconds: float) -> None:
        """Bytes were parsed, in this time of the thread."""
        self._bytes += count
        self._seconds += seconds
        self._recent_bytes = self._recent_bytes / 2 + count
        self._recent_seconds = self._recent_seconds / 2 + seconds

    def would_exceed(self, count: int, seconds: float, share: float) -> bool:
        """Whether parsing would take more than this share of the time allowed, after so many more bytes and seconds."""
        return self._seconds + seconds > share * self._allowed(self._bytes + count)

    def is_worthwhile(self, share: float) -> bool:
        """Whether parsing has been faster than this share of unpickling, as far as it is known, or has become so."""
        return not self.would_exceed(0, 0, share) or (
            self._seconds <= share * PATIENCE * self._allowed(self._bytes)
            and self._recent_seconds <= self._recent_bytes * _unpickling_seconds()
        )

    def _allowed(self, count: int) -> float:
        more = max(ALLOWED_SECONDS, ALLOWED_SHARE * self._size * _unpickling_seconds())
        return more + _COLLECTED * count * _unpickling_seconds()


@functools.cache
def _unpickling_seconds() -> float:
    """Of the C unpickler, for a byte of a typical trace, on this machine now."""
    frames = [{"filename": f"{i}.py", "line": i, "name": "forward"} for i in range(50)]
    entry = {"action": "alloc", "size": 4096, "stream": 0, "compile_context": "N/A", "user_metadata": ""}
    trace = [entry | {"addr": 1 << 46 | i, "time_us": 1 << 50 | i, "frames": frames[i % 40 :][:10]} for i in range(300)]
    pickled = pickle.dumps(trace, 4)
    taken = []
    for _ in range(3):
        began = time.thread_time()
        pickle.loads(pickled)
        taken.append(time.thread_time() - began)
    return statistics.median(taken) / len(pickled)
