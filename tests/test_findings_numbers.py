"""Every number in a finding is recomputed from the raw snapshot by brute force: on generated snapshots and on real
ones.

A number that is not recomputed fails here by its name, so that a new one cannot be forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import corpus
import findings_oracle
import pytest
import room_oracle
from expected import case, module_of
from held_oracle import Row
from planted import path_of

from snapreport.findings.run import KINDS

MIB = 1 << 20
MISTAKES = Path(__file__).parent / "recordings" / "mistakes"
SMALL = {"layers": 2, "hidden": 128, "heads": 4, "sequence": 64}
# Causes that no snapshot of the corpus has.
PLANTED = {
    "cycles": ("leak", {"leak": 0, "cycles": 3}),
    "two devices": ("multi-gpu", {"steps": 2, "devices": 2, **SMALL, "memory": 2 << 30}),
    "checkpointing": ("checkpointing", {"steps": 2}),
    "late": ("late", {}),
}
# Numbers that are not recomputed, and why.
EXCEPTIONS = {
    "advice.evidence.reserved_bytes": "of a setting replayed by the allocator's model, which has tests of its own",
    "advice.evidence.replayed_bytes": "the same",
    "live_at_end.evidence.steps": "where no steps are annotated they are cycles of the curve, a guess of its own: "
    "test_findings_leaks has it",
    **{
        f"oom.evidence.{name}": "test_cut_off_pass compares it with the same program on a larger device"
        for name in ("layer", "layers", "missing_bytes")
    },
    **{
        f"oom.evidence.{name}": "of the recorder's samples: test_device_memory plants them"
        for name in ("device_bytes", "outside_bytes", "other_processes_bytes")
    },
    "peak.evidence.max_memory_allocated_bytes": "test_max_memory_allocated compares it with what PyTorch said",
}
IDENTITIES = ("stack", "category", "function", "module", "place", "address")
SORTED_BY = ("bytes", "free_bytes", "free")
# Limits on the listed rows; lists that are missing here are complete.
MOST = {
    "peak.evidence.last_stretch.stacks": 5,
    "churn.evidence.stacks": 5,
    **{f"peak.evidence.{name}": 10 for name in ("stacks", "functions", "places", "modules")},
    **{f"oom.evidence.{name}": 10 for name in ("stacks", "pinning_stacks")},
    **{f"fragmentation.evidence.{name}": 10 for name in ("segments", "pinning_stacks")},
    **{f"live_at_end.evidence.{name}": 10 for name in ("stacks", "places")},
}


def numeric(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """The numbers in plain values, by their paths."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from numeric(inner, f"{path}.{key}")
    elif isinstance(value, list):
        for inner in value:
            yield from numeric(inner, f"{path}[]")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path, value


def recomputed(told: Any, want: Any, path: str) -> set[str]:
    """The paths of all numbers in ``told`` that are also in ``want``, all of them equal."""
    if isinstance(told, dict):
        shared = told.keys() & want.keys() if isinstance(want, dict) else ()
        return {name for key in shared for name in recomputed(told[key], want[key], f"{path}.{key}")}
    if isinstance(told, list) and told and isinstance(told[0], dict):
        return rows(told, want, path)
    assert told == want, path
    return {name for name, _ in numeric(told, path)}


def rows(told: list[Row], want: list[Row], path: str) -> set[str]:
    """Rows of the largest: those listed are among all rows, and as large as the largest of these. Equal ones in any
    order.
    """
    assert len(told) == min(len(want), MOST.get(path, len(want))), path
    identity = next(key for key in IDENTITIES if key in told[0])
    by = next(key for key in SORTED_BY if key in told[0])
    assert [row[by] for row in told] == [row[by] for row in want[: len(told)]], path
    all_rows = {row[identity]: row for row in want}
    assert len(all_rows) == len(want) and len({row[identity] for row in told}) == len(told), path
    return {name for row in told for name in recomputed(row, all_rows[row[identity]], f"{path}[]")}


@cache
def check(path: Path) -> set[str]:
    """Compares all findings of a snapshot; returns the names of the numbers in them."""
    found, names = case(path), set()
    for finding in found.found:
        want = found.expected(finding)
        assert want is not None, f"{finding.title}: the oracle has no such finding"
        told = found.plain(finding)
        here = recomputed(told, want, finding.kind)
        left = {name for name, _ in numeric(told, finding.kind)} - here
        assert left <= EXCEPTIONS.keys(), f"numbers that are not recomputed: {sorted(left - EXCEPTIONS.keys())}"
        names |= here | left
    return names


def test_every_number(telling_path: Path) -> None:
    check(telling_path)


@pytest.mark.parametrize("name", PLANTED)
def test_every_number_of_planted_causes(name: str) -> None:
    preset, changes = PLANTED[name]
    check(path_of(preset, **changes))


@pytest.mark.parametrize(
    ("name", "number", "size"),
    [
        ("retries", "attempt_bytes", 10 * 8192 * 768 * 4),  # of ten layers, what Tanh makes of 8,192 rows of 768
        ("validation", "iterations", 24),
        ("validation", "joined_bytes", 24 * 8 * 96 * 96 * 8),  # indices of 24 batches of eight pictures
    ],
)
def test_numbers_of_recorded_mistakes(name: str, number: str, size: int) -> None:
    path = MISTAKES / f"{name}.pickle.xz"
    assert f"advice.evidence.{number}" in check(path)
    assert size in [finding.evidence.get(number) for finding in case(path).found]


def test_all_kinds_and_all_exceptions_occur() -> None:
    """A number compared on no snapshot, or an exception used on none, would be an unnoticed gap."""
    some = [corpus.path_of(n) for n in ("churn", "leak", "oom", "fragmentation", "pools", "overlap", "expandable")]
    names = set().union(*(check(path) for path in (*some, path_of("leak", leak=0, cycles=3))))
    for kind in {kind.name for kind in KINDS} - {name.split(".")[0] for name in names}:
        preset, changes = module_of(kind).PLANTED
        assert any(name.startswith(f"{kind}.") for name in check(path_of(preset, **changes))), kind
    assert {
        "leak.evidence.staircase[]",
        "leak.evidence.burst_bytes",
        "peak.evidence.stacks[].peak_without_bytes",
    } <= names
    assert {
        "oom.evidence.pinning_stacks[].free_bytes",
        "churn.link.x[]",
        "fragmentation.evidence.segments[].free",
    } <= names


def test_findings_that_the_oracle_has_are_told(telling_path: Path) -> None:
    """The other way round: a peak, what is new at the end, failures and fragmentation are not omitted."""
    found = case(telling_path)
    for number, device in found.devices.items():
        kinds = [f.kind for f in found.found if f.device == number]
        assert kinds.count("peak") == (device.peak_bytes > 0)
        assert kinds.count("oom") == min(11, len(room_oracle.failures(device)))
        assert kinds.count("live_at_end") == (findings_oracle.kept(device, 0, None) is not None)
        is_complete = not found.snapshot.timeline(number).recording_gaps
        if number >= 0 and device.events and device.allocations and is_complete:
            assert kinds.count("fragmentation") == (room_oracle.fragmentation(found.room(number)) is not None)
        assert kinds.count("churn") == (
            findings_oracle.churn(device, found.bounds(number)) is not None
        ) or not found.bounds(number)
