"""The cost of a job of many ranks: seconds on one process and on two, memory of the reducer and of its workers, the
size of the report and how long it takes to open.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import generator

MEDIUM = {"hidden": 512, "layers": 6, "steps": 10, "micro_batches": 4}
"""1.5 MB a rank."""
LARGE = {"hidden": 512, "layers": 12, "steps": 300, "micro_batches": 4}
"""About 100 MB a rank."""
# A separate process: its peak is the reducer's, and that of its children the largest worker's. The maximum of getrusage
# includes what the parent had when it started the process: 712 MiB here, after it had made the large ranks.
PROGRAM = """
import json, sys, threading, time
from pathlib import Path

def peak(process):
    try:
        lines = Path("/proc", str(process), "status").read_text().splitlines()
        return next((int(line.split()[1]) >> 10 for line in lines if line.startswith("VmHWM")), 0)
    except OSError:
        return 0

def watch(peaks):
    while True:
        for task in Path("/proc/self/task").iterdir():
            try:
                children = (task / "children").read_text().split()
            except OSError:
                children = []
            peaks.append(max([peaks.pop(), *map(peak, children)]))
        time.sleep(0.05)

if __name__ == "__main__":
    workers_peak = [0]
    threading.Thread(target=watch, args=(workers_peak,), daemon=True).start()
    from snapreport.jobs.build import PageOptions, build_job, job
    folder, workers, out = sys.argv[1:]
    began = time.perf_counter()
    reduced = job(folder, jobs=int(workers))
    digested = time.perf_counter()
    document = build_job(reduced, PageOptions(detail=()))
    written = time.perf_counter()
    # As the command does: large ranks in full are laid out by a process of their own.
    full = build_job(reduced, PageOptions(is_apart=int(workers) > 1))
    open(out, "wb").write(full)
    print(json.dumps({
        "digests_s": digested - began, "report_s": written - digested, "detail_s": time.perf_counter() - written,
        "reducer_mib": peak("self"), "worker_mib": workers_peak[0], "report_bytes": len(full),
        "digest_bytes": max(len(row.packed.data) for row in reduced.rows),
    }))
"""


def linked(folder: Path, ranks: int, distinct: int, options: dict[str, Any]) -> int:
    """Files of ``ranks`` ranks in ``folder``, of which ``distinct`` are written and the others are links; the bytes of
    one. Names contain the ranks.
    """
    folder.mkdir(parents=True)
    given = {"ranks": min(distinct, ranks), "metadata": False, "seed": 1, **options}
    made = generator.write_job(folder.parent / f"{folder.name}-made", "experts", **given)
    for rank in range(ranks):
        (folder / f"rank{rank}.pickle").hardlink_to(made[rank % len(made)])
    return made[0].stat().st_size


def measure(
    folder: Path, browser: Any, ranks: int, workers: tuple[int, ...], options: dict[str, Any], distinct: int = 32
) -> list[dict[str, Any]]:
    """A row for each number of workers, over the same files."""
    snapshots = folder / f"ranks{ranks}-{options['steps']}"
    size = linked(snapshots, ranks, distinct, options)
    script = folder / "job_cost_program.py"
    script.write_text(PROGRAM)
    rows, reports = [], []
    for count in workers:
        out = folder / f"{snapshots.name}-{count}.html"
        command = [sys.executable, script, snapshots, str(count), out]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(done.stderr)
        row: dict[str, Any] = {"ranks": ranks, "snapshot_bytes": size, "workers": count, **json.loads(done.stdout)}
        row["opens_s"] = _opening(browser, out) if browser else None
        rows.append(row)
        reports.append(out.read_bytes())
        print(_line(row), flush=True)
    if len(set(reports)) > 1:
        sys.exit("the reports of different numbers of workers differ")
    return rows


def run(folder: Path, browser: Any, ranks: list[int]) -> list[dict[str, Any]]:
    """A job of each number in ``ranks`` (8 are of 100 MB each, others of 1.5 MB), on one process and on two."""
    rows = []
    for count in ranks:
        options = LARGE if count == 8 else MEDIUM
        rows += measure(folder, browser, count, (1, 2), options, 2 if count == 8 else 32)
    return rows


def _opening(browser: Any, report: Path) -> float:
    """Seconds from the start of navigation until the map is painted from real data."""
    context = browser.new_context(offline=True, viewport={"width": 1400, "height": 900})
    page = context.new_page()
    page.goto(report.as_uri())
    milliseconds = page.evaluate("snapreport.ready.then(() => performance.now())")
    context.close()
    return float(milliseconds) / 1000


def _line(row: dict[str, Any]) -> str:
    opens = "" if row["opens_s"] is None else f", opens in {row['opens_s']:.2f} s"
    stages = [row[name] for name in ("digests_s", "report_s", "detail_s")]
    digests, report, detail = (f"{seconds:.1f} s ({seconds / max(sum(stages), 1e-9):.0%})" for seconds in stages)
    return (
        f"{row['ranks']:,} ranks of {row['snapshot_bytes'] / 1e6:.1f} MB, {row['workers']} workers: "
        f"digests {digests}, report {report} and {detail} for two in full, "
        f"{row['report_bytes'] / 1e6:.2f} MB{opens}; reducer {row['reducer_mib']} MiB, "
        f"worker {row['worker_mib']} MiB; largest digest {row['digest_bytes'] / 1e3:.1f} KB"
    )
