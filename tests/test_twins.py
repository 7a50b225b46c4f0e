"""What Python and the page both say of one input: sizes, refusals of a replay, errors of settings."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import corpus
import fake_torch
import generator
import hypothesis.strategies as st
import planted_trace
import pytest
from cli import in_process
from hypothesis import given
from msgspec.structs import replace

import snapreport
from snapreport import allocator_facts as facts
from snapreport.allocator.settings import (
    DEFAULT,
    TIE_BREAKS,
    AllocatorSettings,
    both_readings,
    parse_settings,
    read_since_2_10,
)
from snapreport.allocator.whatif import WhatIf
from snapreport.errors import SettingsError
from snapreport.sizes import parse_size

MIB = 1 << 20
VECTORS = json.loads(Path(__file__).with_name("size_vectors.json").read_text("utf-8"))
FREES = ("free_requested", "free_completed")


def test_sizes_are_read_by_one_grammar() -> None:
    assert {text: parse_size(text) for text in VECTORS["sizes"]} == VECTORS["sizes"]
    assert [text for text in VECTORS["no_sizes"] if parse_size(text) is not None] == []


def test_every_option_with_a_size_reads_3m_alike() -> None:
    path = corpus.path_of("small")
    (fits,) = in_process("check", path, "--fits", "3M", "--json").json["checks"]
    assert fits["limit"] == 3_000_000
    assert in_process("check", path, "--fits", "3QB").code == 2
    for text in ("3M", "3MiB"):
        rows = snapreport.load(path).query(f"size>={text}")["size"]
        assert rows.min() >= VECTORS["sizes"][text] and len(rows)


def recording() -> planted_trace.Recording:
    """Five requests of 4 MiB in a row, in two steps."""
    record = planted_trace.Recording()
    for _ in range(2):
        for address in [record.request(4) for _ in range(3)]:
            record.drop(address)
    record.request(4)
    return record


def moved(**more: Any) -> dict[str, Any]:
    """A trace in which one request lies where the model does not place it: half a MiB further up."""
    snapshot = recording().snapshot()
    trace = snapshot["device_traces"][0]
    first = next(event for event in trace if event["action"] == "alloc")["addr"]
    for event in trace[:8]:
        if event["addr"] == first and event["action"] in ("alloc", *FREES):
            event["addr"] += MIB // 2
    return {**snapshot, **more}


def without(actions: tuple[str, ...]) -> dict[str, Any]:
    snapshot = recording().snapshot()
    trace = snapshot["device_traces"][0]
    while trace[-1]["action"] == "alloc":  # nothing is live at the end, and no segment is left
        trace.pop()
    return {**snapshot, "segments": [], "device_traces": [[event for event in trace if event["action"] not in actions]]}


def overlapping() -> dict[str, Any]:
    """A second segment begins where the first has free memory; both have a free block at one address, then neither."""
    at = 1 << 40

    def event(action: str, address: int, mib: int) -> dict[str, Any]:
        return {"action": action, "addr": address, "size": mib * MIB, "stream": 0, "frames": []}

    second = at + 5 * MIB
    trace = [
        event("segment_alloc", at, 20), event("alloc", at, 5), event("segment_alloc", second, 16),
        event("alloc", second, 16), *(event(action, second, 16) for action in FREES),
        event("alloc", second, 15), event("alloc", second + 32 * MIB, 16),
    ]  # fmt: skip
    return {"segments": [], "device_traces": [trace], "allocator_settings": {}}


def only_segments() -> dict[str, Any]:
    snapshot = recording().snapshot()
    trace = [event for event in snapshot["device_traces"][0] if event["action"] == "segment_alloc"]
    return {**snapshot, "device_traces": [trace]}


def contradictory() -> dict[str, Any]:
    """The final state has less in a block than the trace allocated."""
    snapshot = moved()
    block = next(b for s in snapshot["segments"] for b in s["blocks"] if b["state"] == "active_allocated")
    block["requested_size"] -= 512
    return snapshot


def unknown_start() -> dict[str, Any]:
    """Frees of a block from before the trace that no segment holds."""
    snapshot = moved()
    outside = {"addr": 1 << 30, "size": 8 * MIB, "stream": 0, "frames": []}
    snapshot["device_traces"][0][:0] = [{"action": action, **outside} for action in FREES]
    return snapshot


def mixed() -> dict[str, Any]:
    snapshot = moved()
    segment = {"device": 0, "address": 1 << 45, "total_size": 20 * MIB, "stream": 0, "segment_type": "large"}
    blocks = [{"address": 1 << 45, "size": 20 * MIB, "requested_size": 0, "state": "inactive", "frames": []}]
    snapshot["segments"].append({**segment, "is_expandable": True, "blocks": blocks})
    return snapshot


def in_a_pool() -> dict[str, Any]:
    snapshot = moved()
    for event in snapshot["device_traces"][0][:8]:
        event["pool_id"] = (0, 1)
    return snapshot


def profile() -> str:
    """A profiler's trace of CUDA memory."""
    memory = {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 1}
    rows = [
        {**memory, "ts": at, "args": {"Bytes": size, "Addr": 4096, "Device Type": 1, "Device Id": 0,
                                      "Total Allocated": max(size, 0)}}
        for at, size in enumerate((512, -512))
    ]  # fmt: skip
    return json.dumps({"schemaVersion": 1, "traceEvents": rows})


REFUSED: dict[str, Callable[[], Any]] = {
    "kind": lambda: generator.make("pinned"),
    "profiler": profile,
    "no_allocations": only_segments,
    "no_completed_frees": lambda: without(("free_completed",)),
    "no_segment_events": lambda: without(("segment_alloc", "segment_free")),
    "overlap": overlapping,
    "contradictory": contradictory,
    "start": unknown_start,
    "mixed": mixed,
    "collected": lambda: moved(allocator_settings={"garbage_collection_threshold": 0.5}),
    "pools": in_a_pool,
    "overflowed": lambda: moved(allocator_settings={"trace_alloc_overflowed": True}),
    "elsewhere": moved,
}


def test_every_refusal_has_a_recording() -> None:
    assert REFUSED.keys() == facts.REFUSALS.keys()


def refused(refusal: str) -> tuple[Path, int]:
    """(a file whose replay is refused, which of its devices)."""
    made = REFUSED[refusal]()
    path = corpus.scratch() / f"refused-{refusal}.{'json' if isinstance(made, str) else 'pickle'}"
    path.write_bytes(made.encode() if isinstance(made, str) else pickle.dumps(made, 4))
    snapshot = snapreport.load(path)
    return path, -1 if refusal == "kind" else next(d for d in snapshot.devices if len(snapshot.events(d)))


@pytest.mark.parametrize("refusal", REFUSED)
def test_a_refusal_names_its_cause(refusal: str) -> None:
    path, device = refused(refusal)
    check = WhatIf(snapreport.load(path).timeline(device)).check
    values = {"kind": "host", "share": "14%"}  # one of seven
    assert (check.exact, check.reason) == (False, facts.sentence("refusals", refusal, **values))
    if refusal in (*tuple(REFUSED)[:5], "overlap"):
        assert (check.segment_events, check.same_allocations, check.curve_error) == (0, 0, 1.0)
    if refusal in ("elsewhere", "overflowed", "collected"):  # all but the request that was moved
        assert (check.allocations, check.same_allocations, check.curve_error) == (7, 6, 0.0)
        assert check.segment_events == check.same_segment_events == 1


@pytest.mark.parametrize("refusal", REFUSED)
def test_the_page_refuses_with_the_same_words(
    refusal: str, report_of: Callable[..., Path], open_report: Callable[..., Any]
) -> None:
    path, device = refused(refusal)
    snapshot = snapreport.load(path)
    check = WhatIf(snapshot.timeline(device)).check
    opened = open_report(report_of(path))
    ask = "device => snapreport.whatIf(device).then(({ check }) => [check.exact, check.reason, check.allocations])"
    index = opened.js("snapreport.devices()")[snapshot.devices.index(device)]
    assert opened.page.evaluate(ask, index) == [False, check.reason, check.allocations]


BAD_SETTINGS = {
    "pair": ["expandable_segments", "max_split_size_mb:", "a:"],
    "flag": ["expandable_segments:true", "expandable_segments:1"],
    "whole": ["max_split_size_mb:1.5", "max_split_size_mb:-30", "roundup_power2_divisions:x"],
    "least": ["max_split_size_mb:2", "max_non_split_rounding_mb:0", "large_segment_size_mb:10"],
    "share": ["garbage_collection_threshold:1", "garbage_collection_threshold:0", "per_process_memory_fraction:2",
              "garbage_collection_threshold:.."],
    "power": ["roundup_power2_divisions:3", "roundup_power2_divisions:0", "roundup_power2_divisions:[3:4]",
              "roundup_power2_divisions:[0:4]"],
    "bracket": ["roundup_power2_divisions:[256:4"],
    "divisions": ["roundup_power2_divisions:[256]", "roundup_power2_divisions:[256:1,4]"],
    "backend": ["backend:cudaMallocAsync"],
    "unknown": ["expandable_segment:True", "pinned:3", ":5"],
}  # fmt: skip


def said_of(text: str) -> str:
    with pytest.raises(SettingsError) as caught:
        parse_settings([text], AllocatorSettings())
    return str(caught.value)


def test_bad_settings_are_refused_with_their_cause() -> None:
    templates = json.loads(Path(facts.__file__).with_suffix(".json").read_text("utf-8"))["setting_errors"]
    assert BAD_SETTINGS.keys() == templates.keys()
    for cause, texts in BAD_SETTINGS.items():
        words = max(re.split(r"{\w+}", templates[cause]), key=len)
        assert [text for text in texts if words not in said_of(text)] == []


def test_the_page_refuses_settings_with_the_same_words(
    report_of: Callable[..., Path], borrow_report: Callable[..., Any]
) -> None:
    texts = [text for group in BAD_SETTINGS.values() for text in group]
    opened = borrow_report(report_of(corpus.path_of("fragmentation")))
    ask = "texts => Promise.all(texts.map(t => snapreport.whatIf(0, { settings: [t] }).catch(error => error.message)))"
    assert opened.page.evaluate(ask, texts) == [said_of(text) for text in texts]


# Divisions from 1 MiB to 32 GiB, as PyTorch itself recorded them: 2.6.0 and 2.9.1; 2.10.0, 2.11.0, 2.12.1 and 2.15.0.
LISTS = {
    "[64:8,256:4,>:2]": ([8] * 7 + [0] + [2] * 8, [8] * 7 + [0, 4] + [2] * 7),
    "[256:1,512:2,1024:4,>:8]": ([1] * 9 + [2] + [8] * 6, [1] * 9 + [2, 4] + [8] * 5),
    "[256:4]": ([4] * 9 + [0] * 7,) * 2,
    "[256:4,64:8,>:2]": ([4] * 6 + [2] * 10, [4] * 6 + [8] + [2] * 9),
    "[>:4]": ([4] * 16, [0] + [4] * 15),
    "[>:4,64:8]": ([8] * 7 + [4] * 9,) * 2,
    "[64:0,256:4]": ([0] * 8 + [4] + [0] * 7,) * 2,
    "[64:8,>:0]": ([8] * 6 + [0] * 10, [8] * 7 + [0] * 9),
    "[64:8,65536:4,>:2]": ([8] * 7 + [0] * 8 + [2], [8] * 7 + [0] * 8 + [4]),
    "[64:4,64:8]": ([4] * 6 + [8] + [0] * 9,) * 2,
    "[64:8,>:2,256:4]": ([8] * 6 + [2, 2, 4] + [2] * 7, [8] * 7 + [2, 4] + [2] * 7),
    "[65536:4]": ([4] * 16,) * 2,
    "[]": ([0] * 16,) * 2,
    "1": ([1] * 16,) * 2,
}


def table(divisions: Sequence[int]) -> dict[str, int]:
    return {str(1 << n): steps for n, steps in enumerate(divisions)}


@pytest.mark.parametrize("value", LISTS)
def test_lists_of_divisions_are_read_as_each_pytorch_reads_them(value: str) -> None:
    conf = f"roundup_power2_divisions:{value}"
    for since, divisions in zip((False, True), LISTS[value], strict=True):
        read = parse_settings([conf], AllocatorSettings(since_2_10=since))
        assert read.divisions == tuple(divisions)
    before, after = LISTS[value]
    both = both_readings([conf], AllocatorSettings())
    assert [list(one.divisions) for one in both.values()] == ([before] if before == after else [before, after])


@pytest.mark.parametrize("environment", fake_torch.parameters())
def test_pytorch_itself_reads_the_lists_so(environment: fake_torch.FakeTorch, tmp_path: Path) -> None:
    program = tmp_path / "settings.py"
    program.write_text(
        "import json, torch; torch.zeros(1, device='cuda')\n"
        "print(json.dumps(torch.cuda.memory._snapshot()['allocator_settings']['roundup_power2_divisions']))"
    )
    is_new = tuple(map(int, environment.version.split(".")[:2])) >= (2, 12)
    for value in ("[64:8,256:4,>:2]", "[>:4]", "[64:8,>:0]"):
        done = environment.run(program, PYTORCH_CUDA_ALLOC_CONF=f"roundup_power2_divisions:{value}")
        assert json.loads(done.out) == table(LISTS[value][is_new]), value


@given(
    st.builds(
        AllocatorSettings,
        expandable_segments=st.booleans(),
        max_split_size=st.none() | st.integers(21, 10**6).map(lambda mib: mib * MIB),
        max_non_split_rounding=st.integers(21, 10**6).map(lambda mib: mib * MIB),
        divisions=st.lists(st.sampled_from([0, 1, 2, 4, 8, 1024]), min_size=16, max_size=16).map(tuple),
        garbage_collection_threshold=st.floats(1e-12, 1, exclude_max=True),
        memory_fraction=st.none() | st.floats(1e-12, 1),
        tie_break=st.sampled_from(TIE_BREAKS),
        large_segment=st.integers(11, 10**6).map(lambda mib: mib * MIB),
        since_2_10=st.sampled_from([None, False, True]),
    )
)
def test_printed_settings_are_read_back(settings: AllocatorSettings) -> None:
    """Whatever was set before; by the PyTorch that printed them, and by every other."""
    other = replace(AllocatorSettings(True, 30 * MIB, 50 * MIB, (4,) * 16, 0.5, 0.5), tie_break=settings.tie_break)
    for base in (AllocatorSettings(tie_break=settings.tie_break), other):
        texts = [DEFAULT] if base is other else []
        read = parse_settings([*texts, settings.text()], replace(base, since_2_10=settings.since_2_10))
        assert read == settings
    assert list(both_readings([settings.text()], AllocatorSettings())) == [""]


def since(settings: dict[str, Any], **versions: str) -> bool | None:
    path = corpus.scratch() / "since.pickle"
    own = {"snapreport": {"schema": "snapreport-recording/1", "versions": versions}} if versions else {}
    path.write_bytes(pickle.dumps({**moved(allocator_settings=settings), **own}, 4))
    return read_since_2_10(snapreport.load(path).recording)


def test_which_pytorch_read_the_settings() -> None:
    conf = "roundup_power2_divisions:[64:8,256:4,>:2]"
    before, after = ({"roundup_power2_divisions": table(divisions)} for divisions in LISTS[conf[25:]])
    as_2_9 = {"PYTORCH_CUDA_ALLOC_CONF": conf, "graph_capture_record_stream_reuse": False}
    assert since({}) is None  # a file that says nothing
    assert since({"max_split_size": -1}) is False  # as 2.6
    assert since({"graph_capture_record_stream_reuse": False}) is None  # as 2.9 and 2.12
    assert since({"trace_alloc_max_entries": 5}) is True  # as 2.15
    assert since(as_2_9 | before) is False and since(as_2_9 | after) is True
    # The version that our recorder noted decides.
    assert not any(since({}, torch=version) for version in ("1.13.1", "2.6.0", "2.9.1"))
    assert all(since({}, torch=version) for version in ("2.10.0", "2.11.0+cu128", "2.12.0", "2.15.0", "3.0.0"))
    assert since({"trace_alloc_max_entries": 5}, torch="2.9.1") is False  # a backport: the version knows better


CONF = "roundup_power2_divisions:[64:8,256:4,>:2]"


def of_unknown_version() -> Path:
    record = planted_trace.Recording()
    for mib in (300, 70, 310, 66, 4):
        record.request(mib)
    path = corpus.scratch() / "both.pickle"
    path.write_bytes(pickle.dumps(record.snapshot(), 4))
    return path


def test_where_the_version_is_not_known_both_are_said() -> None:
    runs = snapreport.load(of_unknown_version()).whatif(settings=[CONF], cards=False)["devices"][0]["runs"][1:]
    assert [run["name"] for run in runs] == [
        f"{CONF}, as PyTorch 2.6 to 2.9 reads it", f"{CONF}, as PyTorch 2.10 to 2.15 reads it",
    ]  # fmt: skip
    # Two requests of 256 to 512 MiB take 384 MiB there and 320 here; 70 and 66 take 72; 4 a segment of 20.
    assert [run["peak_reserved_bytes"] // MIB for run in runs] == [384 * 2 + 72 * 2 + 20, 320 * 2 + 72 * 2 + 20]


def test_the_page_says_both_where_the_version_is_not_known(
    report_of: Callable[..., Path], open_report: Callable[..., Any]
) -> None:
    path = of_unknown_version()
    (device,) = snapreport.load(path).whatif(settings=[CONF])["devices"]
    opened = open_report(report_of(path))
    ask = "settings => snapreport.whatIf(0, { settings }).then(a => a.runs.map(r => [r.settings, r.peakReserved]))"
    said = [[run["name"], run["peak_reserved_bytes"]] for run in device["runs"][1:]]
    assert opened.page.evaluate(ask, [CONF])[1:] == said
    least = opened.page.evaluate("settings => snapreport.leastMemory(0, { settings })", CONF)
    assert [one["memory"] for one in least] == [one["memory_bytes"] for one in device["minimums"]] and len(least) == 4
