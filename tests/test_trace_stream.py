"""Traces diverted while the pickle is read: the same recording as without, for every file and protocol."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import corpus
import numpy as np
import polars.testing
import pytest

import snapreport
from snapreport.errors import SnapshotError
from snapreport.reading import safe_pickle, trace_stream
from snapreport.reading.decode import decode
from snapreport.reading.recording import Recording
from snapreport.reading.trace_stream import DivertedPickle, Unusual

PLACE: dict[str, Any] = {"name": "x", "path": "x", "file_bytes": 1}


def diverted(pickled: bytes, *, parse: bool = True) -> tuple[Recording, int]:
    """The recording read with collectors, and their number."""
    raw, collectors = safe_pickle.load_diverted(io.BytesIO(pickled), len(pickled), parse=parse)
    return decode(raw, **PLACE, pickle_bytes=len(pickled), collectors=collectors), len(collectors)


def plain(pickled: bytes) -> Recording:
    return decode(safe_pickle.load(io.BytesIO(pickled), len(pickled)), **PLACE, pickle_bytes=len(pickled))


def assert_equal(one: Recording, other: Recording) -> None:
    polars.testing.assert_frame_equal(one.frames, other.frames)
    assert np.array_equal(one.stack_offsets, other.stack_offsets)
    assert np.array_equal(one.stack_frames, other.stack_frames)
    assert one.settings == other.settings and one.notes == other.notes and list(one.devices) == list(other.devices)
    polars.testing.assert_frame_equal(one.annotations, other.annotations)
    for device, record in one.devices.items():
        for table in ("events", "segments", "blocks"):
            polars.testing.assert_frame_equal(getattr(record, table), getattr(other.devices[device], table))


def traces(raw: Any) -> list[int]:
    """Lengths of the traces that a collector can replace: two entries make a batch, one does not."""
    found = list(raw.get("device_traces") or []) if isinstance(raw, dict) else []
    host = raw.get("host_traces") if isinstance(raw, dict) else None
    found += [host] if host and isinstance(host[0], dict) else host or []
    return [len(trace) for trace in found if len(trace) > 1]


# Every fourth: 116 of them take half a minute.
RECORDED = sorted((corpus.REAL.parent / "recorded").glob("*.pickle"))[::4]


@pytest.mark.parametrize("path", [*corpus.REAL.glob("*.pickle"), *RECORDED], ids=lambda path: path.name)
def test_real_recordings_equal_the_plain_way(path: Path) -> None:
    pickled = path.read_bytes()
    expected = plain(pickled)
    # The trace comes first there, and blocks refer to lists of frames in it.
    for parse in (True, False) if path.name != "trimmed_inconsistent.pickle" else (False,):
        recording, collectors = diverted(pickled, parse=parse)
        assert collectors == len(traces(corpus.raw(path)))
        assert_equal(recording, expected)


@pytest.mark.parametrize("name", corpus.GENERATED)
def test_every_protocol_equals_the_plain_way(name: str) -> None:
    raw = corpus.raw(corpus.path_of(name))
    for pickled in (pickle.dumps(raw, protocol) for protocol in (2, 4)):
        recording, collectors = diverted(pickled)
        assert collectors == len(traces(raw))
        assert_equal(recording, plain(pickled))


def entry(i: int, frames: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "action": "alloc" if i % 2 == 0 else "free_completed",
        "addr": 512,
        "size": 512,
        "stream": 0,
        "frames": frames,
    }


FRAMES = [{"filename": "a.py", "line": 1, "name": "f"}]


def snapshot(*lengths: int, **more: Any) -> dict[str, Any]:
    return {"segments": [], "device_traces": [[entry(i, FRAMES) for i in range(n)] for n in lengths], **more}


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("block", [64, 1000, 1 << 20])
def test_wherever_blocks_end(protocol: int, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_stream, "BLOCK", block)
    for lengths in ((2,), (0, 2), (1, 2), (2, 0, 1000), (1001, 3000), (0, 0, 2, 1, 2)):
        pickled = pickle.dumps(snapshot(*lengths, host_traces=[entry(i, FRAMES) for i in range(4)]), protocol)
        recording, collectors = diverted(pickled)
        assert collectors == sum(n > 1 for n in lengths) + 1
        assert_equal(recording, plain(pickled))


def test_entries_with_different_keys() -> None:
    """Some entries have more keys than others, and values that look like the marks between entries."""
    entries: list[dict[str, Any]] = []
    for i in range(4000):
        one = entry(i, [*FRAMES, {"filename": "b.py", "line": i % 7, "name": "action"}])
        one |= {"time_us": i} if i % 997 == 0 else {}
        one |= {"user_metadata": "action"} if i % 1409 == 0 else {"compile_context": None} if i % 1601 == 0 else {}
        entries.append(one)
    ooms = [{"action": "oom", "size": 1, "stream": 0, "device_free": free} for free in (2, 3)]
    raw = {"segments": [], "device_traces": [entries[:1500], [*entries[1500:2200], *ooms, *entries[2200:]]]}
    for protocol in (2, 4):
        pickled = pickle.dumps(raw, protocol)
        assert_equal(diverted(pickled)[0], plain(pickled))


def test_frames_that_blocks_and_traces_share() -> None:
    shared = [{"filename": "a.py", "line": 7, "name": "g"}]
    blocks = [{"address": 512, "size": 512, "requested_size": 512, "state": "active_allocated", "frames": shared}]
    segments = [{"device": 0, "address": 512, "total_size": 512, "blocks": blocks, "frames": shared}]
    trace = [entry(0, [dict(shared[0])]), entry(0, shared), entry(1, shared), entry(0, shared)]
    pickled = pickle.dumps({"segments": segments, "device_traces": [trace]}, 4)
    assert_equal(diverted(pickled)[0], plain(pickled))


def test_frames_of_their_own_in_each_list() -> None:
    """As in a file that was JSON: first few, then most, then few of the frames are dicts that no other list has."""
    frames = [{"filename": f"f{i}.py", "line": i, "name": f"g{i}"} for i in range(300)]
    shared = [entry(i, [frames[(i * i + 7 * j) % 300] for j in range(9)]) for i in range(40_000)]
    separate = [
        one | {"frames": [dict(frame) for frame in one["frames"]]} if 8_000 < i < 24_000 else one
        for i, one in enumerate(shared)
    ]
    recording, other = (plain(pickle.dumps({"segments": [], "device_traces": [one]}, 4)) for one in (shared, separate))
    assert len(recording.frames) == len({(i * i + 7 * j) % 300 for i in range(300) for j in range(9)})
    assert_equal(other, recording)


@pytest.mark.parametrize(
    "raw",
    [
        snapshot(2, user=b"ue]\x94(}\x94(", later="." * 64),
        snapshot(2, other=[[entry(0, FRAMES), entry(1, FRAMES)]] * 2, again=[[entry(0, []), entry(1, [])]]),
        {"segments": [], "elsewhere": [[entry(0, FRAMES), entry(1, FRAMES)]]},
    ],
    ids=["a trace in a text", "lists of lists elsewhere", "no traces"],
)
def test_what_is_unusual_is_read_the_plain_way(raw: Any, tmp_path: Path) -> None:
    import snapreport

    pickled = pickle.dumps(raw, 4)
    with pytest.raises(Unusual):
        diverted(pickled)
    path = tmp_path / "unusual.pickle"
    path.write_bytes(pickled)
    assert_equal(snapreport.load(path).recording, plain(pickled))


def test_a_frame_that_claims_more_than_the_file_holds(tmp_path: Path) -> None:
    path = tmp_path / "frame.pickle"
    pickled = pickle.dumps({"segments": [], "device_traces": [[]]}, 4)
    path.write_bytes(pickled[:3] + bytes([pickled[3] + 1]) + pickled[4:])
    with pytest.raises(SnapshotError, match="cut short"):
        snapreport.load(path)


def test_persistent_ids_of_the_files_own_are_refused(tmp_path: Path) -> None:
    import snapreport

    path = tmp_path / "persistent.pickle"
    path.write_bytes(b"\x80\x04N" + b"Q.")
    with pytest.raises(SnapshotError, match="persistent ids"):
        snapreport.load(path)


@pytest.mark.parametrize("head", [b"", b"\x80", b"\x80\x01", b"(l.", b"\x80\x06"])
def test_no_known_protocol(head: bytes) -> None:
    with pytest.raises(Unusual):
        DivertedPickle(io.BytesIO(head))
