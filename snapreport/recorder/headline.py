"""The report's first sentence for the log of the process that runs out of memory, computed by another process.

The recorded process needs nothing but torch, and has no memory to spare, so the Python that snapreport is installed in
reads the snapshot.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path

from snapreport.recorder.options import VARIABLE

SECONDS = 20.0
"""Maximum delay of the exception for the headline, after the snapshot is on disk."""


def reader_environment() -> dict[str, str]:
    """Of a process that reads what this one records, and is not recorded itself."""
    environment = {key: value for key, value in os.environ.items() if key != VARIABLE}
    return {**environment, "PYTHONPATH": str(Path(__file__).resolve().parent.parent.parent)}


def report_headline(python: str, snapshot: Path, seconds: float = SECONDS) -> str:
    """The first sentence of a report of ``snapshot``; empty if ``python`` does not return it in time."""
    if seconds < 1:
        return ""
    with contextlib.suppress(OSError, subprocess.SubprocessError, UnicodeDecodeError):
        done = subprocess.run(
            [python, "-m", "snapreport.report.headline", str(snapshot)], env=reader_environment(),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            timeout=seconds, check=False, encoding="utf-8",
        )  # fmt: skip
        return done.stdout.strip() if done.returncode == 0 else ""
    return ""
