"""``snapreport whatif``, ``snapshot.whatif`` and ``check --fits``: what they report is what the model replays."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import corpus
import fake_torch
import generator
import numpy as np
import planted_trace
import pytest
from cli import in_process

import snapreport
from snapreport.allocator.minimum import STEP, minimum_memory
from snapreport.allocator.placement import Ascending
from snapreport.allocator.settings import parse_settings
from snapreport.allocator.whatif import Change, WhatIf
from snapreport.findings.run import findings

MIB = 1 << 20
RECORDED = corpus.REAL.parent / "recorded"


@pytest.fixture(scope="module")
def fragmented() -> Path:
    """A sample that runs out of memory by fragmentation alone."""
    return corpus.path_of("fragmentation")


def test_pytorch_2_12_uses_the_block_that_is_older() -> None:
    """Of free blocks of equal size: not the one at the lower address, as before, nor that of the older segment."""
    path = Path(__file__).parent / "recordings" / "allocator" / "torch-2.12.pickle.xz"
    check = WhatIf(snapreport.load(path).timeline(0)).check
    assert check.exact
    assert check.settings.tie_break == "block"


def test_the_document(fragmented: Path) -> None:
    run = in_process("whatif", fragmented, "--json")
    assert run.code == 0
    assert not run.err
    document = run.json
    assert document["schema"] == "snapreport-whatif/1"
    (device,) = document["devices"]
    assert device["check"]["exact"] and device["check"]["reason"] is None
    assert device["capacity_bytes"] > 0
    names = [one["name"] for one in device["runs"]]
    assert names[:5] == [
        "recorded settings", "expandable_segments:True", "max_split_size_mb:128", "max_split_size_mb:512",
        "roundup_power2_divisions:4",
    ]  # fmt: skip
    keys = {
        "settings", "without", "peak_reserved_bytes", "low_bytes", "high_bytes", "peak_allocated_bytes", "retries",
        "oom_event",
    }  # fmt: skip
    for one in device["runs"]:
        assert keys <= one.keys()
        if one["peak_reserved_bytes"] is not None:
            assert one["low_bytes"] <= one["peak_reserved_bytes"] <= one["high_bytes"]
            assert one["peak_reserved_bytes"] <= device["capacity_bytes"]
    assert snapreport.load(fragmented).whatif()["devices"] == document["devices"]


def test_planted_fragmentation_is_cured_by_expandable_segments(fragmented: Path) -> None:
    document = snapreport.load(fragmented).whatif(cards=False)
    runs = {run["name"]: run for run in document["devices"][0]["runs"]}
    own, cured = runs["recorded settings"], runs["expandable_segments:True"]
    assert own["oom_event"] is not None and not own["avoided_oom_events"]
    assert cured["oom_event"] is None
    assert cured["avoided_oom_events"] == [own["oom_event"]]
    for other in ("max_split_size_mb:128", "max_split_size_mb:512", "roundup_power2_divisions:4"):
        assert runs[other]["oom_event"] <= own["oom_event"]


def test_the_text(fragmented: Path) -> None:
    run = in_process("whatif", fragmented)
    assert run.code == 0
    assert "is exact" in run.out and "expandable_segments:True" in run.out and "Minimum memory under" in run.out
    two = in_process("whatif", fragmented, "--set", "max_split_size_mb:64", "--memory", "80GiB", "--no-cards")
    assert "max_split_size_mb:64" in two.out and "80.0 GiB for the allocator" in two.out and "card" not in two.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--set", "max_split_size_mb:2"), "must be at least 2"),
        (("--set", "expandable_segment:True"), "no setting that can be replayed"),
        (("--without", "size>x"), "the query is bad"),
        (("--scale", "0.5"), "QUERY:FACTOR"),
        (("--scale", "size>1MiB:-1"), "QUERY:FACTOR"),
        (("--memory", "big"), "not a size"),
    ],
)
def test_bad_usage_is_one_line(fragmented: Path, arguments: tuple[str, ...], said: str) -> None:
    run = in_process("whatif", fragmented, *arguments)
    assert run.code == 2
    assert not run.out
    assert said in run.err and run.err.count("\n") == 1


def test_contradictory_traces_are_not_replayed() -> None:
    path = corpus.path_of("overlap")
    raw = corpus.raw(path)
    trace = next(t for t in raw["device_traces"] if t)
    moved = [dict(e) for e in trace]
    largest = max((e for e in moved if e["action"] == "alloc"), key=lambda e: e["size"])
    largest["size"] += 30 * MIB
    broken = corpus.scratch() / "moved.pickle"
    broken.write_bytes(pickle.dumps({**raw, "device_traces": [moved]}, 4))
    device = snapreport.load(broken).whatif()["devices"][0]
    assert not device["check"]["exact"] and device["check"]["reason"] and device["runs"] == []
    assert device["minimum_memory_bytes"] is None
    assert "not replayed" in in_process("whatif", broken).out
    undecided = in_process("check", broken, "--fits", "80GiB")
    assert undecided.code == 2
    assert "cannot decide fits" in undecided.err


def test_without_and_scale_change_the_peak_allocated_as_a_sum_says(fragmented: Path) -> None:
    snapshot = snapreport.load(fragmented)
    runs = snapshot.whatif(without=["size>64MiB"], cards=False)["devices"][0]["runs"]
    halved = snapshot.whatif(scale=[("size>64MiB", 0.5)], cards=False)["devices"][0]["runs"]
    table = snapshot.allocations(0)
    events = len(snapshot.events(0))

    def peak(size_of: Any) -> int:
        delta = [0] * (events + 2)
        for size, born, freed in table.select("size", "alloc_event", "free_event").iter_rows():
            delta[born + 1] += size_of(size)
            if freed >= 0:
                delta[freed + 1] -= size_of(size)
        best = now = 0
        for change in delta[: events + 1]:
            now += change
            best = max(best, now)
        return best

    assert runs[1]["peak_allocated_bytes"] == peak(lambda size: 0 if size > 64 * MIB else size)
    assert halved[1]["peak_allocated_bytes"] == peak(lambda size: round(size * 0.5) if size > 64 * MIB else size)
    assert runs[1]["without"] == "size>64MiB"


def test_what_is_left_out_never_happens() -> None:
    """A trace without some allocations reserves what a trace that never had them reserves."""
    raw = generator.make("small", seed=5)
    trace = next(t for t in raw["device_traces"] if t)
    path = corpus.scratch() / "whole.pickle"
    path.write_bytes(pickle.dumps(raw, 4))
    timeline = snapreport.load(path).timeline(0)
    whatif = WhatIf(timeline)
    sizes = whatif.trace.size
    left_out = sizes > 8 * MIB
    done = whatif.replay(whatif.own, Change(left_out), memory=Ascending(None))
    ids = np.flatnonzero(left_out)
    gone = set(timeline.allocations["alloc_event"].to_numpy()[ids].tolist())
    gone |= set(timeline.allocations["free_event"].to_numpy()[ids].tolist())
    keep = [e for at, e in enumerate(trace) if at not in gone and not e["action"].startswith("segment")]
    from slow_allocator import SlowAllocator

    addresses = Ascending(None)
    slow = SlowAllocator(
        lambda size: addresses.reserve(size, True), 1 << 62, 1 << 40, expandable=False, max_split=None,
        rounding=20 * MIB, divisions=[0] * 16, threshold=0, limit=None, tie_break=whatif.own.tie_break,
    )  # fmt: skip
    assert whatif.trace.starts_empty
    live: dict[int, int] = {}
    for e in keep:
        if e["action"] == "alloc":
            live[e["addr"]] = slow.malloc(e["size"], e["stream"], None) or 0
        elif e["action"] == "free_completed" and e["addr"] in live:
            slow.free(live.pop(e["addr"]))
    assert done.peak_reserved == slow.peak


def test_fits_is_a_gate(fragmented: Path) -> None:
    whatif = WhatIf(snapreport.load(fragmented).timeline(0))
    least = minimum_memory(whatif, whatif.own)
    assert least.memory is not None
    runs = in_process("check", fragmented, "--fits", str(least.memory))
    fails = in_process("check", fragmented, "--fits", str(least.memory - STEP), "--json")
    assert runs.code == 0 and fails.code == 1
    (one,) = [check for check in fails.json["checks"] if check["rule"] == "fits"]
    assert f"{least.memory // MIB:,} MiB" in one["message"].partition("it needs ")[2] and one["value"] == least.memory


def test_a_long_trace_starts_fresh_or_from_the_recorded_state() -> None:
    path = corpus.path_of("layout-2.1")
    fresh, recorded = (
        snapreport.load(path).whatif(start=start, cards=False)["devices"][0] for start in ("fresh", "recorded")
    )
    assert fresh["start"] == "fresh" and recorded["start"] == "recorded"
    assert recorded["runs"][0]["peak_reserved_bytes"] == recorded["recorded_peak_reserved_bytes"]
    assert fresh["limits"] != recorded["limits"]


CUDA = fake_torch.FakeTorch(fake_torch.FOLDERS[-1]) if fake_torch.FOLDERS else None
PROGRAM = r"""
import sys, torch
torch.cuda.memory._record_memory_history(stacks="python", max_entries=1000000)
torch.manual_seed(0)
net = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(12)]).cuda()
adam = torch.optim.AdamW(net.parameters())
def extra(x):
    return x.repeat(1, 3).square()
def step(rows):
    x = torch.randn(rows, 1024, device="cuda")
    y = net(x)
    if LEFT_OUT:
        loss = y.sum()
    else:
        z = extra(x)
        loss = y.sum()
        del z
    loss.backward(); adam.step(); adam.zero_grad()
if FRACTION: torch.cuda.set_per_process_memory_fraction(FRACTION)
for rows in (900, 4000, 1500, 7000, 300, 9000, 5200, 8100): step(rows)
stats = torch.cuda.memory_stats()
torch.cuda.memory._dump_snapshot(OUT)
print("RESULT", stats["reserved_bytes.all.peak"], stats["num_alloc_retries"])
"""


def run_on_device(conf: str, mib: int, *argv: object) -> fake_torch.Done:
    assert CUDA
    settings = {"PYTORCH_CUDA_ALLOC_CONF": conf, "FAKE_GPU_GIB": mib / 1024, "FAKE_GPU_CONTEXT_MIB": 0}
    return CUDA.run(*argv, **settings)


def really(
    out: Path, conf: str = "", mib: int = 20 << 10, left_out: bool = False, fraction: float = 0
) -> list[int] | None:
    """(peak reserved, retries) of a run by PyTorch's CUDA build on a device of that size; None: out of memory."""
    program = out.with_suffix(".py")
    program.write_text(f"LEFT_OUT = {left_out}; FRACTION = {fraction}; OUT = {str(out)!r}\n" + PROGRAM)
    done = run_on_device(conf, mib, program)
    if "OutOfMemoryError" in done.err:
        return None
    (line,) = [line for line in done.out.splitlines() if line.startswith("RESULT")]
    return [int(word) for word in line.split()[1:]]


@pytest.mark.skipif(CUDA is None, reason=fake_torch.NONE)
@pytest.mark.parametrize("conf", ["", "expandable_segments:True"])
def test_the_least_memory_really_runs_and_two_mib_less_fails(conf: str, tmp_path: Path) -> None:
    """PyTorch itself runs the program on devices of the predicted size and fails with 2 MiB less."""
    really(tmp_path / "snap.pickle")
    whatif = WhatIf(snapreport.load(tmp_path / "snap.pickle").timeline(0))
    least = minimum_memory(whatif, parse_settings([conf] if conf else [], whatif.own))
    assert least.memory is not None
    run = really(tmp_path / "small.pickle", conf, least.memory // MIB)
    assert run is not None and run[1] == least.retries
    assert really(tmp_path / "less.pickle", conf, least.memory // MIB - 2) is None


@pytest.mark.skipif(CUDA is None, reason=fake_torch.NONE)
def test_real_runs_under_other_settings_and_without_a_function(tmp_path: Path) -> None:
    really(tmp_path / "snap.pickle")
    snapshot = snapreport.load(tmp_path / "snap.pickle")
    whatif = WhatIf(snapshot.timeline(0))
    for conf in ("expandable_segments:True", "max_split_size_mb:32", "roundup_power2_divisions:4"):
        real = really(tmp_path / "other.pickle", conf)
        assert real is not None
        assert whatif.run(parse_settings([conf], whatif.own)).peak_reserved_bytes == real[0], conf
    real = really(tmp_path / "gc.pickle", "garbage_collection_threshold:0.5", 1536, fraction=0.9)
    wanted = parse_settings(["garbage_collection_threshold:0.5,per_process_memory_fraction:0.9"], whatif.own)
    small = WhatIf(snapshot.timeline(0), capacity=1536 * MIB)
    assert real is not None
    done = small.replay(wanted)
    assert [done.peak_reserved, done.retries] == real
    without = really(tmp_path / "without.pickle", left_out=True)
    assert without is not None
    answer = snapshot.whatif(without=["func:extra"], cards=False)["devices"][0]["runs"][1]
    assert answer["peak_reserved_bytes"] == without[0]


def test_too_little_for_what_was_live_at_the_start_fails_at_the_start() -> None:
    run = in_process("whatif", corpus.path_of("layout-2.1"), "--memory", "20MiB", "--no-cards")
    rows = [line for line in run.out.splitlines() if line.startswith("expandable_segments:True")]
    assert "at the start" in rows[0] and "event -1" not in run.out


def test_json_of_several_files(fragmented: Path) -> None:
    run = in_process("whatif", fragmented, corpus.path_of("small"), "--no-cards", "--json")
    document = json.loads(run.out)
    assert [len(one["devices"]) for one in document["snapshots"]] == [1, 1]


def test_an_oom_that_no_setting_avoids_says_what_the_run_needs(fragmented: Path) -> None:
    """The figure is that of the search; where a setting helps, the finding does not say that none does."""
    from snapreport.findings.memory_needed import memory_needed

    path = corpus.scratch() / "short_of_memory.pickle"
    path.write_bytes(pickle.dumps(generator.make("oom", steps=1, layers=2), 4))
    timeline = snapreport.load(path).timeline(0)
    needed = memory_needed(timeline)
    assert needed is not None
    whatif = WhatIf(timeline)
    every = (whatif.own, parse_settings(["expandable_segments:True"], whatif.own))
    assert needed.least == min(minimum_memory(whatif, settings).memory or 0 for settings in every)
    assert needed.available == whatif.trace.capacity.bytes < needed.least
    for text in needed.tried:
        done = whatif.replay(parse_settings([text], whatif.own))
        assert done.failed or done.oom_event is not None
    assert memory_needed(snapreport.load(fragmented).timeline(0)) is None


PLANTED = {
    "expandable_segments:True": planted_trace.growing_alone,
    "max_split_size_mb:128": planted_trace.split_large_blocks,
    "roundup_power2_divisions:4": planted_trace.growing_sizes,
}


def planted_file(name: str, raw: dict[str, Any]) -> Path:
    path = corpus.scratch() / f"planted-{name}.pickle"
    path.write_bytes(pickle.dumps(raw, 4))
    return path


@pytest.mark.parametrize("cure", PLANTED)
def test_planted_waste_is_cured_by_exactly_the_setting_that_cures_it(cure: str) -> None:
    path = planted_file(cure.partition(":")[0], PLANTED[cure]())
    (device,) = snapreport.load(path).whatif(cards=False)["devices"]
    assert device["check"]["exact"]
    peaks = {run["name"]: run["peak_reserved_bytes"] for run in device["runs"]}
    own = peaks.pop("recorded settings")
    assert own == device["recorded_peak_reserved_bytes"]
    assert peaks.pop(cure) < 0.8 * own
    assert all(peak is None or peak >= 0.95 * own for peak in peaks.values()), peaks


def test_retries_are_cured_by_garbage_collection() -> None:
    path = planted_file("retries", planted_trace.full_device())
    (device,) = snapreport.load(path).whatif(cards=False)["devices"]
    runs = {run["name"]: run for run in device["runs"]}
    collected = runs["garbage_collection_threshold:0.8,per_process_memory_fraction:1"]
    assert runs["recorded settings"]["retries"] > 3 and collected["retries"] == 0


@pytest.mark.parametrize("seed", [1, 3, 9, 13, 21])
def test_the_error_bar_includes_the_peak_on_every_device_that_the_recording_allows(seed: int) -> None:
    """The recording fills its device, whose size it shows only as a range; the reruns, by the slow allocator of the
    tests, know it.
    """
    record = planted_trace.Recording(1024 * MIB)
    program = planted_trace.mixed_sizes(seed)
    assert planted_trace.peak_reserved(record, program) and record.retries
    whatif = WhatIf(snapreport.load(planted_file("mixed", record.snapshot())).timeline(0))
    assert whatif.check.exact
    least, most = whatif.lowest_capacity, whatif.capacity
    assert least is not None and most is not None and least <= record.capacity <= most
    own = whatif.baseline
    assert own.low_bytes == own.high_bytes == own.peak_reserved_bytes == least
    for text, options in (
        ("max_split_size_mb:128", {"max_split": 128 * MIB}),
        ("roundup_power2_divisions:4", {"divisions": [4] * 16}),
    ):
        run = whatif.run(parse_settings([text], whatif.own))
        for capacity in (least, record.capacity, most):
            peak = planted_trace.peak_reserved(planted_trace.Recording(capacity, **options), program)
            if peak is None:
                assert run.peak_reserved_bytes is None or run.note
            else:
                assert run.low_bytes is not None and run.high_bytes is not None
                assert run.low_bytes <= peak <= run.high_bytes


def test_a_failed_request_of_a_private_pool_has_no_use_of_the_default_pool() -> None:
    path = planted_file("private-pools", planted_trace.failures_in_private_pools())
    timeline = snapreport.load(path).timeline(0)
    whatif = WhatIf(timeline)
    assert whatif.check.exact and whatif.capacity == 1024 * MIB
    own = whatif.replay(whatif.own)
    assert own.failed == timeline.oom_events and not own.avoided
    assert minimum_memory(whatif, whatif.own).memory == (600 + 3 * 450) * MIB


def test_a_failed_request_is_rounded_as_the_replayed_settings_round_it() -> None:
    """A request of 560 MiB takes 640 MiB where powers of two have four divisions."""
    record = planted_trace.Recording(700 * MIB)
    record.request(160)
    record.fail(560, (0, 0))
    path = planted_file("rounded", record.snapshot())
    whatif = WhatIf(snapreport.load(path).timeline(0))
    four = parse_settings(["roundup_power2_divisions:4"], whatif.own)
    (event,) = whatif.timeline.oom_events
    roomy = (160 + 560) * MIB
    assert whatif.replay(whatif.own, memory=Ascending(roomy)).avoided == [event]
    assert whatif.replay(four, memory=Ascending(roomy)).failed == [event]


def test_advice_that_the_replay_refutes_is_not_given() -> None:
    """Fragmentation that neither expandable segments nor a limit on splitting cures is reported without that advice;
    where both help, each says its own replayed peak.
    """
    helped = snapreport.load(planted_file("both-help", planted_trace.split_large_blocks(5, times=4)))
    refuted = snapreport.load(planted_file("none-helps", planted_trace.growing_sizes(4)))
    settings = {"expandable-segments": "expandable_segments:True", "max-split-size": "max_split_size_mb:128"}
    for snapshot, is_helped in ((helped, True), (refuted, False)):
        every = findings(snapshot)
        assert any(finding.kind == "fragmentation" for finding in every)
        advice = {finding.evidence["rule"]: finding for finding in every if finding.kind == "advice"}
        (device,) = snapshot.whatif(cards=False)["devices"]
        peaks = {run["name"]: run["peak_reserved_bytes"] for run in device["runs"]}
        for rule, name in settings.items():
            assert (rule in advice) == is_helped
            if is_helped:
                assert advice[rule].evidence["replayed_bytes"] == peaks[name] < peaks["recorded settings"]
            else:
                assert peaks[name] >= 0.99 * peaks["recorded settings"]


SHAPES = Path(__file__).resolve().parent / "fakecuda" / "programs" / "shapes.py"


def shapes(out: Path, program: str, conf: str = "", mib: int = 40 << 10, *options: str) -> tuple[str, int, int]:
    """(RESULT or OOM, peak reserved, retries) of a program by PyTorch's CUDA build."""
    return measured(out, program, conf, mib, *options)[:3]


def measured(out: Path, program: str, conf: str, mib: int, *options: str) -> tuple[str, int, int, int]:
    """As shapes(), with the peak of requested bytes."""
    done = run_on_device(conf, mib, SHAPES, out, program, *options)
    assert done.code == 0, done.err
    (line,) = [line for line in done.out.splitlines() if line.startswith(("RESULT", "OOM"))]
    outcome, peak, retries, _, requested = line.split()
    return outcome, int(peak), int(retries), int(requested)


@pytest.mark.skipif(CUDA is None, reason=fake_torch.NONE)
@pytest.mark.parametrize("program", ["varlen", "conv", "inference", "streams"])
def test_real_runs_of_other_programs_are_predicted_to_the_byte(program: str, tmp_path: Path) -> None:
    """Under other settings, on the minimum memory and 2 MiB less, with garbage collection, and without a function."""
    own = shapes(tmp_path / "own.pickle", program)
    snapshot = snapreport.load(tmp_path / "own.pickle")
    whatif = WhatIf(snapshot.timeline(0))
    assert whatif.check.exact

    def predicted(conf: str, mib: int = 40 << 10) -> tuple[str, int, int]:
        settings = parse_settings([conf] if conf else [], whatif.own)
        done = whatif.replay(settings, memory=Ascending(mib * MIB))
        return "RESULT" if done.oom_event is None else "OOM", done.peak_reserved, done.retries

    assert own == predicted("")
    other = tmp_path / "other.pickle"
    for conf in ("expandable_segments:True", "max_split_size_mb:32", "roundup_power2_divisions:4"):
        assert shapes(other, program, conf) == predicted(conf), conf
    least = (minimum_memory(whatif, whatif.own).memory or 0) // MIB
    assert shapes(other, program, "", least) == predicted("", least)
    outcome, _, retries = shapes(other, program, "", least - 2)
    assert outcome == "OOM" and retries == predicted("", least - 2)[2]
    middle = (least + own[1] // MIB) // 2
    collected = f"garbage_collection_threshold:0.5,per_process_memory_fraction:{0.95}"
    real = shapes(other, program, "garbage_collection_threshold:0.5", middle, "--fraction", "0.95")
    assert real == predicted(collected, middle)
    (_, without) = snapshot.whatif(without=["func:extra"], cards=False)["devices"][0]["runs"][:2]
    _, peak, retries = shapes(other, program, "", 40 << 10, "--without")
    assert (without["peak_reserved_bytes"], without["retries"]) == (peak, retries)


@pytest.mark.skipif(CUDA is None, reason=fake_torch.NONE)
def test_real_runs_with_a_functions_buffers_scaled_are_predicted_to_the_byte(tmp_path: Path) -> None:
    """The program runs again with the buffers of scratch() scaled by a half, and by 0.37, where hardly a size stays
    whole and the smallest become 0, for which PyTorch makes no request: what --scale says of the first run equals each.
    """
    outcome = {factor: measured(tmp_path / f"{factor}.pickle", "buffers", "", 40 << 10, "--scale", str(factor))
               for factor in (1, 0.5, 0.37)}  # fmt: skip
    whole = snapreport.load(tmp_path / "1.pickle")
    for factor in (0.5, 0.37):
        run = whole.whatif(scale=[("func:scratch", factor)], cards=False)["devices"][0]["runs"][1]
        assert (run["peak_reserved_bytes"], run["retries"]) == outcome[factor][1:3]
        assert run["peak_allocated_bytes"] == outcome[factor][3]
    assert len({peak for _, peak, _, _ in outcome.values()}) == 3


def test_scaled_to_nothing_is_without() -> None:
    """PyTorch makes no request for an empty tensor; one of a single byte takes a block."""
    record = planted_trace.Recording()
    record.request(30, line=1)
    record.request(2, line=2)
    record.request(40, line=3)
    snapshot = snapreport.load(planted_file("scaled", record.snapshot()))

    def asked(**change: Any) -> tuple[int, int]:
        run = snapshot.whatif(**change, cards=False)["devices"][0]["runs"][1]
        return run["peak_allocated_bytes"], run["peak_reserved_bytes"]

    nothing = asked(without=["size:2MiB"])
    assert nothing == (70 << 20, 70 << 20) == asked(scale=[("size:2MiB", 0)]) == asked(scale=[("size:2MiB", 2**-23)])
    assert asked(scale=[("size:2MiB", 2**-21)]) == (nothing[0] + 1, nothing[1] + (2 << 20))


@pytest.mark.parametrize("is_emptied", [False, True])
def test_a_call_that_had_nothing_to_release_is_a_limit(is_emptied: bool) -> None:
    """Where a program empties the cache, calls that released nothing are not in its trace."""
    record = planted_trace.Recording()
    record.drop(record.request(30))
    if is_emptied:
        record.empty_cache()
    record.request(40, line=2)
    path = planted_file(f"emptied-{is_emptied}", record.snapshot())
    (device,) = snapreport.load(path).whatif(cards=False)["devices"]
    assert any("empty_cache() calls that had nothing to release" in text for text in device["limits"]) is is_emptied
