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
temporary arrays, at most (blocks)                         50
========================================================  ====
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys

_M_ARENA_MAX, _M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD = -8, -3, -1  # of <malloc.h>
_ALONE, _KEPT = 3 << 20, 12 << 20
_MOST_THREADS = 4
"""Of polars. It starts one for each core: with 128 instead of 2, a report of 22,000 events takes 1.45 instead of 0.93 s
of processor time. A second one saves 5% of the time of 3,000,000 events, and nothing with 900,000.
"""


def keep_little() -> None:
    """Tells numpy and polars to keep little memory and few threads. Must be called before they are imported."""
    # numpy's linear algebra starts a thread for each core when it is imported; nothing here needs it.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    os.environ.setdefault("POLARS_MAX_THREADS", str(min(_MOST_THREADS, cores)))
    # polars keeps freed memory for seconds, and some of it permanently: 30 MB for 920,183 events. Giving it back at
    # once would save 10 MB more, but takes a tenth of the time.
    os.environ.setdefault("_RJEM_MALLOC_CONF", "dirty_decay_ms:25,muzzy_decay_ms:0")


def share_one_heap() -> None:
    """Makes all threads of this process that start from now on take memory from one heap. Linux with glibc only.

    Arrays of 3 MiB and more are outside of it, and given back at once: by default, glibc raises that limit to 32 MiB
    when it frees such an array. That saves 40 MB of 320 on a pickle of 107 MB; a limit of 1 MiB saves 10 more, but
    takes a quarter more of the processor's time.
    """
    _call("mallopt", _M_ARENA_MAX, 1)
    _call("mallopt", _M_MMAP_THRESHOLD, _ALONE)
    # With that limit set, more than 128 KiB free at the heap's end are given back by default: a quarter of all page
    # faults, and a tenth of the processor's time.
    _call("mallopt", _M_TRIM_THRESHOLD, _KEPT)


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
