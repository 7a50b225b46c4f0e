"""Where a job's digests are made: the same bytes everywhere, and a process that dies loses only the rank it read."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import generator
import pytest

import snapreport
from snapreport import snapshot
from snapreport.errors import SnapshotError
from snapreport.jobs import build, execution
from snapreport.jobs.build import PageOptions, build_job

SMALL = {"hidden": 256, "layers": 2, "steps": 3, "micro_batches": 2, "operations": 4, "vocabulary": 4000}


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return generator.write_job(tmp_path_factory.mktemp("ranks"), "experts", ranks=8, heavy=3, factor=4, **SMALL)


@pytest.fixture(scope="module")
def report(ranks: list[Path]) -> bytes:
    return build_job(snapreport.job(ranks, jobs=1))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as made:
        yield made


def test_two_processes_give_the_same_bytes(ranks: list[Path], report: bytes) -> None:
    assert build_job(snapreport.job(ranks, jobs=2)) == report


def test_ranks_in_full_are_laid_out_by_a_process_of_their_own(
    ranks: list[Path], report: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where they are large: this process then stays as small as without them."""
    monkeypatch.setattr(build, "LARGE_DETAIL", 0)
    monkeypatch.setattr(build, "read_details", lambda *given: pytest.fail("read here"))
    job = snapreport.job(ranks, jobs=1)
    assert build_job(job, PageOptions(is_apart=True)) == report
    with pytest.raises(SnapshotError, match=r"the report takes .* allowed"):
        build_job(job, PageOptions(is_apart=True, max_size=1000))


def test_the_order_of_the_files_does_not_matter(ranks: list[Path], report: bytes) -> None:
    assert build_job(snapreport.job(ranks[::-1], jobs=1)) == report


def test_an_executor_of_the_callers(ranks: list[Path], report: bytes) -> None:
    with ThreadPoolExecutor(2) as executor:
        assert build_job(snapreport.job(ranks, executor=executor)) == report


def test_dask_gives_the_same_bytes(cluster: Any, ranks: list[Path], report: bytes) -> None:
    assert build_job(snapreport.job(ranks, dask=cluster.scheduler_address)) == report


SOON = 0.5  # seconds


def test_dask_without_workers_says_so_and_ends(
    ranks: list[Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr(execution, "WORKERS_SECONDS", 0.2)
    with (
        distributed.LocalCluster(
            n_workers=0, processes=True, dashboard_address="127.0.0.1:0", scheduler_port=0
        ) as empty,
        pytest.raises(SnapshotError, match=r"no worker joined the Dask cluster within 0\.\d+ s; --dask-timeout"),
    ):
        snapreport.job(ranks, dask=empty.scheduler_address, dask_timeout=SOON)
    assert "waiting for a worker of the Dask cluster" in capsys.readouterr().err


def test_a_dask_worker_killed_in_the_middle_loses_nothing(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker is killed once the first digest is there, while others are being made."""
    paths = generator.write_job(tmp_path, "data", ranks=12, **SMALL)
    alone = build_job(snapreport.job(paths, jobs=1))
    before = {nanny.pid for nanny in cluster.workers.values()}
    killed: list[int] = []
    note = execution.progress.Bar.advance

    def kill_after_the_first(bar: Any, amount: int) -> None:
        note(bar, amount)
        if amount and not killed:
            killed.append(next(nanny.pid for nanny in cluster.workers.values() if nanny.pid))
            os.kill(killed[0], signal.SIGKILL)

    monkeypatch.setattr(execution.progress.Bar, "advance", kill_after_the_first)
    job = snapreport.job(paths, dask=cluster.scheduler_address)
    monkeypatch.undo()
    assert killed and killed[0] in before
    assert not job.failed and len(job.rows) == 12
    assert build_job(job) == alone


def test_no_scheduler_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr(execution, "CONNECT_SECONDS", 0.5)
    with pytest.raises(SnapshotError, match="cannot reach the Dask scheduler"):
        execution.make_all(["a.pickle"], dask="tcp://127.0.0.1:9")


@pytest.mark.parametrize("cores", [1, 2])
def test_a_killed_process_fails_one_rank_only(
    ranks: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cores: int
) -> None:
    """A file that kills whoever reads it: named pipes block, and the watcher kills the process that hangs on it."""
    monkeypatch.setattr(execution, "processes_for", lambda paths: cores)
    bad = tmp_path / "rank_00099_step_00000003_steps.pickle"
    os.mkfifo(bad)
    stop = threading.Event()

    def kill_readers() -> None:
        while not stop.wait(0.2):
            for process in children_with(bad):
                os.kill(process, signal.SIGKILL)

    watcher = threading.Thread(target=kill_readers)
    # Opened for reading and writing, so that a reader does not wait for a writer before it has the file open.
    handle = os.open(bad, os.O_RDWR)
    watcher.start()
    try:
        job = snapreport.job([*ranks, bad])
    finally:
        stop.set()
        watcher.join()
        os.close(handle)
    assert [row.rank for row in job.rows] == list(range(8))
    assert [failed.rank for failed in job.failed] == [99]
    assert "killed" in job.failed[0].error


def children_with(path: Path) -> list[int]:
    """Other processes that have a file open."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                if any(Path(os.readlink(link)) == path for link in (folder / "fd").iterdir()):
                    found.append(int(folder.name))
            except OSError:
                continue
    return found


def test_what_goes_to_a_worker_is_small() -> None:
    call = pickle.dumps((execution.make_digest, "s3://run/rank0.pickle", {"inference": True}))
    assert len(call) < 1000


def test_a_digest_lets_go_of_its_snapshot(ranks: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Although the command line does not look for cycles."""
    loaded: list[weakref.ref[snapreport.Snapshot]] = []
    load = snapshot.load

    def watched(*given: Any, **named: Any) -> snapreport.Snapshot:
        made = load(*given, **named)
        loaded.append(weakref.ref(made))
        return made

    monkeypatch.setattr(snapshot, "load", watched)
    monkeypatch.setattr(execution, "release_freed", gc.collect)  # tests do without
    gc.disable()
    try:
        assert execution.make_digest(str(ranks[0])).data
        assert len(loaded) == 1 and loaded[0]() is None
    finally:
        gc.enable()


def test_processes_follow_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    large, small = tmp_path / "large.pickle", tmp_path / "small.pickle"
    with large.open("wb") as file:
        file.truncate(1 << 30)
    small.write_bytes(b"x" * 1000)
    monkeypatch.setattr(execution, "available_memory", lambda **_: 8 << 30)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    assert execution.processes_for([str(large), str(small)]) == 1
    assert execution.processes_for([str(small)] * 100) == (8 << 30) // execution.need_of(str(small)) > 40
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    assert execution.processes_for([str(small)] * 100) == 2


def test_the_bar_names_the_rank(ranks: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []
    monkeypatch.setattr(execution.progress.Bar, "rename", lambda bar, label: names.append(label))
    snapreport.job(ranks, jobs=1)
    assert names == [f"rank {rank}" for rank in range(8)]
