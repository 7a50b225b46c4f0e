"""What ``load`` and ``stats`` return equals the brute-force oracle: on samples, on real snapshots, on random traces."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import compare
import corpus
import oracle
import pytest
import strategies
from cli import in_process, on_loaded, process
from hypothesis import example, given

import snapreport
from snapreport.contracts import plain
from snapreport.timeline.stats import with_frames


def test_whole_pipeline(snapshot_path: Path) -> None:
    compare.assert_same(corpus.loaded(snapshot_path), corpus.replayed(snapshot_path))


def test_stats(snapshot_path: Path) -> None:
    run = on_loaded("stats", snapshot_path, "--json", "--frames")
    assert run.code == 0 and not run.err
    document = run.json
    assert document["schema"] == "snapreport-stats/3"
    (entry,) = document["snapshots"]
    assert entry["file"].endswith(snapshot_path.name) and entry["bytes"] == snapshot_path.stat().st_size
    devices = corpus.replayed(snapshot_path)
    assert [d["device"] for d in entry["devices"]] == sorted(devices)
    settings = corpus.raw(snapshot_path)
    settings = settings.get("allocator_settings") or {} if isinstance(settings, dict) else {}
    for stats in entry["devices"]:
        compare.assert_stats(stats, devices[stats["device"]], entry["stacks"])
        assert stats["trace_overflowed"] == settings.get("trace_alloc_overflowed")
        assert stats["kind"] in ("cuda", "host")


def load(snapshot: Any, protocol: int) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "random.pickle"
        path.write_bytes(strategies.pickled(snapshot, protocol))
        return snapreport.load(path)


@given(strategies.snapshots, strategies.protocols)
def test_random_traces(snapshot: Any, protocol: int) -> None:
    loaded = load(snapshot, protocol)
    devices = oracle.replay(snapshot)
    compare.assert_same(loaded, devices)
    stats = json.loads(json.dumps(plain(with_frames(loaded.recording, loaded.file_stats()))))
    for entry in stats["devices"]:
        compare.assert_stats(entry, devices[entry["device"]], stats["stacks"])


def trace(*events: tuple[str, int, int], **final: Any) -> dict[str, Any]:
    """A snapshot of one device from (action, address, size) rows; ``final``: blocks as a<address>=(state, size)."""
    blocks = [
        {"address": int(name[1:]), "size": 512, "requested_size": size, "state": state}
        for name, (state, size) in final.items()
    ]
    segment = {"device": 0, "address": 0, "total_size": 1 << 20, "stream": 0, "segment_type": "small", "blocks": blocks}
    return {
        "segments": [segment] if final else [],
        "device_traces": [[{"action": a, "addr": addr, "size": size, "stream": 0} for a, addr, size in events]],
    }


def lifetimes(snapshot: dict[str, Any]) -> list[tuple[str, int, int, int, int, int]]:
    table = load(snapshot, 4).allocations(0)
    return (
        table.with_columns(table["origin"].cast(str))
        .select("origin", "addr", "size", "alloc_event", "free_requested_event", "free_event")
        .rows()
    )


@pytest.mark.parametrize(
    ("snapshot", "want"),
    [
        (trace(("alloc", 1, 5), ("free_requested", 1, 5), ("free_completed", 1, 5)), [("traced", 1, 5, 0, 1, 2)]),
        (
            trace(("alloc", 1, 5), ("alloc", 1, 7), ("free_completed", 1, 7)),
            [("traced", 1, 5, 0, -1, 1), ("traced", 1, 7, 1, -1, 2)],
        ),
        (
            trace(("alloc", 1, 5), ("free_requested", 1, 5), ("alloc", 2, 1), ("free_requested", 2, 1)),
            [("traced", 1, 5, 0, 1, 1), ("traced", 2, 1, 2, 3, 3)],
        ),
        (
            trace(("alloc", 1, 5), ("free_requested", 1, 5), ("alloc", 2, 1), ("free_completed", 2, 1)),
            [("traced", 1, 5, 0, 1, -1), ("traced", 2, 1, 2, -1, 3)],
        ),
        (
            trace(("free_completed", 9, 3), ("free_completed", 8, 4)),
            [("freed", 8, 4, -1, -1, 1), ("freed", 9, 3, -1, -1, 0)],
        ),
        (
            trace(
                ("alloc", 1, 5),
                ("free_completed", 9, 3),
                a7=("active_allocated", 6),
                a1=("active_allocated", 5),
                a6=("inactive", 1),
            ),
            [("ghost", 7, 6, -1, -1, -1), ("freed", 9, 3, -1, -1, 1), ("traced", 1, 5, 0, -1, -1)],
        ),
        (trace(("alloc", 1, 0), ("free_completed", 1, 0)), [("traced", 1, 0, 0, -1, 1)]),
    ],
    ids=[
        "life",
        "alloc over live",
        "no free_completed recorded",
        "pending free",
        "freed in reverse",
        "birth order",
        "no bytes",
    ],
)
def test_meanings(snapshot: dict[str, Any], want: list[tuple[Any, ...]]) -> None:
    """The definitions, one by one, in numbers computed by hand; the oracle must agree."""
    assert lifetimes(snapshot) == want
    assert [
        (a.origin, a.addr, a.size, a.alloc_event, a.free_requested_event, a.free_event)
        for a in oracle.replay(snapshot)[0].allocations
    ] == want


def test_unknown_actions_and_keys_are_told(tmp_path: Path) -> None:
    snapshot = trace(("alloc", 1, 5), ("teleport", 1, 5), ("teleport", 2, 5)) | {"from_the_future": 1}
    path = tmp_path / "future.pickle"
    path.write_bytes(strategies.pickled(snapshot, 4))
    loaded = snapreport.load(path)
    assert loaded.recording.notes["unknown_actions"] == {"teleport": 2}
    assert "from_the_future" in loaded.recording.notes["unknown_keys"]
    assert loaded.events(0)["action"].cast(str).to_list() == ["alloc", "teleport", "teleport"]
    assert in_process(path, "-o", tmp_path / "out.html").code == 0
    assert "teleport" in (tmp_path / "out.html").read_text()


def test_real_snapshots_reconcile(real_path: Path) -> None:
    """To the byte, except for the one trimmed by hand, which says so."""
    stats = corpus.loaded(real_path).stats()
    differences = {d["device"]: d["reconciliation_bytes"] for d in stats["devices"] if d["reconciliation_bytes"]}
    assert differences == ({0: 402719744} if real_path.name == "trimmed_inconsistent.pickle" else {})


def test_stats_of_a_file_that_is_read() -> None:
    path = corpus.path_of("small")
    assert in_process("stats", path, "--json") == on_loaded("stats", path, "--json")


def test_stats_table_for_people() -> None:
    run = process("stats", corpus.path_of("small"))
    assert run.code == 0 and not run.err
    assert ("peak" in run.out.lower() and "GiB" in run.out) or "MiB" in run.out


@example(trace(("alloc", 2**64 - 1, 2**40), ("free_completed", 2**64 - 1, 2**40)))
@given(strategies.one_device)
def test_peak_is_the_first_of_the_greatest(snapshot: Any) -> None:
    device = load(snapshot, 5).timeline(0)
    totals = device.allocated.tolist()
    assert totals[device.peak_event + 1] == max(totals) == device.peak_bytes
    assert all(t < device.peak_bytes for t in totals[: device.peak_event + 1])
    assert min(totals) >= 0
