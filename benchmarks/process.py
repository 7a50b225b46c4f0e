"""Measures a whole process: wall and processor time and peak memory, as the system accounts for it when it ends."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass


@dataclass(frozen=True)
class Cost:
    """``seconds`` of wall time, ``processor`` seconds of all threads, ``memory``: bytes resident at the peak."""

    seconds: float
    processor: float
    memory: int


# A small process between: the system's maximum for a process includes what its parent had when it started it, and this
# one has made the samples (299 MiB instead of 272 for a report of 107 MB).
_LAUNCHER = """
import os, resource, sys, time
began = time.perf_counter()
child = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ)
_, status, usage = os.wait4(child, 0)
print(time.perf_counter() - began, usage.ru_utime + usage.ru_stime, usage.ru_maxrss, os.waitstatus_to_exitcode(status))
"""


def cost(*arguments: object) -> Cost:
    """Runs this Python with ``arguments``, quietly. -P: the installed package is measured, not the checkout."""
    command = [sys.executable, "-P", *map(str, arguments)]
    # polars sets this for its allocator in any process that imports it, so it is set here; a command from a shell
    # does not inherit it (287 MiB instead of 270 for a report of 107 MB).
    environment = {name: value for name, value in os.environ.items() if name != "_RJEM_MALLOC_CONF"}
    with tempfile.TemporaryFile() as errors:
        launcher = [sys.executable, "-I", "-S", "-c", _LAUNCHER]
        done = subprocess.run(
            [*launcher, *command], stdout=subprocess.PIPE, stderr=errors, text=True, check=True, env=environment
        )
        seconds, processor, memory, code = done.stdout.split()[-4:]
        if code != "0":
            errors.seek(0)
            sys.exit(f"{' '.join(map(str, arguments))}: exit code {code}\n{errors.read().decode()}")
    # Linux counts in KiB, macOS in bytes.
    return Cost(float(seconds), float(processor), int(memory) * (1 if sys.platform == "darwin" else 1024))


def median(costs: list[Cost]) -> Cost:
    """The median of each figure separately."""
    middle = len(costs) // 2
    figures = zip(*((one.seconds, one.processor, one.memory) for one in costs), strict=True)
    seconds, processor, memory = (sorted(figure)[middle] for figure in figures)
    return Cost(seconds, processor, int(memory))
