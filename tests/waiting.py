"""Waits for what becomes true sooner or later. No test waits for a fixed time, or asserts how long something takes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

# Ends a test that would wait forever. On a busy machine everything takes several times as long, so it says nothing
# about speed; commands and browsers are given as long.
GUARD_SECONDS = 300


def wait_until(condition: Callable[[], T], what: str, pause: Callable[[float], None] = time.sleep) -> T:
    """The first value of ``condition()`` that is true; ``what`` it was, where none comes."""
    end = time.monotonic() + GUARD_SECONDS
    while not (value := condition()):
        assert time.monotonic() < end, f"never came true: {what}"
        pause(0.005)
    return value
