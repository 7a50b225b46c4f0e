"""The allocator's model equals the tests' own slow one, real recordings under their own settings, and real runs of one
program under other settings.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import breadth
import corpus
import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from slow_allocator import SlowAllocator

import snapreport
from snapreport.allocator.check import self_check
from snapreport.allocator.model import CachingAllocator
from snapreport.allocator.placement import Ascending, placements
from snapreport.allocator.replay import replay
from snapreport.allocator.settings import TIE_BREAKS, AllocatorSettings, parse_settings, recorded_settings
from snapreport.allocator.start import start_state
from snapreport.allocator.trace import Trace, trace_of
from snapreport.errors import SettingsError
from snapreport.timeline.rounding import AllocatorRules

MIB = 1 << 20
RECORDED = corpus.REAL.parent / "recorded"


class Noting(CachingAllocator):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.noted: list[tuple[str, int]] = []

    def segment_event(self, action: str, address: int, size: int, block: Any) -> None:
        self.noted.append((action, size))


# Sizes around every limit of the allocator, many of them equal, so that free blocks tie.
SIZES = st.one_of(
    st.sampled_from([1, 512, 4096, MIB, MIB + 1, 3 * MIB, 5 * MIB, 10 * MIB, 21 * MIB, 33 * MIB, 64 * MIB]),
    st.integers(1, 3 * MIB),
    st.integers(MIB, 90 * MIB),
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from("aaaaffffe"), SIZES, st.integers(0, 1), st.integers(0, 99), st.sampled_from([None, None, "p"])
    ),
    min_size=20,
    max_size=120,
)
SETTINGS = st.fixed_dictionaries({
    "expandable": st.booleans(),
    "max_split": st.sampled_from([None, 21 * MIB, 32 * MIB, 64 * MIB]),
    "rounding": st.sampled_from([20 * MIB, 40 * MIB]),
    "divisions": st.sampled_from([[0] * 16, [4] * 16, [1, 2, 4, 8] * 4]),
    "threshold": st.sampled_from([0.0, 0.3, 0.8]),
    "limit": st.sampled_from([None, 150 * MIB, 300 * MIB]),
    "tie_break": st.sampled_from(TIE_BREAKS),
    "large_segment": st.sampled_from([20 * MIB, 20 * MIB, 33 * MIB, 64 * MIB]),
})  # fmt: skip


@settings(max_examples=breadth.examples(150), phases=[Phase.explicit, Phase.generate])
@given(STEPS, SETTINGS, st.sampled_from([120 * MIB, 250 * MIB, 1 << 40]))
def test_equals_the_slow_allocator(steps: list[Any], chosen: dict[str, Any], capacity: int) -> None:
    # PyTorch frees blocks of max_split_size as whole segments, and asserts that they are; with larger segments for
    # small requests their remainders may be as large.
    if chosen["max_split"] is not None and chosen["max_split"] < chosen["large_segment"]:
        chosen = chosen | {"large_segment": 20 * MIB}
    memory = Ascending(capacity)
    own = AllocatorSettings(
        chosen["expandable"], chosen["max_split"], chosen["rounding"], tuple(chosen["divisions"]),
        chosen["threshold"], None, chosen["tie_break"], chosen["large_segment"],
    )  # fmt: skip
    model = Noting(memory, own, None, chosen["limit"])
    same_addresses = Ascending(capacity)
    slow = SlowAllocator(lambda size: same_addresses.reserve(size, True), capacity, memory.total, **chosen)
    rules = AllocatorRules(own.divisions)
    live: list[tuple[Any, int]] = []
    for action, size, stream, pick, pool in steps:
        if action == "a":
            block = model.allocate(int(rules.rounded(np.array([size]))[0]), stream, model.pair(pool))
            address = slow.malloc(size, stream, pool)
            assert (block.address if block else None) == address
            if block is not None:
                live.append((block, block.address))
        elif action == "f" and live:
            block, address = live.pop(pick % len(live))
            assert block.address == address
            model.free_block(block)
            slow.free(address)
        elif action == "e":
            model.release_cached()
            slow.empty_cache()
        assert model.reserved == slow.reserved
    assert sorted(model.noted) == sorted(slow.events)
    assert (model.peak_reserved, model.retries) == (slow.peak, slow.retries)


def recordings() -> list[Path]:
    return sorted(p for p in RECORDED.rglob("*.pickle")) if RECORDED.exists() else []


# What cannot be replayed exactly, and why: the recording lacks what decided, or contradicts itself.
INEXACT = {
    "synthetic_overlapping.pickle": "other addresses",
    "torch20_history_blocks.pickle": "no allocations",
    "rec_enabled_state.pickle": "no allocations",
    "t29_rec_enabled_state.pickle": "no allocations",
    "rec_skip_completed.pickle": "completed frees were not recorded",
    "t29_graphs.pickle": "private pools",
    "varlen_gc.pickle": "garbage collection",
    "t29_varlen_gc.pickle": "garbage collection",
    "ddp_nccl_rank0.pickle": "no allocations",
    "ddp_nccl_rank1.pickle": "no allocations",
    "two_gpus_dp.pickle": "no allocations",
    "denoising_graphs.pickle": "no allocations",
    "quantised_kv_llama7b.pickle": "no allocations",
}


def traces(path: Path) -> list[Trace]:
    snapshot = snapreport.load(path)
    timelines = [snapshot.timeline(device) for device in snapshot.devices]
    return [trace_of(t) for t in timelines if t.kind == "cuda" and len(t.events)]


@pytest.mark.parametrize(
    "path",
    [corpus.REAL / name for name in corpus.real_names()] + recordings() + sorted(corpus.WITNESSES.iterdir()),
    ids=lambda path: path.stem,
)
def test_real_traces_replay_exactly(path: Path) -> None:
    """Every address, every segment event and the whole reserved curve, under the trace's own settings."""
    for trace in traces(path):
        check = self_check(trace, start_state(trace))
        if not check.exact:
            assert INEXACT.get(path.name, "unexpected") in check.reason, (path.name, check)
        else:
            assert check.same_allocations == check.allocations > 0 and not check.reason


PAIRS = [
    (prefix, name) for prefix in ("", "t29_") for name in ("default", "expandable", "maxsplit", "roundup", "gc")
    if (RECORDED / f"{prefix}varlen_{name}.pickle").exists()
]  # fmt: skip


@pytest.mark.parametrize(("prefix", "name"), PAIRS)
def test_a_real_run_under_other_settings_is_predicted_to_the_byte(prefix: str, name: str) -> None:
    """One program was run under each setting: its peak is predicted from the run with none."""
    (trace,) = traces(RECORDED / f"{prefix}varlen_default.pickle")
    truth = json.loads((RECORDED / f"{prefix}varlen_{name}.truth.json").read_text())
    real = truth["stats"][0] if isinstance(truth["stats"], list) else truth["stats"]["0"]
    check = self_check(trace, start_state(trace))
    assert check.exact
    conf = [truth["conf"]] if truth["conf"] else []
    capacity = None
    if name == "gc":  # set_per_process_memory_fraction(0.8) of 3 GiB
        conf.append("per_process_memory_fraction:0.8")
        capacity = 3 << 30
    wanted = parse_settings(conf, check.settings)
    done = replay(trace, wanted, Ascending(capacity), start=None)
    assert done.peak_reserved == real["reserved_bytes.all.peak"]
    assert done.retries == real["num_alloc_retries"]
    peaks = [replay(trace, wanted, memory, start=None).peak_reserved for memory in placements(capacity, 5)]
    assert min(peaks) <= real["reserved_bytes.all.peak"] <= max(peaks)


def test_settings_are_read_as_pytorch_reads_them() -> None:
    """Divisions as PyTorch 2.9.1 reports them in a snapshot's settings."""
    read = {
        "4": [4] * 16,
        "[256:1,512:2,>:4]": [1] * 9 + [4] * 7,
        "[1:2,4:8,>:16]": [2, 0] + [16] * 14,
        "[64:8,256:4,256:2,>:1]": [8] * 7 + [0] + [1] * 8,
        "[65536:2]": [2] * 16,
        "[8:2]": [2] * 4 + [0] * 12,
    }
    for text, divisions in read.items():
        older = AllocatorSettings(since_2_10=False)
        assert parse_settings([f"roundup_power2_divisions:{text}"], older).divisions == tuple(divisions)
    both = parse_settings(["expandable_segments:True,max_split_size_mb:128"], AllocatorSettings())
    assert both.expandable_segments and both.max_split_size == 128 * MIB
    assert both.text() == "expandable_segments:True,max_split_size_mb:128"
    assert parse_settings([both.text()], AllocatorSettings()) == both
    assert AllocatorSettings().text() == "default"
    newer = parse_settings(
        ["large_segment_size_mb:64,pinned_free_catch_all:True,expandable_segments_reserve:0.5"], AllocatorSettings()
    )
    assert newer.large_segment == 64 * MIB and newer.text() == "large_segment_size_mb:64"
    for since, least in ((False, 21), (True, 20), (None, 20)):  # the least that is no error
        smallest = parse_settings([f"max_split_size_mb:{least}"], AllocatorSettings(since_2_10=since))
        assert smallest.max_split_size == least * MIB
    assert parse_settings(["large_segment_size_mb:11"], AllocatorSettings()).large_segment == 11 * MIB
    assert recorded_settings({"PYTORCH_CUDA_ALLOC_CONF": "large_segment_size_mb:11"}).large_segment == 11 * MIB
    assert recorded_settings({"PYTORCH_CUDA_ALLOC_CONF": "large_segment_size_mb:10"}).large_segment == 20 * MIB
    conf = {"PYTORCH_CUDA_ALLOC_CONF": "max_non_split_rounding_mb:40, large_segment_size_mb:64"}
    assert recorded_settings(conf).large_segment == 64 * MIB
    assert recorded_settings(conf).max_non_split_rounding == 40 * MIB


@pytest.mark.parametrize(
    "text",
    [
        "", "expandable_segments", "expandable_segments:yes", "max_split_size_mb:20", "max_split_size_mb:-1",
        "nonsense:1",
        "roundup_power2_divisions:3", "roundup_power2_divisions:[1:2", "roundup_power2_divisions:[12]",
        "garbage_collection_threshold:1.5", "garbage_collection_threshold:0", "backend:cudaMallocAsync",
        "max_split_size_mb:9999999999", "max_non_split_rounding_mb:20", "garbage_collection_threshold:1e-3",
        "large_segment_size_mb:10",
    ],
)  # fmt: skip
def test_bad_settings_are_refused_in_one_line(text: str) -> None:
    with pytest.raises(SettingsError) as error:
        parse_settings([text], AllocatorSettings(since_2_10=False))  # 20 MiB can be given since 2.10
    assert "\n" not in str(error.value)


def test_malformed_recorded_settings_have_their_defaults() -> None:
    odd = {
        "max_split_size": "x",
        "roundup_power2_divisions": [1],
        "garbage_collection_threshold": "high",
        "expandable_segments": 1,
    }
    assert recorded_settings(odd) == AllocatorSettings()
    assert recorded_settings({}, expandable_seen=True).expandable_segments
