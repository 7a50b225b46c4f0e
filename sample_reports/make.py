"""Make the samples again, and reports from them.

    python sample_reports/make.py            the snapshots beside this file, the reports in sample_reports/reports
    python sample_reports/make.py --check    only tell whether the snapshots are what the generator makes today

The snapshots are committed, so that a report can be made before anything else works; the reports are built.
"""

from __future__ import annotations

import gzip
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
REPORTS = HERE / "reports"

SAMPLES: dict[str, dict[str, Any]] = {
    # Two good steps, then a batch of long documents whose score matrices do not fit: the first report to look at.
    "training.pickle.gz": {
        "preset": "oom", "seed": 1, "steps": 3, "layers": 6, "sequence": 768, "memory": 12 * 1024**3, "vary": 0.25,
        "stacks": "all", "metadata": True,
    },
    # Two devices with expandable segments and three streams; the second runs out.
    "two_devices.pickle.gz": {
        "preset": "multi-gpu", "seed": 2, "steps": 2, "devices": 2, "layers": 6, "vary": 0.4, "memory": 8 * 1024**3,
    },
    # Requests with key-value caches; recording began late, and its ring buffer was too small.
    "serving.pickle.gz": {
        "preset": "serving", "seed": 3, "events": 12_000, "max_entries": 8_000, "private_pools": 1,
    },
    # Gigabytes are reserved and free, and 96 MiB fit nowhere.
    "fragmentation.pickle.gz": {
        "preset": "fragmentation", "seed": 4, "steps": 1, "layers": 4,
    },
}  # fmt: skip


def main(arguments: list[str]) -> int:
    """Write or check; returns the exit code."""
    sys.path.insert(0, str(HERE.parent))
    if arguments == ["--check"]:
        return check()
    if arguments:
        print(__doc__, file=sys.stderr)
        return 2
    from snapreport import load, samples, write_report

    REPORTS.mkdir(exist_ok=True)
    for name, options in SAMPLES.items():
        size = samples.write(HERE / name, **options)
        report = REPORTS / f"{name.partition('.')[0]}.html"
        write_report([load(HERE / name)], report)
        print(f"{name}: {size:,} bytes; {report.relative_to(HERE)}: {report.stat().st_size:,} bytes")
    return 0


def check() -> int:
    """1 where a committed snapshot differs from what the generator makes (compressors may differ)."""
    import pickle

    from snapreport import samples

    stale = []
    for name, options in SAMPLES.items():
        path = HERE / name
        if not path.exists() or pickle.loads(gzip.decompress(path.read_bytes())) != samples.make(**options):
            stale.append(name)
    for name in stale:
        print(f"{name}: not what the generator makes; run python sample_reports/make.py", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
