"""Refuses to go on in a fork of a process whose polars had threads: the fork lacks them, and would wait for them.

``multiprocessing`` and ``concurrent.futures`` fork by default on Linux, up to Python 3.13.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from snapreport.errors import SnapshotError

_THREADS = Path("/proc/self/task")
_state = {"is_used": False, "is_fork": False}


def check_fork() -> None:
    """Call before polars is used. Raises :class:`SnapshotError` in such a fork."""
    if _state["is_fork"]:
        raise SnapshotError(
            "this process is a fork of one that had used polars, whose threads it lacks: start it with "
            "multiprocessing.get_context('spawn') or 'forkserver'"
        )
    _state["is_used"] = True


def _has_threads() -> bool:
    """Whether polars has started its threads, by their names where the system lists them."""
    if "polars" not in sys.modules:
        return False
    try:
        names = [(thread / "comm").read_text() for thread in _THREADS.iterdir()]
    except OSError:
        return _state["is_used"]
    return any(re.match(r"polars-\d", name) for name in names)


def _before_fork() -> None:
    _state["had_threads"] = _has_threads()


def _in_child() -> None:
    _state["is_fork"] = _state["is_fork"] or _state["had_threads"]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_child=_in_child)
