"""Every finding states its basis, is plain data, and links to a place of the page that shows it: to the exact event."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import corpus
import oracle
import pytest
import saving_oracle
from msgspec.structs import replace
from planted import path_of

from snapreport.findings.free_memory_reachability import FreeMemory
from snapreport.findings.model import SEVERITIES, Finding
from snapreport.findings.peak import composition
from snapreport.findings.run import findings
from snapreport.findings.shortage import Shortage, segment_size_for, verdict
from snapreport.number_format import bytes_text, share_text
from snapreport.report.finding_cards import link_of
from snapreport.search.grammar import parse
from snapreport.snapshot import Snapshot
from snapreport.timeline.recording_gaps import has_history

VIEWS = ("timeline", "segments", "reserved", "flame", "table", "events", "summary", "diff")
MIB = 1 << 20


@lru_cache(maxsize=8)
def told(path: Path) -> tuple[Snapshot, list[Finding]]:
    snapshot = corpus.loaded(path)
    return snapshot, findings(snapshot)


def read_hash(link: str, devices: int) -> dict[str, Any]:
    """What the page reads from a link, as static/src/app/hash.ts does; anything it would ignore fails here."""
    assert link.startswith("#")
    state: dict[str, Any] = {}
    for part in link[1:].split("&"):
        name, value = part.split("=", 1)
        assert name not in state
        value = unquote(value)
        if name == "view":
            assert value in VIEWS
        elif name == "device":
            assert re.fullmatch(r"\d{1,15}", value) and int(value) < devices
        elif name == "oom":
            assert re.fullmatch(r"\d{1,15}", value)
        elif name == "at":
            assert value == "-1" or re.fullmatch(r"\d{1,15}", value)
        elif name == "x":
            low, high = map(float, re.fullmatch(r"(-?[\d.e+]+?)\.\.(-?[\d.e+]+)", value).groups())
            assert low < high
        else:
            assert name == "query"
        state[name] = value
    return state


def test_every_finding_is_plain_and_says_what_it_rests_on(telling_path: Path) -> None:
    snapshot, found = told(telling_path)
    assert [SEVERITIES.index(f.severity) for f in found] == sorted(SEVERITIES.index(f.severity) for f in found)
    for finding in found:
        as_json = finding.to_json()
        assert json.loads(json.dumps(as_json, allow_nan=False)) == as_json
        assert finding.title and "\n" not in finding.title and not finding.title.endswith(".")
        assert all(line and "\n" not in line and line.endswith(".") for line in (*finding.detail, *finding.basis))
        assert finding.confidence in ("measured", "inferred", "estimate")
        assert finding.bytes >= 0
        basis, timeline = " ".join(finding.basis), snapshot.timeline(finding.device)
        assert re.search(r"Based on [\d,]+ events?\.", basis)
        assert all(gap.sentence in basis for gap in timeline.recording_gaps)
        assert not (timeline.recording_gaps and finding.confidence == "measured")
        if has_history(timeline):
            assert ("overflowed: its oldest events are lost" in basis) == (timeline.overflowed is True)
            assert ("The replay ends with" in basis) == (timeline.reconciliation_bytes != 0)


def test_missing_frames_and_what_is_unknown_are_told(telling_path: Path) -> None:
    snapshot, found = told(telling_path)
    for number, device in corpus.replayed(telling_path).items():
        if not device.peak_bytes:
            assert not [f for f in found if f.device == number and f.kind == "peak"]
            continue
        (peak,) = [f for f in found if f.device == number and f.kind == "peak"]
        live = [device.allocations[i] for i in device.live_at(device.peak_event)]
        framed = sum(a.size for a in live if a.stack)
        share = share_text(framed, device.peak_bytes)
        assert f"{share} of the bytes at the peak have a stack trace." in peak.basis
        category = snapshot.allocations(number)["category"].to_list()
        unknown = sum(device.allocations[i].size for i in device.live_at(device.peak_event) if category[i] == "unknown")
        assert peak.evidence["unknown_bytes"] == unknown
        said = composition(peak.evidence)
        assert said.lower().endswith(f"unknown {bytes_text(unknown).lower()}.") == (unknown >= 0.01 * device.peak_bytes)


def test_every_link_leads_somewhere(telling_path: Path) -> None:
    snapshot, found = told(telling_path)
    for finding in found:
        events = len(snapshot.events(finding.device))
        state = read_hash(link_of(finding, snapshot.devices.index(finding.device)), len(snapshot.devices))
        assert int(state["device"]) == snapshot.devices.index(finding.device)
        assert "at" not in state or -1 <= int(state["at"]) < events
        if "x" in state:
            assert all(-1 <= edge <= events for edge in finding.link["x"])
        if "query" in state:
            parse(state["query"])
            matching = snapshot.query(state["query"])
            assert (matching["device"] == finding.device).any(), f"{finding.title}: nothing is {state['query']}"


PLANTED = {
    "cycles": ("leak", {"leak": 0, "cycles": 3}),
    "leak": ("leak", {"leak": 5 * MIB, "steps": 9}),
    "churn": ("churn", {}),
    "fragmentation": ("fragmentation", {"layers": 2, "hidden": 128, "heads": 4, "sequence": 64, "memory": 2 << 30}),
    "demand": ("oom", {"layers": 2, "hidden": 128, "heads": 4, "sequence": 64, "memory": 1 << 30}),
    "two devices": ("multi-gpu", {"steps": 2, "devices": 2, "layers": 2, "hidden": 128, "heads": 4, "memory": 2 << 30}),
}


@pytest.fixture(
    params=[*PLANTED, *(n for n in ("pools", "expandable_oom_3gpu.pickle", "late") if n in (*corpus.names(), "pools"))]
)
def anything(request: pytest.FixtureRequest) -> Path:
    if request.param not in PLANTED:
        return corpus.path_of(request.param)
    preset, changes = PLANTED[request.param]
    return path_of(preset, **changes)


def test_every_moment_is_the_one_that_is_meant(anything: Path) -> None:
    """``at`` is the event after which the state is as stated: -1 before the first. An event off by one shows other
    bytes.
    """
    _, found = told(anything)
    devices = corpus.replayed(anything)
    for finding in found:
        list(assert_moment(finding, devices[finding.device]))


def assert_moment(finding: Finding, device: oracle.Device) -> Iterator[None]:
    e, at = finding.evidence, finding.link.get("at")
    if finding.kind == "oom" and "verdict" in e:
        assert device.events[at]["action"] == "oom" and at == finding.event == e["events"][0]
        assert (device.allocated[at + 1], device.reserved[at + 1]) == (e["allocated_bytes"], e["reserved_bytes"])
        assert finding.link["query"] == f"live:{at}"
    elif finding.kind == "fragmentation" and finding.severity == "warning":
        assert device.events[at + 1]["action"] in ("segment_alloc", "segment_map") and at + 1 == e["event"]
        assert (device.allocated[at + 1], device.reserved[at + 1]) == (e["allocated_bytes"], e["reserved_bytes"])
    elif finding.kind == "fragmentation":
        assert device.reserved[at + 1] == max(device.reserved) == e["reserved_bytes"] and e["event"] == at
    elif finding.kind == "peak":
        assert at == finding.event == device.peak_event
    elif finding.kind == "live_at_end":
        assert at == finding.event == len(device.events) - 1
        assert (device.allocated[0], device.allocated[at + 1]) == (e["start_bytes"], e["end_bytes"])
        assert e["new_bytes"] + e["older_bytes"] == e["end_bytes"]
    elif finding.kind == "advice":
        # A request that failed counts where it was made: the peak may be there.
        peak_event = saving_oracle.with_failures(device).peak_event
        assert finding.event == peak_event
        assert "at" not in finding.link or finding.link["view"] == "segments" or at == peak_event
    elif finding.kind == "churn":
        first, last = finding.link["x"][0] + 1, finding.link["x"][1] - 1
        assert device.events[first]["action"] == device.events[last]["action"] == "segment_alloc"
        assert first == finding.event > e["warm_event"]
    elif "bursts" in e:
        stack = device.allocations[
            0
        ].stack  # any; the right one contains just the burst, and the next event is its first free
        held: dict[Any, int] = {}
        for i in device.live_at(at):
            stack = device.allocations[i].stack
            held[stack] = held.get(stack, 0) + device.allocations[i].size
        freed = [a for a in device.allocations if a.free_event == at + 1]
        assert len(freed) == 1 and held[freed[0].stack] == finding.bytes == e["burst_bytes"]
    elif finding.kind == "leak":
        kept = [a for a in device.allocations if a.free_event < 0 and a.alloc_event >= 0]
        assert finding.event == len(device.events) - 1
        assert finding.bytes in {sum(a.size for a in kept if a.stack == stack) for stack in {a.stack for a in kept}}
        assert finding.evidence["bounds"][-1] <= len(device.events)
        assert sum(finding.evidence["staircase"]) >= 0
    elif finding.kind == "oom":
        assert at == finding.event == e["events"][0]
    else:
        assert at in (None, finding.event)
    yield


def test_an_overflowed_trace_is_never_sure() -> None:
    snapshot, found = told(corpus.path_of("truncated"))
    assert snapshot.timeline(0).overflowed
    assert [f.confidence for f in found if f.kind == "peak"] == ["inferred"]
    assert all("oldest events are lost" in " ".join(f.basis) for f in found)


def test_many_failures_are_counted_and_led_to() -> None:
    """More failures than are listed individually."""
    event = {"action": "oom", "addr": 0, "size": 64 * MIB, "stream": 0, "device_free": MIB, "frames": []}
    filler = {"action": "snapshot", "addr": 0, "size": 0, "stream": 0, "frames": []}
    trace = [e for _ in range(14) for e in (event, *[filler] * 1200)]
    path = corpus.scratch() / "failures.pickle"
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [trace]}))
    _, found = told(path)
    ooms = [f for f in found if f.kind == "oom"]
    assert len(ooms) == 11 and "another 4 times" in ooms[-1].title
    assert ooms[-1].evidence["events"] == [1201 * k for k in range(10, 14)]
    assert read_hash(link_of(ooms[-1], 0), 1)["at"] == str(1201 * 10)
    assert bytes_text(64 * MIB) in ooms[0].title and "too large" in ooms[0].title


@pytest.mark.parametrize(
    ("asked", "expandable", "piece"),
    [
        (512, False, 2), (MIB, False, 2), (MIB + 512, False, 20), (10 * MIB - 512, False, 20), (10 * MIB, False, 10),
        (11 * MIB, False, 12), (205 * MIB, False, 206), (512, True, 2), (11 * MIB, True, 20), (32 * MIB, True, 40),
        (40 * MIB, True, 40),
    ],
)  # fmt: skip
def test_pieces_that_the_allocator_takes(asked: int, expandable: bool, piece: int) -> None:
    assert segment_size_for(asked, expandable=expandable) == piece * MIB


def test_room_for_the_request_is_not_room_for_a_piece() -> None:
    """38 MiB free cannot hold the two pages of 20 MiB that a request for 32 MiB takes: no limit of the process is the
    cause.
    """
    few = FreeMemory(
        usable=8 * MIB, other_pool=0, other_stream=0, other_size=0, largest_usable=6 * MIB, largest=6 * MIB
    )
    short = Shortage(32 * MIB, 38 * MIB, 900 * MIB, 890 * MIB, 2 * MIB, 0, 0, few, segment_size=40 * MIB)
    assert verdict(short) == "fragmentation"
    assert verdict(replace(short, device_free=40 * MIB)) == "limit"


def test_generated_requests_fail_for_want_of_a_piece() -> None:
    """As the generator's allocator has it: wherever a run ends for demand, the device did not have that size free."""
    for seed in range(6):
        path = path_of(
            "oom", layers=3, hidden=128, heads=4, sequence=64, memory=1 << 30, expandable=seed % 2 == 0, seed=seed
        )
        for finding in told(path)[1]:
            if finding.kind == "oom":
                assert finding.evidence["device_free_bytes"] < finding.evidence["new_segment_bytes"]
                assert finding.evidence["verdict"] != "limit"


@pytest.mark.parametrize("name", ["leak", "churn"])
def test_a_projection_to_queries_keys_and_values_is_no_vocabulary(name: str) -> None:
    """Of layers that run once or twice in a pass, and a third of whose outputs is copied next."""
    advice = [finding for finding in told(corpus.path_of(name))[1] if finding.kind == "advice"]
    assert advice and "full-logits" not in {finding.evidence["rule"] for finding in advice}
