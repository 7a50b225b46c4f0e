"""Memory over commits: a planted regression is found and named, and noise raises no alarm."""

from __future__ import annotations

import json
import pickle
import random
from pathlib import Path
from typing import Any

import pytest
from cli import in_process

from snapreport.history.levels import levels

MIB = 1 << 20
FUNCTIONS = ["embed", "attention", "mlp", "loss", "step"]
BAD, FIRST_BAD = "attention", 17
# An allocation of the profiler's on the CPU.
MEMORY = {
    "ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 1, "s": "t",
    "args": {"Total Allocated": 0, "Bytes": MIB, "Addr": 4096, "Device Id": -1, "Device Type": 0},
}  # fmt: skip


def program(commit: int, dice: random.Random) -> dict[str, Any]:
    """A trace of one program: every commit moves lines and files, and shuffles what is allocated together; at
    ``FIRST_BAD`` one function begins to hold half as much again.
    """
    moved = dice.randrange(40)
    file = "/src/train.py" if commit < 9 else "/home/ci/src/model/train.py"
    sizes = {name: (100 + 10 * k) * MIB for k, name in enumerate(FUNCTIONS)}
    if commit >= FIRST_BAD:
        sizes[BAD] += sizes[BAD] // 2
    order = dice.sample(FUNCTIONS, len(FUNCTIONS))
    trace: list[dict[str, Any]] = []
    for action in ("alloc", "free_requested", "free_completed"):
        for name in order:
            place = FUNCTIONS.index(name)
            frame = {"filename": file, "line": 10 * place + moved, "name": name}
            size = sizes[name] + 512 * (commit % 3)
            trace.append(
                {
                    "action": action,
                    "addr": place << 32,
                    "size": size,
                    "stream": 0,
                    "frames": [frame],
                    "time_us": len(trace),
                }
            )
    return {"segments": [], "device_traces": [trace]}


def kept(folder: Path, commits: int, path: Path) -> None:
    dice = random.Random(4)
    for commit in range(commits):
        path.write_bytes(pickle.dumps(program(commit, dice)))
        run = in_process("history", "add", folder, path, "--commit", f"c{commit}", "--time", 1_700_000_000 + commit)
        assert run.code == 0, run.err


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("history")
    kept(made / "h", 30, made / "snap.pickle")
    return made / "h"


def test_the_commit_and_the_function_are_named(folder: Path) -> None:
    document = in_process("history", folder, "--json").json
    assert document["schema"] == "snapreport-history/1"
    (shift,) = [shift for shift in document["shifts"] if shift["measure"] == "allocated"]
    assert (shift["commit"], shift["is_confirmed"]) == (f"c{FIRST_BAD}", True)
    dice = random.Random(4)
    (event,) = [
        event
        for event in [program(commit, dice) for commit in range(FIRST_BAD + 1)][-1]["device_traces"][0]
        if event["frames"][0]["name"] == BAD and event["action"] == "alloc"
    ]
    line = event["frames"][0]["line"]
    change = 55 * MIB + 512
    assert shift["places"] == [{"function": BAD, "file": "model/train.py", "line": line, "change_bytes": change}]
    text = in_process("history", folder).out
    assert text.startswith(f"c{FIRST_BAD}: peak allocated 600 → 655 MiB, {BAD} model/train.py:{line} +55.0 MiB")


def test_the_page(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "history.html"
    assert in_process("history", folder, "-o", out).code == 0
    page = out.read_text()
    assert (
        f"c{FIRST_BAD}: peak allocated" in page and page.count("<svg") == 2 + len(FUNCTIONS) and "<script" not in page
    )
    assert in_process("history", folder, "-o", tmp_path / "again.html", "--title", "h").code == 0
    assert (tmp_path / "again.html").read_bytes() == out.read_bytes()


def test_check_fails_above_the_noise_alone(tmp_path: Path) -> None:
    kept(tmp_path / "h", 12, tmp_path / "snap.pickle")
    dice = random.Random(8)
    for commit in (13, 14, 15):
        (tmp_path / "new.pickle").write_bytes(pickle.dumps(program(commit, dice)))
        run = in_process("check", "--history", tmp_path / "h", tmp_path / "new.pickle")
        assert run.code == 0, run.out
    (tmp_path / "new.pickle").write_bytes(pickle.dumps(program(FIRST_BAD, dice)))
    run = in_process("check", "--history", tmp_path / "h", tmp_path / "new.pickle")
    assert (
        run.code == 1
        and "above the noise of the history up to c11" in run.out
        and f"in {BAD} model/train.py" in run.out
    )
    few = in_process("history", "add", tmp_path / "few", tmp_path / "new.pickle", "--commit", "a")
    assert few.code == 0
    assert in_process("check", "--history", tmp_path / "few", tmp_path / "new.pickle").code == 2


def test_a_commit_is_replaced(tmp_path: Path) -> None:
    kept(tmp_path / "h", 3, tmp_path / "snap.pickle")
    (tmp_path / "snap.pickle").write_bytes(pickle.dumps(program(FIRST_BAD, random.Random(1))))
    run = in_process("history", "add", tmp_path / "h", tmp_path / "snap.pickle", "--commit", "c1", "--label", "#12")
    assert run.code == 0
    commits = in_process("history", tmp_path / "h", "--json").json["commits"]
    assert [one["commit"] for one in commits] == ["c0", "c1", "c2"] and commits[1]["label"] == "#12"
    assert commits[1]["peak_allocated_bytes"] > commits[2]["peak_allocated_bytes"]


def test_digests_are_kept_as_they_are_and_memory_without_a_stack_trace_has_a_name(tmp_path: Path) -> None:
    """As a job of CI writes them where the snapshot is. What grows here has no stack trace."""
    snap, digest = tmp_path / "snap.pickle", tmp_path / "snap.digest"
    for commit in range(8):
        content = program(0, random.Random(1))
        for event in content["device_traces"][0]:
            if event["frames"][0]["name"] == BAD:
                event["size"] += 60 * MIB * (commit >= 4)
                event["frames"] = []
        snap.write_bytes(pickle.dumps(content))
        assert in_process("digest", snap, "-o", digest, "--force").code == 0
        run = in_process("history", "add", tmp_path / "h", digest, "--commit", f"c{commit}")
        assert run.code == 0, run.err
        assert [path.read_bytes() for path in (tmp_path / "h").glob(f"*-c{commit}.digest")] == [digest.read_bytes()]
    text = in_process("history", tmp_path / "h").out
    assert text.startswith("c4: peak allocated 600 → 660 MiB, allocations without a stack trace +60.0 MiB")
    digest.write_bytes(digest.read_bytes()[:-5])
    assert in_process("history", "add", tmp_path / "h", digest, "--commit", "c9").code == 2


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{}", "line 1"),
        (b'{"commit":"a","digest":"../x"}', "not beside"),
        (b'{"commit":"a","digest":"x"}', "cannot be read"),
    ],
)
def test_a_damaged_list_is_one_line(line: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / "history.jsonl").write_bytes(line + b"\n")
    run = in_process("history", tmp_path)
    assert run.code == 2 and said in run.err and run.err.count("\n") == 1
    assert in_process("history", tmp_path / "none").code == 2


def test_a_program_that_has_changed_since_its_commit_is_not_added_to_it(tmp_path: Path) -> None:
    """Its measurement would replace the commit's own. ``--commit`` says what it is of."""
    snap, commit = tmp_path / "snap.pickle", "a" * 40
    for is_dirty in (False, True):
        git = {"commit": commit, "dirty": is_dirty}
        content = program(0, random.Random(1)) | {"snapreport": {"schema": "snapreport-recording/1", "git": git}}
        snap.write_bytes(pickle.dumps(content))
        run = in_process("history", "add", tmp_path / "h", snap)
        assert run.code == 2 * is_dirty
    assert "recorded with changes that aaaaaaaaaa does not have" in run.err and run.err.count("\n") == 1
    assert in_process("history", "add", tmp_path / "h", snap, "--commit", "b").code == 0
    assert [one["commit"] for one in in_process("history", tmp_path / "h", "--json").json["commits"]] == [commit, "b"]


def test_what_reserves_nothing_has_no_check_of_it(tmp_path: Path) -> None:
    """Tensors on the CPU."""
    snap = tmp_path / "snap.json"
    profile = {"schemaVersion": 1, "traceEvents": [MEMORY | {"ts": 1}]}
    snap.write_text(json.dumps(profile))
    for commit in range(5):
        assert in_process("history", "add", tmp_path / "h", snap, "--commit", f"c{commit}").code == 0
    checks = in_process("check", "--history", tmp_path / "h", snap, "--json").json["checks"]
    assert [(check["passed"], check["value"]) for check in checks] == [(True, MIB)]


def test_levels() -> None:
    """Noise and single outliers begin no level; steps up and down do, at their first value."""
    dice = random.Random(2)
    noisy = [round(1e9 + dice.gauss(0, 3e6)) for _ in range(40)]
    assert len(levels(noisy, MIB)) == 1
    assert len(levels([*noisy[:20], 2 * 10**9, *noisy[20:]], MIB)) == 1
    stepped = [*noisy[:20], *(value + 10**8 for value in noisy[20:])]
    assert [level.first for level in levels(stepped, MIB)] == [0, 20]
    both = [*stepped, *(value - 10**8 for value in noisy[:10])]
    assert [level.first for level in levels(both, MIB)] == [0, 20, 40]
    last = levels([*noisy, 12 * 10**8], MIB)
    assert last[-1].first == 40 and not last[-1].is_confirmed
