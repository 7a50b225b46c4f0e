"""Out of memory: planted causes are distinguished, and every number is recomputed by a simple replay of the
allocator.
"""

from __future__ import annotations

import pickle
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import allocator_oracle
import corpus
import generator
import planted_trace
import pytest
from generator.allocator import Allocator, OutOfMemoryError
from generator.layout import entry_dicts, segment_dicts
from generator.memory import DeviceMemory
from generator.recorder import Recorder

import snapreport
from snapreport.findings.free_memory_reachability import FreeMemory
from snapreport.findings.oom import oom_findings, retries
from snapreport.findings.run import findings
from snapreport.findings.shortage import Shortage, verdict

MIB = 2**20
SMALL_MODEL = {"steps": 1, "layers": 2, "sequence": 256, "batch": 2, "memory": 3 * 2**30}


def found(path: Path) -> list[Any]:
    snapshot = snapreport.load(path)
    return [f for device in snapshot.devices for f in oom_findings(snapshot, snapshot.timeline(device))]


def saved(raw: dict[str, Any], folder: Path) -> Path:
    path = folder / "oom.pickle"
    path.write_bytes(pickle.dumps(raw, 4))
    return path


def holes(segments: list[allocator_oracle.Segment], event: dict[str, Any]) -> dict[str, int]:
    """Why the request could not use each hole, in order."""
    small = event["size"] <= MIB
    total = {"own": 0, "stream": 0, "pool": 0, "size": 0, "largest": 0, "pending": 0}
    for segment in segments:
        is_small = (
            segment.size == 2 * MIB
            if not segment.expandable
            else all(b[1] <= MIB for b in segment.blocks if b[3] != "free")
        )
        for _, size, _, state in segment.blocks:
            if state == "pending free":
                total["pending"] += size
            if state != "free":
                continue
            if segment.pool is not None and tuple(segment.pool) != tuple(event.get("pool_id", (0, 0))):
                total["pool"] += size
            elif segment.stream != event["stream"]:
                total["stream"] += size
            elif is_small != small:
                total["size"] += size
            else:
                total["own"] += size
                total["largest"] = max(total["largest"], size)
    return total


def assert_numbers(finding: Any, trace: list[dict[str, Any]], settings: dict[str, Any] | None) -> None:
    event = finding.event
    _, states, parts = allocator_oracle.states(trace[: event + 1], settings)
    now, e = states[-1], finding.evidence
    want = holes(now, trace[event])
    assert e["requested_bytes"] == finding.bytes == trace[event]["size"]
    assert e["device_free_bytes"] == trace[event]["device_free"]
    assert e["reserved_bytes"] == sum(s.size for s in now)
    assert e["allocated_bytes"] == sum(b[2] for s in now for b in s.blocks if b[3] != "free")
    assert (e["rounding_bytes"], e["free_segment_bytes"]) == (parts[-1][0], parts[-1][2])
    assert e["usable_free_bytes"] == want["own"] and e["largest_usable_free_bytes"] == want["largest"]
    assert (e["other_stream_bytes"], e["other_pool_bytes"], e["other_size_bytes"]) == (
        want["stream"],
        want["pool"],
        want["size"],
    )
    assert e["pending_free_bytes"] == want["pending"]
    assert e["unused_bytes"] == e["rounding_bytes"] + want["own"] + want["stream"] + want["pool"] + want["size"]
    assert sum(row["bytes"] for row in e["categories"]) == e["allocated_bytes"]


@pytest.mark.parametrize(
    ("preset", "changes", "why"),
    [
        ("oom", {"steps": 1, "layers": 2}, "demand"),
        ("fragmentation", SMALL_MODEL, "fragmentation"),
        ("multi-gpu", {"steps": 1, "layers": 2, "devices": 2, "memory": 6 * 2**30}, "demand"),
        ("oom", {"steps": 1, "layers": 2, "layout": "2.5"}, "demand"),
    ],
)
def test_planted(preset: str, changes: dict[str, Any], why: str, tmp_path: Path) -> None:
    raw = generator.make(preset, **changes)
    (finding,) = found(saved(raw, tmp_path))
    assert finding.severity == "error" and finding.evidence["verdict"] == why
    assert finding.device == len(raw["device_traces"]) - 1
    assert_numbers(finding, raw["device_traces"][finding.device], raw["allocator_settings"])
    asked = "The pool of the request was not recorded; it is taken for the default one (0, 0)."
    assert (asked in finding.basis) == (changes.get("layout") == "2.5")


def test_fragmentation_names_who_pins(tmp_path: Path) -> None:
    """Predictions of 50 MiB each that stay alive hold a segment of 96 MiB, and nothing else does."""
    raw = generator.make("fragmentation", **SMALL_MODEL)
    (finding,) = found(saved(raw, tmp_path))
    pin = finding.evidence["pinning_stacks"][0]
    assert pin["function"] == "keep_prediction evaluate.py" and pin["free_bytes"] == pin["segments"] * 46 * MIB
    assert (
        pin["allocated_bytes"] == pin["segments"] * 50 * MIB
        and finding.evidence["largest_usable_free_bytes"] == 46 * MIB
    )
    assert finding.title == "Out of memory on cuda:0: fragmentation"
    assert finding.detail[0].startswith("A 96.0 MiB request failed with ")
    assert finding.detail[0].endswith(": the largest free block that it could use was 46.0 MiB.")


@pytest.mark.parametrize("name", ["training", "small", "churn", "leak", "expandable"])
def test_none_where_none_was(name: str) -> None:
    assert found(corpus.path_of(name)) == []


def test_real_ones() -> None:
    """On a real device, with expandable segments: recorded from the start, so that the simple replay can follow."""
    if "expandable_oom_3gpu.pickle" not in corpus.real_names():
        pytest.skip(corpus.NO_REAL)
    path = corpus.path_of("expandable_oom_3gpu.pickle")
    raw = corpus.raw(path)
    (finding,) = found(path)
    e, trace = finding.evidence, raw["device_traces"][1]
    assert (finding.device, finding.event, trace[421]["action"]) == (1, 421, "oom")
    assert_numbers(finding, trace, raw["allocator_settings"])
    short = e["requested_bytes"] - e["device_free_bytes"] - (e["unused_bytes"] - e["rounding_bytes"])
    assert short > 0 and e["verdict"] == "demand" and e["expandable_segments"] is True


class Program:
    """The sample's allocator on a device of 200 MiB, run by hand until it fails."""

    def __init__(self, **options: Any) -> None:
        self.recorder = Recorder(0, random.Random(1))
        self.allocator = Allocator(0, DeviceMemory(0, 200 * MIB, 0), self.recorder, **options)

    def fails(self, size: int, stream: int = 0) -> None:
        with pytest.raises(OutOfMemoryError):
            self.allocator.malloc(size, stream)

    def finding(self, folder: Path) -> Any:
        trace = entry_dicts(self.recorder, "2.12", True, False)
        raw = {"segments": segment_dicts(self.allocator), "device_traces": [trace]}
        (finding,) = found(saved(raw, folder))
        assert_numbers(finding, trace, None)
        return finding


def test_locked_in_a_private_pool(tmp_path: Path) -> None:
    program = Program()
    program.allocator.begin_capture((0, 1))
    block = program.allocator.malloc(150 * MIB)
    program.allocator.free(block)
    program.allocator.end_capture()
    program.fails(60 * MIB)
    finding = program.finding(tmp_path)
    assert finding.evidence["verdict"] == "pool-locked" and finding.evidence["other_pool_bytes"] == 150 * MIB


def test_locked_in_another_stream(tmp_path: Path) -> None:
    """Two blocks in one segment of stream 7, the large one free: the segment cannot be released."""
    program = Program()
    whole = program.allocator.malloc(150 * MIB, 7)
    program.allocator.free(whole)
    program.allocator.malloc(20 * MIB, 7)
    program.fails(60 * MIB)
    finding = program.finding(tmp_path)
    assert finding.evidence["verdict"] == "pool-locked" and finding.evidence["other_stream_bytes"] == 130 * MIB


def test_mixed(tmp_path: Path) -> None:
    """40 MiB in a usable hole, 50 in another stream's and 70 on the device: neither is enough alone."""
    program = Program()
    for size, stream in ((60 * MIB, 0), (70 * MIB, 7)):
        program.allocator.free(program.allocator.malloc(size, stream))
        program.allocator.malloc(20 * MIB, stream)
    program.fails(140 * MIB)
    finding = program.finding(tmp_path)
    assert finding.evidence["verdict"] == "mixed"
    assert (finding.evidence["usable_free_bytes"], finding.evidence["other_stream_bytes"]) == (40 * MIB, 50 * MIB)


def test_retries_are_one(tmp_path: Path) -> None:
    """A program that halves its batch until it fits fails three times at one moment, and again much later."""
    program = Program()
    for size in (900, 700, 500):
        program.fails(size * MIB)
        program.allocator.free(program.allocator.malloc(4 * MIB))
    program.recorder.now_us += 60_000_000
    program.fails(300 * MIB)
    trace = entry_dicts(program.recorder, "2.12", True, False)
    raw = {"segments": segment_dicts(program.allocator), "device_traces": [trace]}
    first, second = found(saved(raw, tmp_path))
    fails = [i for i, e in enumerate(trace) if e["action"] == "oom"]
    assert first.evidence["events"] == fails[:3] and first.evidence["requested"] == [900 * MIB, 700 * MIB, 500 * MIB]
    assert second.evidence["events"] == fails[3:]
    assert any("failed 3 times" in line for line in first.detail)
    for entry in trace:
        del entry["time_us"]
    timeline = snapreport.load(saved(raw, tmp_path)).timeline(0)
    assert retries(timeline) == [fails]  # without times only the number of events between them decides


@pytest.mark.parametrize(
    ("failed", "groups"),
    [
        ({7: 0, 1007: 0}, [[7, 1007]]),
        ({7: 0, 1008: 0}, [[7], [1008]]),  # a thousand events
        ({7: 5, 9: 1_000_005}, [[7, 9]]),
        ({7: 5, 9: 1_000_006}, [[7], [9]]),  # a second
        ({7: 0, 900: 900_000, 1800: 1_800_000, 9000: 1_800_001}, [[7, 900, 1800], [9000]]),  # each near the last
        ({7: None, 9: 60_000_000}, [[7, 9]]),
        ({7: 0, 9: None, 2000: None}, [[7, 9], [2000]]),
        ({}, []),
    ],
)
def test_failures_near_each_other(failed: dict[int, int | None], groups: list[list[int]]) -> None:
    timeline: Any = SimpleNamespace(oom_events=list(failed), events={"time_us": failed})
    assert retries(timeline) == groups


def test_many_are_told_in_short(tmp_path: Path) -> None:
    program = Program()
    for _ in range(14):
        program.fails(300 * MIB)
        program.recorder.now_us += 5_000_000
    raw = {"segments": [], "device_traces": [entry_dicts(program.recorder, "2.12", True, False)]}
    told = found(saved(raw, tmp_path))
    assert len(told) == 11 and "another 4 times" in told[-1].title and len(told[-1].evidence["events"]) == 4


@pytest.mark.parametrize(
    ("asked", "device", "own", "locked", "pending", "largest", "why"),
    [
        (100, 100, 0, 0, 0, 0, "limit"),
        (100, 0, 200, 0, 0, 150, "unclear"),
        (100, 40, 60, 0, 0, 30, "fragmentation"),
        (100, 40, 59, 60, 0, 30, "pool-locked"),
        (100, 40, 30, 30, 0, 30, "mixed"),
        (100, 40, 30, 0, 30, 30, "mixed"),
        (100, 40, 30, 29, 0, 30, "demand"),
        (100, None, 99, 0, 0, 99, "demand"),
    ],
)
def test_verdicts(asked: int, device: int | None, own: int, locked: int, pending: int, largest: int, why: str) -> None:
    reach = FreeMemory(own, locked, 0, 0, largest, largest)
    assert verdict(Shortage(asked, device, 1000, 900, 0, pending, 0, reach)) == why


def letters(text: str, *, is_whole: bool = True) -> dict[str, Any]:
    """A trace of requests of 16 MiB: (w)eights, (f)orward, of an adap(t)er, (b)ackward, (s)tep of an optimizer, freed
    at once where upper case; (p) a step's and (u) others from before the trace; (o) and (x): a request of a step, or of
    a forward pass, that fails.
    """
    torch = "/site-packages/torch"
    frames = {
        "f": [("/w/model.py", "forward"), (f"{torch}/nn/modules/module.py", "_call_impl")],
        "b": [(f"{torch}/autograd/__init__.py", "backward")],
        "s": [(f"{torch}/optim/adamw.py", "_init_group"), (f"{torch}/optim/optimizer.py", "wrapper")],
    }
    frames["w"] = [(f"{torch}/nn/modules/module.py", name) for name in ("_apply", "to")]
    frames["u"] = [("/w/data.py", "load")]
    frames["t"] = [("/site-packages/peft/tuners/layer.py", "forward"), *frames["f"]]
    frames |= {"o": frames["s"], "p": frames["s"], "x": frames["f"]}
    trace, live = list[dict[str, Any]](), dict[int, dict[str, Any]]()
    for number, letter in enumerate(text):
        stack = [{"filename": file, "line": 7, "name": name} for file, name in frames[letter.lower()]]
        event = {"addr": number << 30, "size": 16 * MIB, "stream": 0, "frames": stack}
        if letter in "ox":
            trace.append(event | {"action": "oom", "device_free": 0})
            continue
        trace += [event | {"action": "alloc"}] * (letter not in "pu")
        if letter.isupper():
            trace += [event | {"action": action} for action in ("free_requested", "free_completed")]
        else:
            live[number << 30] = event
    segments = [
        {
            "device": 0, "address": address, "total_size": 16 * MIB, "stream": 0, "allocated_size": 16 * MIB,
            "active_size": 16 * MIB, "segment_type": "large", "blocks": [
                {"address": address, "size": 16 * MIB, "requested_size": 16 * MIB, "state": "active_allocated",
                 "frames": event["frames"]},
            ],
        }
        for address, event in live.items()
    ]  # fmt: skip
    return {"segments": segments if is_whole else [], "device_traces": [trace], "allocator_settings": {}}


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("fbso", 1), ("fbsso", 2), ("fbSso", 1), ("ffbbfbsso", 2),
        ("fbo", 0),  # it fails before it has made any
        ("fbsx", 0), ("fbsfx", 0),  # not in a step
        ("fbsfbso", 0), ("sfbso", 0), ("pfbso", 0),  # not the first step
        ("sso", 0),  # nor is it where no backward pass is recorded
    ],
)  # fmt: skip
def test_state_that_the_first_step_of_an_optimizer_has_made(text: str, made: int, tmp_path: Path) -> None:
    (finding,) = found(saved(letters(text), tmp_path))
    said = [line for line in finding.detail if "first optimizer step" in line]
    assert [line.endswith(f"the optimizer's state: {16 * made}.0 MiB so far.") for line in said] == [True] * bool(made)


@pytest.mark.parametrize(
    ("text", "more"),
    [
        ("wwwfbx", 96),
        ("wwwfbsx", 0), ("wwwfbSx", 0),  # a step has run
        ("pwwwfbx", 0), ("uuwwwfbx", 96), ("uuuwwwfbx", 0),  # what is as large as the weights may be its state
        ("wwwftbx", 0),  # most weights are frozen
        ("wFx", 0), ("wwwFx", 0),  # nothing is trained
    ],
)  # fmt: skip
def test_what_the_first_step_will_add(text: str, more: int, tmp_path: Path) -> None:
    (finding,) = found(saved(letters(text), tmp_path))
    said = [line for line in finding.detail if "No optimizer step has run" in line]
    assert [line.endswith(f"takes up to {more}.0 MiB more.") for line in said] == [True] * bool(more)


def test_a_first_step_is_not_known_where_events_are_missing(tmp_path: Path) -> None:
    assert not [
        f for f in found(saved(letters("fbso", is_whole=False), tmp_path)) if "first optimizer" in "".join(f.detail)
    ]


@pytest.mark.parametrize(
    ("failing", "said"),
    [
        ((100,), None),
        ((100, 100), "All failed requests fit."),
        ((100, 150), "All failed requests fit."),
        ((100, 100, 600), "Some of the failed requests fit, not all."),
        ((100, 600), None),  # one alone fits
    ],
)
def test_expandable_segments_serve_several_requests_that_failed(
    failing: tuple[int, ...], said: str | None, tmp_path: Path
) -> None:
    """400 of 1,000 MiB are free in five blocks of 80 MiB."""
    record = planted_trace.Recording(capacity=1000 * MIB)
    for address in [record.request(200) for _ in range(5)]:
        record.drop(address)
    for _ in range(5):
        record.request(120, line=3)
    for mib in failing:
        assert record.malloc(mib * MIB, 0, None) is None
        record.event("oom", 0, mib * MIB, 9, device_free=record.capacity - record.reserved)
        record.drop(record.request(10, line=4))
    snapshot = snapreport.load(saved(record.snapshot(), tmp_path))
    (advice,) = (one for one in findings(snapshot) if one.evidence.get("rule") == "expandable-segments")
    assert advice.title == "Enable expandable segments: the request fits (replayed)"
    assert advice.detail[0] == (said or "Peak reserved up to the failure: 1000 → 1000 MiB.")
