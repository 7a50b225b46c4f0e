"""A job that runs: digests that the recorder writes, the state of each rank, and a page that follows."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import fake_torch
import pytest
from test_jobs_runs import MINUTE, write
from waiting import GUARD_SECONDS, wait_until

from snapreport.jobs.build import build_job, job
from snapreport.jobs.digest import read_digest
from snapreport.jobs.states import state_sentences, states_of
from snapreport.jobs.watch import JobWatch

PAGE_REFRESHES = b'http-equiv="refresh"'


def written(folder: Path, rank: int, reason: str, step: int, minute: float = 2.0, **given: Any) -> None:
    write(folder, [rank], "aaaa1111", reason=reason, step=step, facts={"end_us": int(minute * MINUTE)}, **given)


def test_each_digest_is_read_once_and_again_when_it_changes(tmp_path: Path) -> None:
    watch = JobWatch([str(tmp_path)], {"jobs": 1}, {})
    assert not watch.update() and watch.is_empty
    for rank in range(3):
        written(tmp_path, rank, "running", 10)
    assert watch.update() and watch.read == 3
    first = {row.rank: row.packed for row in watch.job().rows}
    assert not watch.update() and watch.read == 0
    written(tmp_path, 1, "running", 20)
    assert watch.update() and watch.read == 1
    now = {row.rank: row.packed for row in watch.job().rows}
    assert [now[rank] is first[rank] for rank in range(3)] == [True, False, True]
    (tmp_path / "rank_00002_aaaa1111_0.digest").unlink()
    assert watch.update() and watch.job().ranks.tolist() == [0, 1]
    assert build_job(watch.job()) == build_job(job(tmp_path, jobs=1))


def test_a_digest_that_cannot_be_read_any_more_is_kept(tmp_path: Path) -> None:
    written(tmp_path, 0, "running", 10)
    watch = JobWatch([str(tmp_path)], {"jobs": 1}, {})
    watch.update()
    (tmp_path / "rank_00000_aaaa1111_0.digest").write_bytes(b"snapreport digest\nhalf of")
    watch.update()
    assert watch.job().digests[0].step == 10


def test_states_of_ranks(tmp_path: Path) -> None:
    """Running, ended, out of memory; and silent where others have gone on for minutes."""
    for rank in range(3):
        written(tmp_path, rank, "running", 40 + 10 * (rank == 2), 10.0)
    written(tmp_path, 3, "running", 30, 4.0)
    written(tmp_path, 4, "oom", 35, 5.0)
    written(tmp_path, 5, "exit", 60, 10.0)
    found = job(tmp_path, jobs=1)
    assert states_of(found) == ["running", "running", "running", "silent", "out of memory", "ended"]
    assert [sentence.text for sentence in state_sentences(found)] == [
        "Rank 4 ran out of memory, at step 35.",
        "Rank 3 has written no digest since step 30.",
        "Ranks 0–2 are running, at step 40 and 50.",
        "Rank 5 ended, at step 60.",
    ]


def test_a_job_that_does_not_run_has_no_states(tmp_path: Path) -> None:
    for rank in range(2):
        written(tmp_path, rank, "exit", 10)
    found = job(tmp_path, jobs=1)
    assert states_of(found) == ["", ""] and state_sentences(found) == []


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_ctrl_c_ends_with_a_page_that_loads_itself_no_more(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    written(tmp_path / "run", 0, "running", 10)
    page = tmp_path / "job.html"
    command = [sys.executable, "-m", "snapreport", "job", tmp_path / "run", "--watch", "1", "-o", page]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        wait_until(page.exists, "the first page")
        assert PAGE_REFRESHES in page.read_bytes()
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        _, err = process.communicate(timeout=GUARD_SECONDS)
    finally:
        process.kill()
    assert process.returncode == 0 and "1 rank, 0 new. Rank 0 is running, at step 10." in err
    assert page.read_bytes().endswith(b"</html>") and PAGE_REFRESHES not in page.read_bytes()


PROGRAM = """
import torch
model = torch.nn.Linear(64, 64).cuda()
sgd = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(5):
    model(torch.randn(8, 64, device="cuda")).sum().backward()
    sgd.step()
"""


@pytest.mark.parametrize("torch", fake_torch.parameters())
def test_the_recorder_writes_the_digest_of_a_rank(torch: fake_torch.FakeTorch, tmp_path: Path) -> None:
    """To any address; the last one is of the program's end, and no snapshot stays that nobody asked for."""
    options = ["-o", tmp_path / "run", "--digest-every", "2", "--digests", f"file://{tmp_path}/digests", "--no-at-exit"]
    done = torch.record(*options, command=["-c", PROGRAM], RANK=3, WORLD_SIZE=4)
    assert done.code == 0, done.err
    assert [path.name for path in (tmp_path / "digests").iterdir()] == ["rank_00003.digest"]
    digest = read_digest((tmp_path / "digests" / "rank_00003.digest").read_bytes())
    assert (digest.rank, digest.step, digest.reason) == (3, 5, "exit")
    assert digest.peak_allocated > 64 * 64 * 4
    assert not list((tmp_path / "run").iterdir())
