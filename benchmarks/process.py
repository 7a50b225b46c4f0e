"""Measures a whole process: wall seconds and peak memory, as the operating system accounts for it when it ends."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Cost:
    """``seconds`` of wall time, ``memory``: bytes resident at the peak."""

    seconds: float
    memory: int


def cost(*arguments: object) -> Cost:
    """Runs this Python with ``arguments``, quietly. -P: the installed package is measured, not the checkout."""
    command = [sys.executable, "-P", *map(str, arguments)]
    with tempfile.TemporaryFile() as errors:
        began = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            errors.seek(0)
            sys.exit(f"{' '.join(map(str, arguments))}: exit code {process.returncode}\n{errors.read().decode()}")
    # Linux counts in KiB, macOS in bytes.
    return Cost(seconds, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024))


def median(costs: list[Cost]) -> Cost:
    """The median of each figure separately."""
    middle = len(costs) // 2
    return Cost(sorted(c.seconds for c in costs)[middle], sorted(c.memory for c in costs)[middle])
