"""How a process gives memory back to the system.

A command reads in one thread, lays out in others, and frees most of what reading took: a million small objects. By
default glibc keeps a heap for each of these threads, and what one frees the others cannot use. Measured on a pickle of
727 MB: 1,465 MB at the peak with a heap for each thread, 1,195 with one for all, in the same time.

Where the rest goes, in MB resident on a pickle of 107 MB (920,183 events, 307,000 allocations; bare load 458):

========================================================  ====
numpy, polars and this package, imported                    68
code of polars that runs for the first time                 12
events: 29 bytes each (action, address, size, time, stack)  26
allocations, curves, blocks                                 60
arenas of Python that a few objects of reading hold          8
columns and their encoding                                  40
temporary arrays, at most (blocks, the stored tile)         90
========================================================  ====

A limit on what glibc takes from its heap (mallopt, M_MMAP_THRESHOLD) would save 20 MB more and cost a quarter of the
processor's time.
"""

from __future__ import annotations

import contextlib
import gc
import sys

_M_ARENA_MAX = -8  # of <malloc.h>


def share_one_heap() -> None:
    """Makes all threads of this process that start from now on take memory from one heap. Linux with glibc only."""
    _call("mallopt", _M_ARENA_MAX, 1)


def release_freed() -> None:
    """Gives freed memory back to the system: 90 MB after reading a pickle of 107 MB. With glibc only, but for Python's
    own part: a full collection empties the lists of freed tuples, whose few kilobytes lie in 50 MB of arenas.
    """
    gc.collect()
    trim()


def trim() -> None:
    """Gives back the pages that freed arrays have left: some milliseconds, and 50 MB after each step of a report over
    920,183 events. Linux with glibc only.
    """
    _call("malloc_trim", 0)


def _call(name: str, *arguments: int) -> None:
    if sys.platform != "linux":
        return
    import ctypes  # numpy has imported it already

    # Other C libraries have neither function.
    with contextlib.suppress(OSError, AttributeError):
        getattr(ctypes.CDLL(None), name)(*arguments)
