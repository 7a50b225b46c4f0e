"""Make the samples again, and reports from them.

    python sample_reports/make.py            the snapshots beside this file, the reports in sample_reports/reports
    python sample_reports/make.py --check    only tell whether the snapshots are what the generator makes today

The snapshots are committed, so that a report can be made before anything else works; the reports are built.
"""

from __future__ import annotations

import gzip
import sys
from html import escape
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

ABOUT = {
    "training.pickle.gz": "training that runs out of memory on a batch of long documents",
    "two_devices.pickle.gz": "two devices with expandable segments; the second runs out of memory",
    "serving.pickle.gz": "a server with key-value caches, recorded late and with a ring buffer that was too small",
    "fragmentation.pickle.gz": "out of memory with gigabytes cached",
}


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
    rows = []
    for name, options in SAMPLES.items():
        size = samples.write(HERE / name, **options)
        report = REPORTS / f"{name.partition('.')[0]}.html"
        snapshot = load(HERE / name)
        write_report([snapshot], report)
        rows.append(
            (report.name, ABOUT[name], max(snapshot.timeline(device).peak_bytes for device in snapshot.devices))
        )
        print(f"{name}: {size:,} bytes; {report.relative_to(HERE)}: {report.stat().st_size:,} bytes")
    (REPORTS / "index.html").write_text(index(rows), encoding="utf-8")
    return 0


def index(rows: list[tuple[str, str, int]]) -> str:
    """A page that links the reports. ``rows``: file, what it shows, bytes allocated at the peak."""
    from snapreport.number_format import bytes_text

    entries = "\n".join(
        f'<li><a href="{escape(file)}">{escape(file)}</a>: {escape(about)} (peak {bytes_text(peak)})</li>'
        for file, about, peak in rows
    )
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Sample reports</title>
<style>body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 45em; margin: 2em auto; padding: 0 1em }}
:root {{ color-scheme: light dark }} li {{ margin: .5em 0 }}</style>
<h1>Sample reports</h1>
<ul>
{entries}
</ul>
</html>
"""


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
