"""Pickles made to harm: whatever they contain, nothing runs, nothing hangs, and the answer is a report or one line."""

from __future__ import annotations

import collections
import os
import pickle
import random
import struct
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from cli import assert_refused, in_process, process
from hypothesis import given
from hypothesis import strategies as st
from strategies import snapshots
from test_bad_input import ALLOC, FRAME, GOOD

import snapreport
from snapreport.errors import SnapshotError

GIGABYTE = 1 << 30
PROTOCOLS = range(6)


class Runs:
    """Unpickling this would run a command."""

    def __init__(self, made: Path) -> None:
        self.made = str(made)

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.made,)


class Persistent(pickle.Pickler):
    def persistent_id(self, obj: object) -> object:
        return "storage" if obj is FRAME else None


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_nothing_runs(tmp_path: Path, protocol: int) -> None:
    made, path = tmp_path / "made", tmp_path / "evil.pickle"
    path.write_bytes(pickle.dumps(GOOD | {"extra": Runs(made)}, protocol))
    assert_refused(in_process("stats", path), path.name, "mkdir")
    assert not made.exists()


@pytest.mark.parametrize(
    "value",
    [
        collections.OrderedDict(a=1),
        complex(1, 2),
        range(3),
        collections.Counter(),
        Path("x"),
        dict,
        len,
        time.struct_time,
    ],
    ids=repr,
)
def test_any_global_is_refused(tmp_path: Path, value: object) -> None:
    """Even harmless ones: a snapshot names none, and a list of harmless ones would have to be maintained."""
    path = tmp_path / "global.pickle"
    for protocol in PROTOCOLS:
        path.write_bytes(pickle.dumps(GOOD | {"extra": value}, protocol))
        assert_refused(in_process("stats", path), path.name)


@pytest.mark.parametrize(
    "content",
    [
        b"cos\nsystem\n(S'true'\ntR.",
        b"(S'true'\nios\nsystem\n.",
        b"\x80\x04\x8c\x02os\x8c\x06system\x93.",
        b"\x80\x02}Q.",
        b"Pstorage\n.",
        b"\x80\x02\x82\x01.",
        b"\x80\x02\x84\x01\x00\x00\x00.",
        b"\x80\x04]\x92.",
        b"\x80\x02)\x81.",
        b"\x80\x02}}b.",
        b"\x80\x05\x97.",
        b"\x80\x04h\x07.",
        b"0.",
        b"\x80\x04(((((.",
        b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x7f.",
        b"\x80\x02\x8b\xff\xff\xff\x7f.",
        b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\xff.",
        b"\x80\x04X\xff\xff\xff\xffabc.",
        b"I99999999999999999999999999\n.",
        b"L" + b"9" * 9000 + b"L\n.",
        b"Fnan\n.",
        b"S'unclosed\n.",
        b"V\\ud800\n.",
        b"\x80\x04}}s.",
        b"\x80\x04}]]s.",
        b"\x80\x04]}s.",
    ],
    ids=lambda content: repr(content[:14])[2:-1],
)
def test_hand_written(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "odd.pickle"
    path.write_bytes(content)
    assert_refused(in_process("stats", path), path.name)


def test_persistent_ids(tmp_path: Path) -> None:
    path = tmp_path / "persistent.pickle"
    with path.open("wb") as file:
        Persistent(file, 2).dump(GOOD)
    assert_refused(in_process("stats", path), path.name)


def test_memo_index_that_would_fill_the_memory(tmp_path: Path) -> None:
    """``LONG_BINPUT 2**31-1`` makes the C unpickler request 32 GiB of memo; eleven bytes must not cost a
    machine that.
    """
    path = tmp_path / "memo.pickle"
    path.write_bytes(b"\x80\x02]r" + struct.pack("<I", 2**31 - 1) + b".")
    assert_refused(process("stats", path, limit=6 * GIGABYTE), path.name)


def test_huge_lengths_in_a_small_file(tmp_path: Path) -> None:
    path = tmp_path / "long.pickle"
    for head in (b"\x80\x04\x8e", b"\x80\x04\x8d", b"\x80\x05\x96"):
        path.write_bytes(head + struct.pack("<Q", 2**40) + b"abc.")
        assert_refused(process("stats", path, limit=6 * GIGABYTE), path.name)


DEPTH = 200_000
DEEP = {
    "tuple": b")" + b"\x85" * DEPTH,
    "list": b"]" * DEPTH + b"a" * (DEPTH - 1),
    "dict": b"}" + b"(X\x01\x00\x00\x00a}" * DEPTH + b"u" * DEPTH,
}


@pytest.fixture(scope="module")
def other_process() -> Iterator[ProcessPoolExecutor]:
    """A process that may end without taking these tests with it: what it was asked then raises BrokenProcessPool."""
    with ProcessPoolExecutor(1, get_context("spawn"), bound_memory, (8 * GIGABYTE,)) as pool:
        yield pool


def bound_memory(limit: int) -> None:
    """Bounds the address space of this process."""
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


@pytest.mark.parametrize(
    "where",
    [
        "filename",
        "name",
        "line",
        "frame",
        "frames",
        "action",
        "size",
        "segment_type",
        "user_metadata",
        "compile_context",
        "settings",
        "annotation",
        "unknown key",
    ],
)
@pytest.mark.parametrize("kind", DEEP)
def test_deep_nesting(tmp_path: Path, other_process: ProcessPoolExecutor, where: str, kind: str) -> None:
    """Values nested 200,000 deep: hashing, printing or walking them naively ends the process, not just the run."""
    marker = "\ue000deep"
    target: dict[str, Any] = {
        "filename": GOOD | {"device_traces": [[ALLOC | {"frames": [FRAME | {"filename": marker}]}]]},
        "name": GOOD | {"device_traces": [[ALLOC | {"frames": [FRAME | {"name": marker}]}]]},
        "line": GOOD | {"device_traces": [[ALLOC | {"frames": [FRAME | {"line": marker}]}]]},
        "frame": GOOD | {"device_traces": [[ALLOC | {"frames": [marker]}]]},
        "frames": GOOD | {"device_traces": [[ALLOC | {"frames": marker}]]},
        "action": GOOD | {"device_traces": [[ALLOC | {"action": marker}]]},
        "size": GOOD | {"device_traces": [[ALLOC | {"size": marker}]]},
        "segment_type": GOOD | {"segments": [GOOD["segments"][0] | {"segment_type": marker}]},
        "user_metadata": GOOD | {"device_traces": [[ALLOC | {"user_metadata": marker}]]},
        "compile_context": GOOD | {"device_traces": [[ALLOC | {"compile_context": marker}]]},
        "settings": GOOD | {"allocator_settings": {"x": marker}},
        "annotation": GOOD | {"external_annotations": [{"name": marker, "stage": "START", "device": 0, "time_us": 1}]},
        "unknown key": GOOD | {"from_the_future": marker},
    }[where]
    text = marker.encode()
    spliced = pickle.dumps(target, 3).replace(b"X" + struct.pack("<I", len(text)) + text, DEEP[kind])
    path = tmp_path / "deep.pickle"
    path.write_bytes(spliced)
    run = other_process.submit(in_process, path, "-o", tmp_path / "out.html").result(60)
    if run.code != 0:
        assert_refused(run, path.name)


def test_things_that_hold_themselves(tmp_path: Path) -> None:
    path = tmp_path / "loop.pickle"
    frames: list[Any] = [FRAME]
    frames.append(frames)
    settings: dict[str, Any] = {"a": 1}
    settings["self"] = settings
    snapshot: dict[str, Any] = dict(GOOD)
    snapshot["segments"] = [snapshot]
    for hostile in (
        GOOD | {"device_traces": [[ALLOC | {"frames": frames}]]},
        GOOD | {"allocator_settings": settings},
        snapshot,
    ):
        path.write_bytes(pickle.dumps(hostile))
        run = process(path, "-o", tmp_path / "out.html", limit=8 * GIGABYTE)
        if run.code != 0:
            assert_refused(run, path.name)


def test_one_object_shared_many_times(tmp_path: Path) -> None:
    """A small file of 20,000 events that share one stack of 20,000 frames must not cost 400 million frames."""
    path = tmp_path / "shared.pickle"
    frames = [FRAME | {"line": i} for i in range(20_000)]
    path.write_bytes(pickle.dumps(GOOD | {"device_traces": [[ALLOC | {"frames": frames} for _ in range(20_000)]]}))
    run = process("stats", path, "--json", limit=8 * GIGABYTE)
    assert run.code == 0 and run.json["snapshots"][0]["devices"][0]["allocations"] == 20_000


@pytest.mark.parametrize("table", ["blocks", "annotations"])
def test_one_long_text_shared_many_times(table: str, tmp_path: Path) -> None:
    """Columns hold a text once for each row: 20,000 times 400 KB from a file of 1 MB."""
    text = "x" * 400_000
    block = {"size": 512, "requested_size": 512, "state": text, "frames": []}
    segment = {"device": 0, "address": 512, "total_size": 512 * 20_000, "blocks": [block] * 20_000}
    annotation = {"device": 0, "name": text, "stage": "START", "time_us": 1}
    more = {"blocks": {"segments": [segment]}, "annotations": {"external_annotations": [annotation] * 20_000}}
    path = tmp_path / "texts.pickle"
    path.write_bytes(pickle.dumps(GOOD | more[table]))
    with pytest.raises(SnapshotError, match="texts that recur"):
        snapreport.load(path)


JUNK: list[Any] = [
    None,
    True,
    -1,
    0,
    1,
    2**31,
    2**63,
    2**64,
    -(2**63) - 1,
    10**400,
    0.5,
    float("nan"),
    float("inf"),
    "",
    "x",
    "alloc",
    "</script>",
    "\ud800",
    "a\x00b",
    b"",
    b"bytes",
    [],
    [None],
    {},
    {"a": 1},
    {1: 2},
    (),
    (0, 0),
    ("x",),
    [[]],
    {(): []},
]


def paths_of(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [p for k, v in items for p in [(*here, k), *paths_of(v, (*here, k))]]


def changed(value: Any, path: tuple[Any, ...], change: Callable[[Any, Any], None]) -> Any:
    """A copy of ``value`` with ``change(container, key)`` applied at the end of ``path``."""
    copy = dict(value) if isinstance(value, dict) else list(value)
    if len(path) == 1:
        change(copy, path[0])
    else:
        copy[path[0]] = changed(copy[path[0]], path[1:], change)
    return copy


@given(snapshots, st.integers(0, 2**32), st.lists(st.integers(0, len(JUNK)), min_size=1, max_size=3))
def test_any_value_replaced_or_missing(snapshot: Any, seed: int, replacements: list[int]) -> None:
    """A good snapshot with one to three values replaced by junk or removed: stats and report answer, or refuse."""
    pick = random.Random(seed)
    for junk in replacements:
        paths = paths_of(snapshot)
        if not paths:
            break

        def change(container: Any, key: Any, junk: int = junk) -> None:
            if junk == len(JUNK):
                del container[key]
            else:
                container[key] = JUNK[junk]

        snapshot = changed(snapshot, pick.choice(paths), change)
    answers_or_refuses(pickle.dumps(snapshot, 2 + seed % 4))


@given(snapshots, st.integers(2, 5), st.data())
def test_any_byte_changed(snapshot: Any, protocol: int, data: st.DataObject) -> None:
    content = bytearray(pickle.dumps(snapshot, protocol))
    for _ in range(data.draw(st.integers(1, 4))):
        # A changed memo index may request gigabytes (tested separately, under a limit): leave long puts alone.
        at = data.draw(st.integers(0, len(content) - 1))
        byte = data.draw(st.integers(0, 255).filter(lambda b: b not in b"rp\x8b\x8d\x8e\x96"))
        content[at] = byte
    if b"r" not in content:
        answers_or_refuses(bytes(content))


def answers_or_refuses(content: bytes) -> None:
    run = in_process("stats", "-", "--json", stdin=content)
    if run.code == 0:
        assert run.json["schema"] == "snapreport-stats/3"
    else:
        assert_refused(run)
