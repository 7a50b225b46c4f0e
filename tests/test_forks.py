"""Snapshots in processes that fork: one clear error where polars would wait for ever, and pools that work."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import corpus
import pytest
from waiting import GUARD_SECONDS

FORKED = """
import os, sys
if {first!r} == "polars":
    import polars
    polars.DataFrame({{"a": [1, 2]}}).lazy().group_by("a").agg(polars.len()).collect()
elif {first!r} == "import":
    import polars
import snapreport
snapshot = snapreport.load(sys.argv[1]) if {first!r} == "load" else None
child = os.fork()
if not child:
    try:
        print(snapreport.load(sys.argv[1]).timeline(0).peak_bytes if {again!r} else snapshot.timeline(0).peak_bytes)
    except snapreport.SnapshotError as error:
        print(error)
    sys.stdout.flush()
    os._exit(0)
os.waitpid(child, 0)
"""
POOL = """
import sys, multiprocessing, concurrent.futures, snapreport

def peak(path):
    return snapreport.load(path).timeline(0).peak_bytes

if __name__ == "__main__":
    first = peak(sys.argv[1])
    context = multiprocessing.get_context(sys.argv[2])
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
        assert list(pool.map(peak, [sys.argv[1]] * 3)) == [first] * 3
    print("the same")
"""
pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forks by default on Linux alone")


def run(folder: Path, text: str, *arguments: object) -> str:
    program = folder / "program.py"
    program.write_text(text)
    command = [sys.executable, str(program), str(corpus.path_of("small")), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=GUARD_SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(("first", "again"), [("load", True), ("load", False), ("polars", True)])
def test_a_fork_without_the_threads_of_polars_is_refused(tmp_path: Path, first: str, again: bool) -> None:
    said = run(tmp_path, FORKED.format(first=first, again=again))
    assert "fork" in said and "spawn" in said and len(said.splitlines()) == 1


@pytest.mark.parametrize("first", ["import", ""])
def test_a_fork_before_the_first_use_works(tmp_path: Path, first: str) -> None:
    assert int(run(tmp_path, FORKED.format(first=first, again=True))) > 0


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_pools_that_work(tmp_path: Path, method: str) -> None:
    assert run(tmp_path, POOL, method).strip() == "the same"
