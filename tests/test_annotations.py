"""Annotated spans and training steps are paired and placed as by an oracle with plain stacks of starts."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import breadth
import corpus
import decoder
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import snapreport
from snapreport.timeline.annotations import pair_brackets, rows_of

T0 = 1_700_000_000_000_000


def event(action: str, time: int | None, addr: int = 0x1000, size: int = 512, **more: Any) -> dict[str, Any]:
    made = {"action": action, "addr": addr, "size": size, "stream": 0, "frames": [], **more}
    return made if time is None else {**made, "time_us": time}


def loaded(tmp_path: Path, snapshot: dict[str, Any]) -> snapreport.Snapshot:
    path = tmp_path / "made.pickle"
    path.write_bytes(pickle.dumps(snapshot, 4))
    return snapreport.load(path)


# The oracle


def pairs(boundaries: list[tuple[Any, bool]]) -> set[tuple[int, int]]:
    """(start, end) indices of (group, is start) in order of time; -1 for a missing half."""
    found = set()
    open_: dict[Any, list[int]] = {}
    for i, (group, is_start) in enumerate(boundaries):
        waiting = open_.setdefault(group, [])
        if is_start:
            waiting.append(i)
        else:
            found.add((waiting.pop() if waiting else -1, i))
    return found | {(i, -1) for waiting in open_.values() for i in waiting}


def spans_of(raw: dict[str, Any], device: int) -> list[tuple[str, int, int, bool, bool]]:
    """(name, first event, last event, whether its start is known, whether its end is) of each span that touches the
    trace, sorted.
    """
    clock, times = None, []
    for entry in raw["device_traces"][device]:
        clock = entry["time_us"] if clock is None else max(clock, entry["time_us"])
        times.append(clock)
    given = sorted(
        (a for a in raw.get("external_annotations") or [] if a["device"] == device), key=lambda a: a["time_us"]
    )
    spans = []
    for start, end in pairs([(a["name"], a["stage"] == "START") for a in given]):
        first = sum(t < given[start]["time_us"] for t in times) if start >= 0 else 0
        last = sum(t <= given[end]["time_us"] for t in times) - 1 if end >= 0 else len(times) - 1
        if (start >= 0 and first == len(times)) or (end >= 0 and last < 0):
            continue
        spans.append(
            (given[max(start, end) if start < 0 else start]["name"], first, max(last, first - 1), start >= 0, end >= 0)
        )
    return sorted(spans)


def rows(snapshot: snapreport.Snapshot, device: int) -> list[tuple[str, int, int, bool, bool]]:
    return sorted(snapshot.spans(device).select("name", "first_event", "last_event", "starts", "ends").rows())


# Pairing


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=60))
def test_brackets(boundaries: list[tuple[int, bool]]) -> None:
    group = np.array([g for g, _ in boundaries], np.int64)
    start, end = pair_brackets(group, np.array([s for _, s in boundaries], bool))
    assert len(start) == len(end)
    assert set(zip(start.tolist(), end.tolist(), strict=True)) == pairs(boundaries)
    assert len(start) == len(pairs(boundaries)), "no pair twice"


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 20)), max_size=40))
def test_rows_hold_no_two_at_once(spans: list[tuple[int, int]]) -> None:
    spans.sort(key=lambda span: (span[0], -span[1]))
    opened = np.array([a for a, _ in spans], np.int64)
    closed = np.array([a + n for a, n in spans], np.int64)
    depth = rows_of(opened, closed).tolist()
    for i, (a, _) in enumerate(spans):
        for j in range(i):
            if depth[i] == depth[j]:
                assert spans[j][0] + spans[j][1] <= a, "they overlap"
    # No more rows than are open at once: every used row is needed.
    most = max((sum(b <= a < b + m for b, m in spans) for a, _ in spans), default=0)
    assert len(set(depth)) == most


annotations = st.lists(
    st.fixed_dictionaries(
        {
            "name": st.sampled_from(["a", "b", "ProfilerStep#7", "</script>"]),
            "stage": st.sampled_from(["START", "END"]),
            "device": st.integers(0, 1),
            "time_us": st.integers(T0 - 3, T0 + 40),
        }
    ),
    max_size=16,
)


@settings(max_examples=breadth.examples(60))
@given(annotations, st.lists(st.integers(0, 6), min_size=1, max_size=12))
def test_spans_of_any_annotations(
    tmp_path_factory: pytest.TempPathFactory, given_: list[dict[str, Any]], gaps: list[int]
) -> None:
    trace = [event("alloc", T0 + sum(gaps[: i + 1]), 0x1000 * i) for i in range(len(gaps))]
    raw = {"segments": [], "device_traces": [trace, trace[:1]], "external_annotations": given_}
    snapshot = loaded(tmp_path_factory.mktemp("spans"), copy.deepcopy(raw))
    for device in (0, 1):
        found = snapshot.timeline(device).annotated
        assert rows(snapshot, device) == spans_of(raw, device)
        own = [a for a in given_ if a["device"] == device]
        halves = pairs([(a["name"], a["stage"] == "START") for a in sorted(own, key=lambda a: a["time_us"])])
        assert found.broken.get("unpaired_starts", 0) == sum(end < 0 for _, end in halves)
        assert found.broken.get("unpaired_ends", 0) == sum(start < 0 for start, _ in halves)
        assert found.broken.get("outside", 0) == len(halves) - len(found.spans)


@pytest.mark.parametrize("name", ["training", "truncated", "serving", "multi-gpu", "large"])
def test_spans_of_generated_snapshots(name: str) -> None:
    path = corpus.path_of(name)
    snapshot, raw = snapreport.load(path), corpus.raw(path)
    assert any(rows(snapshot, device) for device in snapshot.devices)
    for device in snapshot.devices:
        assert rows(snapshot, device) == spans_of(raw, device)


def test_spans_of_real_snapshots(real_path: Path) -> None:
    raw = corpus.raw(real_path)
    snapshot = corpus.loaded(real_path)
    if not isinstance(raw, dict) or not raw.get("external_annotations"):
        assert all(snapshot.spans(device).is_empty() for device in snapshot.devices)
        return
    for device in snapshot.devices:
        assert rows(snapshot, device) == spans_of(raw, device)


def test_without_times_nothing_is_placed() -> None:
    timeline = snapreport.load(corpus.path_of("no-times")).timeline(0)
    assert timeline.annotated.spans.is_empty() and timeline.annotated.broken["untimed"] > 0


# Spans inside the trace


def test_user_defined_events(tmp_path: Path) -> None:
    """Torch 2.4 recorded annotations as events: the stage is the name of their one frame, and the name its file."""

    def mark(stage: str, name: str, time: int) -> dict[str, Any]:
        return event("user_defined", time, 0, 0, frames=[{"name": stage, "filename": name, "line": 0}])

    trace = [
        mark("START", "ProfilerStep#4", T0),
        event("alloc", T0 + 1, 0x1000),
        mark("START", "forward", T0 + 2),
        event("alloc", T0 + 3, 0x2000),
        mark("END", "forward", T0 + 4),
        mark("END", "ProfilerStep#4", T0 + 5),
        mark("START", "ProfilerStep#5", T0 + 5),
        event("alloc", T0 + 6, 0x3000),
    ]
    snapshot = loaded(tmp_path, {"segments": [], "device_traces": [trace]})
    spans = snapshot.spans(0).select("name", "first_event", "last_event", "depth", "ends").rows()
    assert spans == [("ProfilerStep#4", 0, 5, 0, True), ("forward", 2, 4, 1, True), ("ProfilerStep#5", 6, 7, 0, False)]
    assert snapshot.steps(0).select("step", "first_event", "last_event").rows() == [(4, 0, 5), (5, 6, 7)]


def test_annotate_events_reach_to_the_end_of_their_allocation(tmp_path: Path) -> None:
    trace = [
        event("alloc", T0, 0x1000),
        event("alloc", T0 + 1, 0x2000),
        event("annotate", T0 + 2, 0x1000, user_metadata="saved"),
        event("annotate", T0 + 3, 0x2000, user_metadata="saved"),
        event("free_completed", T0 + 4, 0x1000),
        event("free_completed", T0 + 5, 0x2000),
        event("annotate", T0 + 6, 0x2000, user_metadata="too late"),
        event("alloc", T0 + 7, 0x2000),
        event("annotate", T0 + 8, 0x2000, user_metadata="saved"),
    ]
    timeline = loaded(tmp_path, {"segments": [], "device_traces": [trace]}).timeline(0)
    found = timeline.annotated
    assert found.spans.select("name", "kind", "first_event", "last_event").rows() == [
        ("saved", "memory", 2, 4),
        ("saved", "memory", 8, 8),
    ]
    assert found.broken == {"without_allocation": 1}


def test_names_of_our_recorder_are_no_spans(tmp_path: Path) -> None:
    """Which PyTorch's trace has for its own viewer: allocations have them once, beside names by the program."""
    trace = [
        event("alloc", T0, 0x1000),
        event("annotate", T0 + 1, 0x1000, user_metadata="layer.weight"),
        event("annotate", T0 + 2, 0x1000, user_metadata="frozen"),
        event("alloc", T0 + 3, 0x2000),
        event("annotate", T0 + 4, 0x9000, user_metadata="layer.weight"),
        event("annotate", T0 + 4, 0x2000),
    ]
    tensors = [[0, 0x1000, "parameter", "layer.weight", [4], "torch.float32"]]
    recorder = {"schema": "snapreport-recording/1", "marks": [{"time_us": T0 + 5, "tensors": tensors}]}
    given = {"segments": [], "device_traces": [trace]}
    for facts, names, spans in (
        ({"snapreport": recorder}, "layer.weight; frozen", ["frozen", "annotated"]),
        ({}, "layer.weight; frozen", ["layer.weight", "frozen", "annotated"]),
    ):
        snapshot = loaded(tmp_path, {**facts, **given})
        assert snapshot.allocations(0)["user_metadata"].to_list() == [names, None]
        assert snapshot.spans(0)["name"].to_list() == spans
        assert snapshot.timeline(0).annotated.broken == ({} if facts else {"without_allocation": 1})


# Steps


def test_steps_of_the_profiler() -> None:
    raw = corpus.raw(corpus.path_of("training"))
    spans = {name: (first, last) for name, first, last, *_ in spans_of(raw, 0) if name.startswith("ProfilerStep#")}
    steps = snapreport.load(corpus.path_of("training")).steps(0)
    assert [(f"ProfilerStep#{row['step']}", row["source"]) for row in steps.iter_rows(named=True)] == [
        (name, "annotation") for name in sorted(spans)
    ]
    for name, first, last in steps.select("name", "first_event", "last_event").iter_rows():
        assert spans[name][0] == first and first <= last <= spans[name][1]


def without(raw: dict[str, Any], keep: Any) -> dict[str, Any]:
    return {**raw, "external_annotations": [a for a in raw["external_annotations"] if keep(a["name"])]}


@pytest.mark.parametrize("source", ["metadata", "optimizer", "stack"])
def test_vaguer_sources_find_the_same_steps(source: str, tmp_path: Path) -> None:
    """Each source alone divides the trace where the profiler's steps do, except for what lies between two of them."""
    path = corpus.path_of("training")
    raw, exact = corpus.raw(path), snapreport.load(path).steps(0)
    raw = copy.deepcopy(without(raw, lambda name: source == "optimizer" and name.startswith("Optimizer.step")))
    for i, entry in enumerate(raw["device_traces"][0]):
        entry.pop("user_metadata", None)
        inside = exact.filter((exact["first_event"] <= i) & (exact["last_event"] >= i))
        if source == "metadata" and len(inside):
            entry["user_metadata"] = f"step={inside['step'][0]} rank=0"
    steps = loaded(tmp_path, raw).steps(0)
    assert steps["source"].unique().to_list() == [source] and len(steps) == len(exact)
    assert steps["first_event"].is_sorted() and (steps["first_event"][1:] > steps["last_event"][:-1]).all()
    if source == "metadata":
        assert steps["first_event"].to_list() == exact["first_event"].to_list()
    else:
        # The optimizer's last events are within a few events (logging) of the end of the step.
        assert np.abs(steps["last_event"].to_numpy() - exact["last_event"].to_numpy()).max() < 20
    assert steps["last_event"][-1] == len(raw["device_traces"][0]) - 1


@pytest.mark.parametrize(
    ("names", "numbers"),
    [
        (["step 3", "step 4"], [3, 4]),
        (["train_step_10", "train_step_11"], [10, 11]),
        (["## Training iteration #1 ##"], [1]),
        (["Optimizer.zero_grad#SGD.zero_grad", "forward"], []),
        (["timestep 3"], []),
        (["step 99999999999999999999"], []),
    ],
)
def test_names_that_count(names: list[str], numbers: list[int], tmp_path: Path) -> None:
    trace = [event("alloc", T0 + 10 * i, 0x1000 * i) for i in range(len(names))]
    given_ = [
        {"name": name, "stage": stage, "device": 0, "time_us": T0 + 10 * i + late}
        for i, name in enumerate(names)
        for stage, late in (("START", -1), ("END", 1))
    ]
    steps = loaded(tmp_path, {"segments": [], "device_traces": [trace], "external_annotations": given_}).steps(0)
    assert steps["step"].to_list() == numbers
    assert steps["first_event"].to_list() == list(range(len(numbers)))


def test_another_thread_names_the_steps(tmp_path: Path) -> None:
    """A device without annotations of its own uses the program's steps, by time."""
    trace = [event("alloc", T0 + i, 0x1000 * i) for i in range(4)]
    given_ = [
        {"name": f"ProfilerStep#{i}", "stage": stage, "device": 0, "time_us": time}
        for i, (start, end) in enumerate([(T0, T0 + 1), (T0 + 2, T0 + 3)])
        for stage, time in (("START", start), ("END", end))
    ]
    snapshot = loaded(tmp_path, {"segments": [], "device_traces": [trace, trace], "external_annotations": given_})
    assert snapshot.spans(1).is_empty()
    assert snapshot.steps(1).rows() == snapshot.steps(0).rows() and len(snapshot.steps(1)) == 2


# Contents of the report


@pytest.mark.parametrize("name", ["training", "serving", "no-stacks", "truncated"])
def test_the_manifest_holds_the_same(name: str, tmp_path: Path) -> None:
    snapshot = snapreport.load(corpus.path_of(name))
    snapreport.write_report(snapshot, tmp_path / "r.html")
    entry = decoder.Report((tmp_path / "r.html").read_text(encoding="utf-8")).manifest["devices"][0]
    steps, spans = snapshot.steps(0), snapshot.timeline(0).annotated.spans
    first = np.cumsum(entry["steps"]["first"])
    assert first.tolist() == steps["first_event"].to_list()
    assert (first + entry["steps"]["events"] - 1).tolist() == steps["last_event"].to_list()
    assert entry["steps"]["numbers"] == steps["step"].to_list() and entry["steps"]["names"] == steps["name"].to_list()
    assert [entry["spans"]["names"][i] for i in entry["spans"]["name"]] == spans["name"].to_list()
    first = np.cumsum(entry["spans"]["first"])
    assert first.tolist() == spans["first_event"].to_list()
    assert (first + entry["spans"]["events"] - 1).tolist() == spans["last_event"].to_list()
    assert entry["spans"]["depth"] == spans["depth"].to_list()
    assert entry.get("broken_annotations", {}) == snapshot.timeline(0).annotated.broken


def test_nothing_is_written_where_there_is_nothing(tmp_path: Path) -> None:
    snapreport.write_report(snapreport.load(corpus.path_of("overlap")), tmp_path / "r.html")
    entry = decoder.Report((tmp_path / "r.html").read_text(encoding="utf-8")).manifest["devices"][0]
    assert not {"steps", "spans", "broken_annotations"} & set(entry)


def test_broken_ones_are_told(tmp_path: Path) -> None:
    snapreport.write_report(snapreport.load(corpus.path_of("large")), tmp_path / "r.html")
    assert "1 annotation never ends." in (tmp_path / "r.html").read_text(encoding="utf-8")
