"""Bad input: exit 2, one line that says which file, what and where, no traceback, no partial output."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest
from cli import assert_refused, in_process, process

OLD = '<meta name="generator" content="snapreport">the report from before'
FRAME = {"filename": "train.py", "line": 3, "name": "step"}
BLOCK = {"address": 4096, "size": 512, "requested_size": 500, "state": "active_allocated", "frames": [FRAME]}
SEGMENT = {
    "device": 0,
    "address": 4096,
    "total_size": 2097152,
    "allocated_size": 512,
    "active_size": 512,
    "requested_size": 500,
    "stream": 0,
    "segment_type": "small",
    "segment_pool_id": (0, 0),
    "is_expandable": False,
    "frames": [],
    "blocks": [BLOCK],
}
ALLOC = {"action": "alloc", "addr": 4096, "size": 500, "stream": 0, "time_us": 1000, "frames": [FRAME]}
GOOD = {"segments": [SEGMENT], "device_traces": [[ALLOC]], "allocator_settings": {}, "external_annotations": []}


def without(mapping: dict[str, Any], key: str) -> dict[str, Any]:
    return {k: v for k, v in mapping.items() if k != key}


def with_event(event: object) -> dict[str, Any]:
    return GOOD | {"device_traces": [[ALLOC, event]]}


def with_segment(segment: object) -> dict[str, Any]:
    return GOOD | {"segments": [segment]}


NOT_SNAPSHOTS: dict[str, object] = {
    "empty dict": {},
    "other dict": {"model": [1, 2], "epoch": 3},
    "number": 5,
    "text": "snapshot",
    "none": None,
    "list of numbers": [1, 2, 3],
    "list of other dicts": [{"loss": 0.5}],
    "segments a number": {"segments": 3},
    "traces a dict": GOOD | {"device_traces": {"0": []}},
    "trace a number": GOOD | {"device_traces": [7]},
    "event a number": with_event(7),
    "event a list": with_event([ALLOC]),
    "segments none": {"segments": None, "device_traces": None},
}
# What is missing or wrong → words that the message must contain besides the file's name.
BROKEN: dict[str, tuple[object, tuple[str, ...]]] = {
    "event without action": (with_event(without(ALLOC, "action")), ("action", "1")),
    "alloc without addr": (with_event(without(ALLOC, "addr")), ("addr", "1")),
    "alloc without size": (with_event(without(ALLOC, "size")), ("size", "1")),
    "action a number": (with_event(ALLOC | {"action": 3}), ("action",)),
    "addr a text": (with_event(ALLOC | {"addr": "4096"}), ("addr",)),
    "addr too large": (with_event(ALLOC | {"addr": 2**64}), ("addr",)),
    "size a fraction": (with_event(ALLOC | {"size": 0.5}), ("size",)),
    "size negative": (with_event(ALLOC | {"size": -1}), ("size",)),
    "size enormous": (with_event(ALLOC | {"size": 2**80}), ("size",)),
    "time a text": (with_event(ALLOC | {"time_us": "noon"}), ("time_us",)),
    "frames a number": (with_event(ALLOC | {"frames": 3}), ("frames",)),
    "frame a text": (with_event(ALLOC | {"frames": ["main"]}), ("frame",)),
    "frame without name": (with_event(ALLOC | {"frames": [without(FRAME, "name")]}), ("name",)),
    "frame line a text": (with_event(ALLOC | {"frames": [FRAME | {"line": "x"}]}), ("line",)),
    "segment without address": (with_segment(without(SEGMENT, "address")), ("address", "segment")),
    "segment without total_size": (with_segment(without(SEGMENT, "total_size")), ("total_size", "segment")),
    "segment without blocks": (with_segment(without(SEGMENT, "blocks")), ("blocks", "segment")),
    "segment a number": (with_segment(1), ("segment",)),
    "block without size": (with_segment(SEGMENT | {"blocks": [without(BLOCK, "size")]}), ("size", "block")),
    "block without state": (with_segment(SEGMENT | {"blocks": [without(BLOCK, "state")]}), ("state", "block")),
    "block a none": (with_segment(SEGMENT | {"blocks": [None]}), ("block",)),
}


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """An earlier report, which a failing run must leave intact."""
    path = tmp_path / "report.html"
    path.write_text(OLD)
    return path


def refuse(path: Path, old: Path, *words: str) -> None:
    """Every command that reads it refuses it, with the old output intact and nothing beside it."""
    beside = sorted(old.parent.iterdir())
    assert_refused(in_process(path, "-o", old), path.name, *words)
    assert old.read_text() == OLD
    assert sorted(old.parent.iterdir()) == beside
    assert_refused(in_process("stats", path, "--json"), path.name, *words)


def test_the_good_one_is_good(tmp_path: Path) -> None:
    path = tmp_path / "good.pickle"
    path.write_bytes(pickle.dumps(GOOD))
    assert in_process(path, "-o", tmp_path / "good.html").code == 0


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b"hello, world\n",
        b"\x80",
        b"\x80\x04",
        b"\x80\xff.",
        b".",
        b"<!DOCTYPE html><p>x",
        b"\x89PNG\r\n\x1a\n" + bytes(64),
        json.dumps({"model": GOOD}).encode(),
        bytes(range(256)) * 16,
        b"PK\x03\x04" + bytes(40),
        b"\x1f\x8b\x08" + bytes(20),
        b"\x28\xb5\x2f\xfd" + bytes(8),
        b"\xfd7zXZ\x00" + bytes(12),
        b"\x7fELF" + bytes(60),
    ],
    ids=lambda content: repr(content[:9])[2:-1] or "empty",
)
def test_not_a_pickle(tmp_path: Path, old: Path, content: bytes) -> None:
    path = tmp_path / "bad.pickle"
    path.write_bytes(content)
    refuse(path, old)


def test_truncated(tmp_path: Path, old: Path) -> None:
    whole = pickle.dumps(GOOD, 4)
    path = tmp_path / "cut.pickle"
    for at in range(1, len(whole), 7):
        path.write_bytes(whole[:at])
        assert_refused(in_process("stats", path), path.name)
    refuse(path, old)


def test_truncated_compressed(tmp_path: Path, old: Path) -> None:
    whole = gzip.compress(pickle.dumps(GOOD, 4))
    path = tmp_path / "cut.pickle.gz"
    path.write_bytes(whole[: len(whole) // 2])
    refuse(path, old)


@pytest.mark.parametrize("name", NOT_SNAPSHOTS)
def test_a_pickle_that_is_no_snapshot(tmp_path: Path, old: Path, name: str) -> None:
    path = tmp_path / "other.pickle"
    path.write_bytes(pickle.dumps(NOT_SNAPSHOTS[name]))
    refuse(path, old)


@pytest.mark.parametrize("name", BROKEN)
def test_broken_snapshot_says_where(tmp_path: Path, old: Path, name: str) -> None:
    snapshot, words = BROKEN[name]
    path = tmp_path / "broken.pickle"
    path.write_bytes(pickle.dumps(snapshot))
    refuse(path, old, *words)


def test_directory_and_missing(tmp_path: Path, old: Path) -> None:
    folder = tmp_path / "folder.pickle"
    folder.mkdir()
    refuse(folder, old)
    refuse(tmp_path / "absent.pickle", old)


def test_unreadable(tmp_path: Path, old: Path) -> None:
    """A file that cannot be read, whoever runs this: root may open anything, but not read its own memory at 0."""
    path = tmp_path / "secret.pickle"
    path.write_bytes(pickle.dumps(GOOD))
    path.chmod(0)
    if os.access(path, os.R_OK):
        if not Path("/proc/self/mem").exists():
            pytest.skip("this user may read everything, and there is no /proc")
        path.unlink()
        path.symlink_to("/proc/self/mem")
    refuse(path, old)


def test_output_that_cannot_be_written(tmp_path: Path) -> None:
    path = tmp_path / "good.pickle"
    path.write_bytes(pickle.dumps(GOOD))
    (tmp_path / "folder.html").mkdir()
    for out in (tmp_path / "no" / "such" / "out.html", tmp_path / "folder.html", path / "out.html"):
        before = sorted(tmp_path.rglob("*"))
        assert_refused(in_process(path, "-o", out), out.name)
        assert sorted(tmp_path.rglob("*")) == before
    if Path("/dev/full").exists():
        assert_refused(in_process(path, "-o", "/dev/full"), "/dev/full")


def test_output_over_its_own_input(tmp_path: Path) -> None:
    path = tmp_path / "good.pickle"
    whole = pickle.dumps(GOOD)
    path.write_bytes(whole)
    assert_refused(in_process(path, "-o", path), path.name)
    assert path.read_bytes() == whole


def test_one_bad_of_several(tmp_path: Path, old: Path) -> None:
    good, bad = tmp_path / "good.pickle", tmp_path / "bad.pickle"
    good.write_bytes(pickle.dumps(GOOD))
    bad.write_bytes(b"no pickle")
    assert_refused(in_process(good, bad, "-o", old), bad.name)
    assert old.read_text() == OLD


def test_bad_usage() -> None:
    for arguments in ([], ["--no-such-option"], ["stats"], ["stats", "--json"]):
        run = in_process(*arguments)
        assert run.code == 2 and run.err and "Traceback" not in run.err, (arguments, run)


def test_in_a_process_of_its_own(tmp_path: Path) -> None:
    """The same through the real command: what click's runner would hide (tracebacks, exit codes, stdin) shows here."""
    (tmp_path / "bad.pickle").write_bytes(b"no pickle")
    assert_refused(process("bad.pickle", "-o", "out.html", cwd=tmp_path), "bad.pickle")
    assert_refused(process("absent.pickle", cwd=tmp_path), "absent.pickle")
    assert_refused(process("stats", "-", stdin=b"no pickle", cwd=tmp_path))
    assert [p.name for p in tmp_path.iterdir()] == ["bad.pickle"]


def test_stdin_and_stdout(tmp_path: Path) -> None:
    whole = pickle.dumps(GOOD)
    stats = process("stats", "-", "--json", stdin=whole, cwd=tmp_path)
    assert stats.code == 0 and stats.json["schema"] == "snapreport-stats/3"
    report = process("-", "-o", "-", stdin=whole, cwd=tmp_path)
    assert report.code == 0 and report.out.lstrip().lower().startswith("<!doctype html>")
    assert report.out.rstrip().endswith("</html>") and not list(tmp_path.iterdir())


@pytest.mark.skipif(sys.platform == "win32", reason="no such signals")
def test_interrupted_while_writing_leaves_the_old_report(
    tmp_path: Path, old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever interrupts the last step, the old file is intact: the new one must appear under its name only when
    complete.
    """
    path = tmp_path / "good.pickle"
    path.write_bytes(pickle.dumps(GOOD))

    def no_replace(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", no_replace)
    monkeypatch.setattr(os, "rename", no_replace)
    assert_refused(in_process(path, "-o", old), old.name)
    assert old.read_text() == OLD
    assert sorted(p.name for p in tmp_path.iterdir()) == ["good.pickle", "report.html"]
