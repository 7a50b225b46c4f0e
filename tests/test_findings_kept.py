"""What is live at the end and was not before the trace: reported as a fact, with its bytes, and never called a leak by
itself.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import corpus
import pytest
from cli import in_process as run
from cli import on_loaded
from planted import frames_text, path_of, planted
from scripted import MIB, Script

import snapreport
from snapreport.findings.live_at_end import end_findings
from snapreport.findings.model import Finding
from snapreport.findings.run import findings

WEIGHTS = (("/env/site-packages/torch/nn/modules/module.py", "_apply"), ("/app/train.py", "main"))
STEP = (("/env/site-packages/torch/optim/adam.py", "step"), ("/app/train.py", "main"))
LOG = (("/app/metrics.py", "log"), ("/app/train.py", "main"))


def told(raw: dict[str, Any], folder: Path) -> list[Finding]:
    path = folder / "kept.pickle"
    path.write_bytes(pickle.dumps(raw, 4))
    return kept(snapreport.load(path))


def kept(snapshot: snapreport.Snapshot) -> list[Finding]:
    return [f for f in findings(snapshot) if f.kind == "live_at_end"]


def script(events: int = 40) -> Script:
    """Some of what is allocated is freed, and some of it stays."""
    made = Script()
    made.alloc("weights", 30 * MIB, *WEIGHTS)
    for _ in range(events):
        made.free(made.alloc("work", 8 * MIB, *LOG), *LOG)
    for _ in range(3):
        made.alloc("log", 5 * MIB, *LOG)
    return made


def test_what_stays_is_told_with_who_made_it(tmp_path: Path) -> None:
    (finding,) = told(script().raw(), tmp_path)
    assert finding.severity == "info" and finding.bytes == 45 * MIB and finding.confidence == "measured"
    assert (
        finding.title
        == "45.0 MiB from this trace were still allocated when recording stopped: 67% parameters and 33% unknown"
    )
    assert finding.to_json()["evidence"]["places"] == [
        {"place": "main train.py:7", "bytes": 30 * MIB, "count": 1},
        {"place": "log metrics.py:7", "bytes": 15 * MIB, "count": 3},
    ]
    assert finding.evidence["first_half_bytes"] == 30 * MIB and finding.detail[-1] == (
        "30.0 MiB were allocated in the first half of the trace."
    )
    assert finding.detail[-2] == (
        "Largest: main train.py:7 (30.0 MiB in 1 allocation) and log metrics.py:7 (15.0 MiB in 3 allocations)."
    )
    assert len(finding.detail) == 2  # nothing computes: more steps of it would not help


def test_too_few_steps_are_said_once(tmp_path: Path) -> None:
    """Of a program that computes, and once for all of its devices."""
    made = script()
    made.free(made.alloc("step", 8 * MIB, *STEP), *STEP)
    raw = made.raw()
    raw["device_traces"].append(raw["device_traces"][0])
    raw["segments"] += [{**segment, "device": 1} for segment in raw["segments"]]
    one, two = told(raw, tmp_path)
    assert one.detail[0] == "Too few steps to detect a leak: record at least four."
    assert two.detail == one.detail[1:]


def test_what_was_live_before_is_not_new(tmp_path: Path) -> None:
    """The same run recorded later: weights from before the trace are listed separately, and are new nowhere."""
    raw = script().raw()
    raw["device_traces"][0] = raw["device_traces"][0][1:]
    (finding,) = told(raw, tmp_path)
    assert finding.bytes == 15 * MIB and finding.evidence["older_bytes"] == 30 * MIB
    assert "Another 30.0 MiB were allocated before recording started." in finding.detail[-1]
    raw["device_traces"][0] = raw["device_traces"][0][:-3]
    assert told(raw, tmp_path) == [], "nothing that was allocated within the trace is left"


def test_growth_is_told_as_the_leak_that_it_is() -> None:
    snapshot = planted("leak")
    leak, new = end_findings(snapshot, snapshot.timeline(0))
    assert (leak.kind, new.kind) == ("leak", "live_at_end")
    assert new.evidence["leak_bytes"] == leak.bytes < new.bytes
    assert new.detail[0] == "36.0 MiB of it leaked."


@pytest.mark.parametrize(
    ("preset", "changes"),
    [
        ("leak", {"leak": 0}),
        ("leak", {"leak": 0, "cache_steps": 5}),
        ("training", {"steps": 10}),
        ("expandable", {"steps": 8}),
        ("serving", {"events": 12_000}),
        ("oom", {}),
    ],
    ids=str,
)
def test_known_good_patterns_are_no_leaks(preset: str, changes: dict[str, Any]) -> None:
    """First-step optimizer state, caches that level off, parameters: reported as what they are."""
    snapshot = planted(preset, **changes)
    (new,) = kept(snapshot)
    assert new.severity == "info" and "leak" not in new.title.lower() and new.evidence["leak_bytes"] == 0
    assert new.bytes == snapshot.timeline(0).allocated[-1], "recorded from the start, so that all of it is new"
    if new.evidence["steps"]:
        assert new.detail[0].startswith("No leak found over")
        assert run("check", str(path_of(preset, **changes)), "--fail-on", "leak").code == 0


def test_it_is_nothing_that_a_check_fails_on() -> None:
    done = run("check", str(path_of("training")), "--fail-on", "live_at_end")
    assert done.code == 2 and "is no kind of finding" in done.err


def test_real_ones(real_path: Path) -> None:
    """On each real trace with its own allocations; none of them fails a check for leaks."""
    snapshot = corpus.loaded(real_path)
    for finding in kept(snapshot):
        device = corpus.replayed(real_path)[finding.device]
        new = [a for a in device.allocations if a.alloc_event >= 0 and a.free_event < 0]
        assert finding.bytes == sum(a.size for a in new) and finding.severity == "info"
        matching = snapshot.query(finding.link["query"])
        assert int(matching.filter(matching["device"] == finding.device)["size"].sum()) == finding.bytes
        held: dict[Any, int] = {}
        for a in new:
            held[a.stack] = held.get(a.stack, 0) + a.size
        top = max(held.values())
        frames = frames_text(snapshot, finding.stack)
        tops = [
            "\n".join(f"{name} {file}:{line}" for file, line, name in stack)
            for stack, size in held.items()
            if size == top
        ]
        assert frames in tops and finding.evidence["stacks"][0]["bytes"] == top
    devices = corpus.replayed(real_path).values()
    if any(device.events for device in devices):
        done = on_loaded("check", real_path, "--fail-on", "leak")
        assert done.code in (0, 2) and "FAIL" not in done.out
        if all(device.allocated[0] == device.allocated[-1] and device.events for device in devices):
            assert done.code == 2, "too few steps"
