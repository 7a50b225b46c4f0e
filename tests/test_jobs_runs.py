"""Which files are one job: runs into one folder, restarts, hosts; and ranks that differ in more than memory."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import generator
import pytest
from cli import in_process

from snapreport.errors import SnapshotError
from snapreport.jobs.build import job
from snapreport.jobs.digest import digest_of
from snapreport.jobs.digest_format import pack
from snapreport.jobs.digest_model import plain_digest
from snapreport.jobs.headline import headline
from snapreport.jobs.sources import expand
from snapreport.recorder.file_names import FileNames
from snapreport.snapshot import load

SMALL: dict[str, Any] = {"ranks": 1, "hidden": 64, "layers": 1, "steps": 2, "micro_batches": 1, "operations": 2}
MINUTE = 60_000_000


@cache
def _content() -> str:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        (path,) = generator.write_job(folder, "data", **SMALL)
        return json.dumps(plain_digest(digest_of(load(path), str(path))))


def write(folder: Path, ranks: Sequence[int], run: str, *, start: int = 1, world: int = 8, **given: Any) -> None:
    """Digests of ``ranks``, recorded for a minute from minute ``start`` on."""
    content = json.loads(_content())
    stated = {"id": run, "launch": "", "restart": 0, "start_us": start * MINUTE, "end_us": (start + 1) * MINUTE}
    stated |= {"command": f"python {run}.py"} | given.get("facts", {})
    for rank in ranks:
        own = {"rank": rank, "world_size": world, "source": f"run/rank_{rank:05}.pickle", "run": stated, "host": "a"}
        own |= {key: value for key, value in given.items() if key != "facts"}
        (folder / f"rank_{rank:05}_{run}_{stated['restart']}.digest").write_bytes(pack({**content, **own}))


def test_two_runs_are_two_jobs(tmp_path: Path) -> None:
    """Never ranks 0 and 1 of one run with 2 to 7 of another."""
    write(tmp_path, range(2), "aaaa1111")
    write(tmp_path, range(2, 8), "bbbb2222", start=30)
    done = in_process("job", tmp_path, "-o", tmp_path / "job.html")
    assert done.code == 2 and not (tmp_path / "job.html").exists() and done.err.count("\n") == 1
    for part in ("2 runs", "--run", "aaaa1111", "(2 ranks: python aaaa1111.py)", "bbbb2222", "(6 ranks: python"):
        assert part in done.err
    assert job(tmp_path, jobs=1, run="aaaa").ranks.tolist() == [0, 1]
    last = job(tmp_path, jobs=1, run="last")
    assert last.ranks.tolist() == [2, 3, 4, 5, 6, 7] and last.missing == [0, 1]
    with pytest.raises(SnapshotError, match="--run cccc: not one run of these files; there are aaaa1111"):
        job(tmp_path, jobs=1, run="cccc")


@pytest.mark.parametrize("launch", ["", "77.0"])
def test_hosts_of_one_run(tmp_path: Path, launch: str) -> None:
    """Each host has a command of its own; the ranks are different, and they run at the same time."""
    write(tmp_path, range(4), "aaaa1111", facts={"launch": launch})
    write(tmp_path, range(4, 8), "bbbb2222", host="b", facts={"launch": launch})
    found = job(tmp_path, jobs=1)
    assert (
        found.ranks.tolist() == list(range(8)) and found.run is not None and found.run.ids == {"aaaa1111", "bbbb2222"}
    )


def test_processes_that_record_themselves(tmp_path: Path) -> None:
    """``snapreport.record()`` in the program: an id for each process, of one launch."""
    for rank in range(4):
        write(tmp_path, [rank], f"{rank:08x}", world=4, facts={"launch": "elastic"})
    assert job(tmp_path, jobs=1).ranks.tolist() == [0, 1, 2, 3]


def test_two_launches_at_the_same_time(tmp_path: Path) -> None:
    write(tmp_path, range(4), "aaaa1111", facts={"launch": "one"})
    write(tmp_path, range(4, 8), "bbbb2222", host="b", facts={"launch": "two"})
    with pytest.raises(SnapshotError, match="of 2 runs"):
        job(tmp_path, jobs=1)


def test_a_restart_is_another_attempt(tmp_path: Path) -> None:
    """The last attempt is the job; the other is named, with the rank that ran out of memory, and can be chosen."""
    failed = {"ooms": [{"event": 1, "step": 1, "us": None, "tried": 5, "free": None}], "reason": "oom"}
    write(tmp_path, [0, 1, 3], "aaaa1111", world=4)
    write(tmp_path, [2], "aaaa1111", world=4, **failed)
    write(tmp_path, [0, 1, 3], "aaaa1111", world=4, facts={"restart": 1})
    found = job(tmp_path, jobs=1)
    assert found.ranks.tolist() == [0, 1, 3] and found.missing == [2] and not found.ooms and found.restart == 1
    texts = [sentence.text for sentence in headline(found)]
    said = (
        "This is restart 1 of the run. The attempt before it, where rank 2 ran out of memory, is left out; "
        "--run aaaa1111:0 shows it."
    )
    assert said in texts and "No file was found for rank 2." in texts
    assert not any("older" in text for text in texts)
    assert job(tmp_path, jobs=1, run="aaaa:0").ranks.tolist() == [0, 1, 2, 3]
    with pytest.raises(SnapshotError, match="attempts 0, 1"):
        job(tmp_path, jobs=1, run="aaaa:7")


def test_the_terminal_says_what_the_page_says(tmp_path: Path) -> None:
    write(tmp_path, [0, 1, 2, 3, 4, 5, 7], "aaaa1111")
    earlier = tmp_path / "rank_00003_earlier.digest"
    content = json.loads(_content())
    earlier.write_bytes(pack({**content, "rank": 3, "step": 1, "source": "run/rank3_step_1.pickle"}))
    done = in_process("job", tmp_path, "-o", tmp_path / "job.html")
    assert done.code == 0
    assert "No file was found for rank 6." in done.err
    assert "snapreport: 1 older snapshot of these ranks is left out.\n" in done.err
    document = in_process("job", tmp_path, "--json")
    assert "No file was found for rank 6." in document.err and json.loads(document.out)["missing_ranks"] == [6]
    assert json.loads(document.out)["run"]["id"] == "aaaa1111"


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        ({"torch": "2.6.0"}, "The ranks differ in PyTorch: 2.9.1 (ranks 0–2) and 2.6.0 (rank 3)."),
        (
            {"device": "NVIDIA A100"},
            "The ranks differ in their device: NVIDIA H100 (ranks 0–2) and NVIDIA A100 (rank 3).",
        ),
        ({"commit": "0123"}, "The ranks differ in the program's commit: abcd (ranks 0–2) and 0123 (rank 3)."),
    ],
)
def test_other_differences_are_said_first(tmp_path: Path, other: dict[str, str], sentence: str) -> None:
    software = {"torch": "2.9.1", "cuda": "12.8", "device": "NVIDIA H100", "commit": "abcd"}
    write(tmp_path, range(3), "aaaa1111", world=4, software=software)
    write(tmp_path, [3], "aaaa1111", world=4, software={**software, **other})
    found = headline(job(tmp_path, jobs=1))
    assert found[0].text == sentence and found[0].rows == [3]


def test_settings_that_differ(tmp_path: Path) -> None:
    write(tmp_path, range(3), "aaaa1111", world=4, settings={"PYTORCH_ALLOC_CONF": "expandable_segments:True"})
    write(tmp_path, [3], "aaaa1111", world=4, settings={"PYTORCH_ALLOC_CONF": "max_split_size_mb:64"})
    text = headline(job(tmp_path, jobs=1))[0].text
    assert text.startswith("The ranks differ in the setting PYTORCH_ALLOC_CONF: expandable_segments:True (ranks 0–2)")


def test_the_step_of_a_failure_is_one_number(tmp_path: Path) -> None:
    """In the file's name, in what the recorder writes, and in the job: steps completed, which is the failed one's."""
    paths = generator.write_job(tmp_path, "data", **{**SMALL, "ranks": 2, "steps": 4, "oom": 1, "memory": 1 << 30})
    assert "_step_00000003_oom" in paths[1].name
    recorder = load(paths[1]).recording.recorder
    found = job(tmp_path, jobs=1)
    assert recorder is not None and recorder.step == 3 and found.ooms[0].oom.step == 3


def test_profiles_in_a_folder(tmp_path: Path) -> None:
    """Those of our recorder; other JSON files are none of a job's."""
    for name in ("rank_00000_step_00000010_steps.json.gz", "rank_00001_step_00000010_steps.json", "config.json"):
        (tmp_path / name).touch()
    assert [Path(path).name[:10] for path in expand([tmp_path])] == ["rank_00000", "rank_00001"]


def test_a_launcher_does_not_take_the_names_of_rank_0(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    FileNames(tmp_path, ".json.gz", at_once=False)
    monkeypatch.setenv("RANK", "0")
    worker = FileNames(tmp_path, ".json.gz", at_once=False)
    assert worker.path(10, "steps").name == "rank_00000_step_00000010_steps.json.gz"
    assert "_pid_" in FileNames(tmp_path, ".json.gz").path(10, "steps").name
    worker.release()


def test_check_and_diff_choose_a_run_too(tmp_path: Path) -> None:
    write(tmp_path, range(2), "aaaa1111", peak_allocated=1 << 20)
    write(tmp_path, range(2), "bbbb2222", start=30, peak_allocated=5 << 20)
    limit = ["check", tmp_path, "--max-peak", "2MiB"]
    assert "2 runs" in in_process(*limit).err
    world = ["--baseline", tmp_path, "--max-growth", "1MiB"]
    assert "runs" not in in_process(*limit, "--run", "aaaa").err
    broken = in_process(*limit, "--run", "last").out
    assert "5.00 MiB" in broken
    grown = in_process("check", tmp_path, *world, "--run", "bbbb", "--baseline-run", "aaaa").out
    assert "4.00 MiB" in grown
    text = in_process("diff", tmp_path, tmp_path, "--run", "aaaa", "--run", "bbbb").out
    assert "1.00" in text and "5.00 MiB" in text
    assert in_process("diff", tmp_path, tmp_path, "--run", "a", "--run", "b", "--run", "c").code == 2
    assert "for jobs" in in_process("diff", "a.pickle", "b.pickle", "--run", "a").err


def test_digests_of_many_snapshots_are_named_after_them(tmp_path: Path) -> None:
    for step in ("step_1", "step_2"):
        generator.write_job(tmp_path / "run" / step, "data", **{**SMALL, "ranks": 2})
    (tmp_path / "run" / "broken.pickle").write_bytes(b"no pickle")
    done = in_process("digest", tmp_path / "run", "-o", tmp_path / "digests", "--jobs", "1")
    assert done.code == 2 and "4 digests" in done.err and "1 of 5 files could not be read" in done.err
    names = sorted(path.name for path in (tmp_path / "digests").iterdir())
    assert names == [f"step_{step}-rank_{rank:05}_step_00000002_steps.digest" for step in (1, 2) for rank in (0, 1)]
    assert in_process("digest", tmp_path / "run" / "step_1", "-o", "-").code == 2
