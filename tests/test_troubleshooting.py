"""The rows of the troubleshooting page, tried one by one: each sentence that it quotes is what somebody reads."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import corpus
import pytest
from cli import command, in_process

from snapreport.samples import recordings

PAGE = Path(__file__).resolve().parent.parent / "docs" / "troubleshooting.md"
ROWS = [line.strip("|").split("|") for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| ")][1:]


def said(*arguments: object) -> str:
    run = in_process(*arguments)
    return run.out + run.err


def changed(folder: Path, name: str, change: Callable[[Any], object]) -> Path:
    """A snapshot without something."""
    raw = pickle.loads(corpus.path_of(name).read_bytes())
    change(raw)
    (folder / "changed.pickle").write_bytes(pickle.dumps(raw))
    return folder / "changed.pickle"


def recorded(folder: Path) -> str:
    (folder / "program.py").write_text("print(1)\n")
    run = in_process("record", "-o", folder / "run", "--every", "10", "--", sys.executable, folder / "program.py")
    return run.err


def written(folder: Path) -> str:
    """A report over another's file; and with ``--force``."""
    (folder / "page.html").write_text("not ours")
    answer = said(recordings("late")[0], "-o", folder / "page.html")
    assert (folder / "page.html").read_text() == "not ours"
    assert in_process(recordings("late")[0], "-o", folder / "page.html", "--force").code == 0
    return answer


def limited(size: str) -> str:
    """In a process of its own, which has the limit."""
    done = subprocess.run(
        [*command(), "stats", LATE, "--max-memory", size], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    return done.stderr


def without_ring(raw: Any) -> None:
    for name in ("trace_alloc_overflowed", "trace_alloc_max_entries"):
        del raw["allocator_settings"][name]


def without_frees(raw: Any) -> None:
    raw["device_traces"] = [[e for e in trace if e["action"] != "free_completed"] for trace in raw["device_traces"]]


LATE, OOM = recordings("late")[0], recordings("training")[0]
# What prints the sentence; by the beginning of the first cell without its quotes.
TRIED: dict[str, Callable[[Path], str]] = {
    "no snapshot given": lambda _: said() + said("sats"),
    "no snapshot: no process": recorded,
    "No stack traces": lambda _: said("stats", corpus.path_of("no-stacks")),
    "was allocated before": lambda _: said("stats", LATE),
    "The trace has exactly": lambda here: said("stats", changed(here, "truncated", without_ring)),
    "a check is UNKNOWN": lambda _: said("check", corpus.path_of("small"), "--fail-on", "leak"),
    "the peak differs": lambda _: said("stats", OOM),
    "whatif replays nothing": lambda here: said("whatif", changed(here, "small", without_frees)),
    "needs more memory": lambda _: limited("1MiB"),
    "the file exists": written,
    "JavaScript is off": lambda here: said(LATE, "-o", here / "a.html") + (here / "a.html").read_text("utf-8"),
    "a report is too large": lambda here: said(LATE, "-o", here / "a.html", "--max-size", "100KB"),
    "names of people": lambda _: said(LATE, "--redact", "--dry-run"),
}
# Nothing is printed: a process that the system kills, a browser that cannot draw. PyTorch 2.11 says it, without us.
NOT_HERE = {"the process is killed", "This browser has no WebGL2", "SystemError: … returned NULL"}


def plain(text: str) -> str:
    return " ".join(text.replace('"', "").replace("`", "").split())


@pytest.mark.parametrize("start", TRIED)
def test_a_row(start: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (row,) = [row for row in ROWS if plain(row[0]).startswith(start)]
    quoted = re.findall(r'(?<!=)"([^"]+)"', row[0] + ("" if '"' in row[0] else row[2]))
    printed = plain(TRIED[start](tmp_path))
    assert quoted and all(plain(sentence) in printed for sentence in quoted), printed


def test_every_row_is_tried() -> None:
    assert len(ROWS) == len(TRIED) + len(NOT_HERE)
    assert all(any(plain(row[0]).startswith(start) for start in [*TRIED, *NOT_HERE]) for row in ROWS)
