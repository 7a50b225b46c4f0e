"""Digests that another process makes while a recorded one runs: one file for each rank, always its latest.

The recorded process needs nothing but torch. It writes a snapshot under a hidden name; the Python that snapreport is
installed in turns it into a digest, at any address that fsspec can write to, and removes it. A digest that is not
finished when the next one is due is not waited for: the next one is left out.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path

from snapreport.recorder.headline import reader_environment

LAST_SECONDS, NEXT_SECONDS = 60.0, 10.0
"""How long the end of a program waits for its last digest, and that one for the digest before it."""


class DigestProcess:
    """Makes digests in a process of its own, one at a time. python: which has snapreport; address: their folder."""

    def __init__(self, python: str, address: str) -> None:
        self._python, self._address = python, address
        self._process: subprocess.Popen[bytes] | None = None
        self._pid = os.getpid()

    @property
    def is_busy(self) -> bool:
        return self._process is not None and self._pid == os.getpid() and self._process.poll() is None

    def write(self, snapshot: Path, name: str, *, remove: bool) -> None:
        """Starts to write the digest ``name`` of ``snapshot``, which is removed then if ``remove``. Raises OSError."""
        environment = {**reader_environment(), "POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1"}
        target = f"{self._address.rstrip('/')}/{name}"
        arguments = [str(snapshot), target, *(["--remove"] if remove else [])]
        self._pid = os.getpid()
        # A session of its own: what ends the program's process group does not end its last digest.
        self._process = subprocess.Popen(
            [self._python, "-m", "snapreport.jobs.recorded_digest", *arguments], env=environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip

    def finish(self, seconds: float = LAST_SECONDS) -> bool:
        """Waits for the digest under way. Returns whether there is none any more."""
        if self.is_busy and self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(seconds)
        return not self.is_busy
