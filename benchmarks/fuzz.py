"""Thousands of hostile files: counts crashes, hangs, memory and wrong numbers. ``python -m benchmarks fuzz``.

A worker reads file after file; this process watches its processor time and memory. A file that hangs it or takes too
much memory is passed to the command line, which has to end it by itself: one line that names the file, exit code 2, in
time.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.fuzz_cases import KINDS
from benchmarks.inputs import ROOT

HANG_SECONDS = 10.0  # of processor time
MEMORY = 2 << 30
RESTARTED_AFTER = 1500  # cases; a worker that grows slowly is noticed before that
FAULTS = ("crash", "hang", "memory", "wrong")


@dataclass
class Tally:
    """``counts``: (kind, container) to outcomes. ``faults``: outcomes that must not occur, to be examined."""

    counts: dict[tuple[str, str], Counter[str]] = field(default_factory=dict)
    faults: list[dict[str, Any]] = field(default_factory=list)

    def add(self, answer: dict[str, Any]) -> None:
        key = answer["kind"], answer["container"]
        self.counts.setdefault(key, Counter())[answer["result"]] += 1
        if answer["result"] in FAULTS:
            self.faults.append(answer)

    def merge(self, other: Tally) -> None:
        for key, counter in other.counts.items():
            self.counts.setdefault(key, Counter()).update(counter)
        self.faults += other.faults


class Worker:
    """A process that reads cases."""

    def __init__(self, folder: Path, seed: int, real: bool) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        command = [sys.executable, "-m", "benchmarks.fuzz_worker", str(folder), str(seed), "real" if real else "-"]
        paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT,
            env={**os.environ, "PYTHONPATH": paths, "POLARS_MAX_THREADS": "2", "OPENBLAS_NUM_THREADS": "1"},
        )  # fmt: skip
        self.cases = 0
        assert self.process.stdout
        if not self.process.stdout.readline():
            raise RuntimeError("the worker does not start")

    def read(self, number: int) -> dict[str, Any]:
        """The answer; ``result`` is ``crash``, ``hang`` or ``memory`` where there is none, and the worker is ended."""
        assert self.process.stdin and self.process.stdout
        self.cases += 1
        began = self._seconds()
        self.process.stdin.write(f"{number}\n")
        self.process.stdin.flush()
        while not select.select([self.process.stdout], [], [], 0.05)[0]:
            if self._seconds() - began > HANG_SECONDS:
                return self._ended(number, "hang")
            if self._memory() > MEMORY:
                return self._ended(number, "memory")
        line = self.process.stdout.readline()
        if not line:
            return self._ended(number, "crash", f"ended with {self.process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream:
                stream.close()

    def _ended(self, number: int, result: str, detail: str = "") -> dict[str, Any]:
        self.close()
        return {"number": number, "result": result, "detail": detail}

    def _seconds(self) -> float:
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _memory(self) -> int:
        try:
            return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except OSError:
            return 0


def run(
    count: int, folder: Path, *, seed: int = 0, workers: int = 2, real: bool = True, keep: Path | None = None
) -> Tally:
    """Reads ``count`` cases. ``keep``: a folder for the faulty files."""
    tally = Tally()
    with ThreadPoolExecutor(workers) as pool:
        for part in pool.map(
            lambda n: _share(range(n, count, workers), folder / str(n), seed, real, keep), range(workers)
        ):
            tally.merge(part)
    return tally


def _share(numbers: range, folder: Path, seed: int, real: bool, keep: Path | None) -> Tally:
    tally, worker = Tally(), Worker(folder, seed, real)
    for number in numbers:
        if worker.process.poll() is not None or worker.cases >= RESTARTED_AFTER:
            worker.close()
            worker = Worker(folder, seed, real)
        answer = worker.read(number)
        if "kind" not in answer:
            from benchmarks.fuzz_cases import Cases

            case = Cases(seed, real=real).case(number)
            answer |= {"kind": case.kind, "container": case.container}
        if answer["result"] in ("hang", "memory", "command line"):
            answer |= by_command_line(folder / "case.pickle", answer["result"])
        if answer["result"] in FAULTS and keep:
            keep.mkdir(parents=True, exist_ok=True)
            shutil.copy(folder / "case.pickle", keep / f"{number}-{answer['result']}.pickle")
        tally.add(answer)
    worker.close()
    return tally


def by_command_line(path: Path, fault: str) -> dict[str, str]:
    """How the command line handles a file that a program could not read: ``ended``, or the fault."""
    command = [sys.executable, "-m", "snapreport", "stats", str(path), "--max-memory", str(MEMORY)]
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors, cwd=ROOT)
        # Waits without a limit: the test is that the process ends by itself, and its processor time is what counts.
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = code = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        text = errors.read()
    if (seconds := usage.ru_utime + usage.ru_stime) > HANG_SECONDS:
        return {"result": "hang", "detail": f"ended after {seconds:.1f} s"}
    lines = text.splitlines()
    if code == 0 and fault == "command line":
        return {"result": "read", "detail": ""}
    if code == 2 and len(lines) == 1 and str(path) in lines[0]:
        return {"result": "ended", "detail": lines[0]}
    return {"result": "crash", "detail": f"exit code {code}: {text[-500:]}"}


def table(tally: Tally) -> str:
    """A row for each kind of case, and one for each container."""
    columns = ("cases", "refused", "read", "equal to the oracle", "ended", *FAULTS)
    heads = (*columns[:5], "crashes", "hangs over 10 s", "memory over 2 GiB", "wrong numbers")
    rows = [["", *heads]]
    for title, part in (("kind", 0), ("container", 1)):
        for name in sorted(
            {key[part] for key in tally.counts}, key=lambda n: list(KINDS).index(n) if n in KINDS else 99
        ):
            total: Counter[str] = sum((c for key, c in tally.counts.items() if key[part] == name), Counter())
            rows.append([f"{title}: {name}", *_cells(total)])
    rows.append(["all", *_cells(sum(tally.counts.values(), Counter()))])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *(v.rjust(w) for v, w in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    ]
    faults = [f"case {f['number']} ({f['kind']}, {f['container']}): {f['result']}: {f['detail']}" for f in tally.faults]
    return "\n".join([*lines, *faults[:50]])


def _cells(counts: Counter[str]) -> list[str]:
    read = counts["read"] + counts["same"]
    values = (counts.total(), counts["refused"], read, counts["same"], counts["ended"], *(counts[f] for f in FAULTS))
    return [f"{value:,}" for value in values]
