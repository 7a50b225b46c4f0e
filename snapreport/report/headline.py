"""``python -m snapreport.report.headline SNAP``: the report's first sentences, for the log of a failing process."""

from __future__ import annotations

import sys

from snapreport.report.summary import summarise
from snapreport.snapshot import load


def headline(path: str) -> str:
    """The first sentences of a report of the snapshot. Raises :class:`snapreport.SnapshotError`."""
    lines = summarise([load(path)], path).headline_text
    return lines[0] if lines else ""


if __name__ == "__main__":
    sys.stdout.write(headline(sys.argv[1]))
