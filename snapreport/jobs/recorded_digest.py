"""``python -m snapreport.jobs.recorded_digest SNAPSHOT ADDRESS [--remove]``: makes a recorder's digest.

Its priority is the lowest, since a training process runs beside it. An error is one line on standard error.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

from snapreport.errors import SnapshotError, one_line
from snapreport.terminal import echo, lines


def main(arguments: list[str]) -> int:
    """The exit code."""
    snapshot, address, *options = arguments
    with contextlib.suppress(OSError, AttributeError):
        os.nice(10)
    try:
        from snapreport.jobs.digest import digest_bytes
        from snapreport.reading.paths import write_binary
        from snapreport.snapshot import load

        write_binary(address, digest_bytes(load(snapshot)))
    except (SnapshotError, OSError, MemoryError) as error:
        echo(lines([one_line(f"snapreport: no digest: {error or type(error).__name__}")]), err=True)
        return 1
    finally:
        if "--remove" in options:
            with contextlib.suppress(OSError):
                Path(snapshot).unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
