"""What one recording alone tells: remedies that run together in so much memory, and a range for other batches."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import cli
import corpus
import fake_torch
import msgspec
import numpy as np
import pytest
from fake_torch import PROGRAMS, FakeTorch
from msgspec import structs

import snapreport
from snapreport.allocator.minimum import fits
from snapreport.allocator.whatif import WhatIf
from snapreport.contracts.fit import FitDocument, FitRemedy
from snapreport.forecast.remedies import COST, PROPORTIONAL, Remedy, RemedySearch
from snapreport.report.fit_text import fit_text
from snapreport.report.page_remedies import page_growth
from snapreport.snapshot import Snapshot

TORCH = FakeTorch(fake_torch.FOLDERS[-1]) if fake_torch.FOLDERS else None
needs_torch = pytest.mark.skipif(TORCH is None, reason=fake_torch.NONE)


@functools.cache
def search() -> RemedySearch:
    return search_of(snapreport.load(corpus.path_of("small")))


def search_of(snapshot: Snapshot) -> RemedySearch:
    whatif = WhatIf(snapshot.timeline(0))
    return RemedySearch(snapshot, whatif, whatif.own)


def remedies_of(rows: list[FitRemedy]) -> list[Remedy]:
    return [next(one for one in search().remedies if (one.rule, one.do) == (row.rule, row.do)) for row in rows]


def peak_by_hand(allocations: Any, sizes: np.ndarray) -> int:
    """The highest sum of live sizes, event by event."""
    changes: dict[int, int] = {}
    for (born, freed), size in zip(allocations.select("alloc_event", "free_event").iter_rows(), sizes, strict=True):
        changes[born] = changes.get(born, 0) + int(size)
        if freed >= 0:
            changes[freed] = changes.get(freed, 0) - int(size)
    live = most = 0
    for event in sorted(changes):
        live += changes[event]
        most = max(most, live)
    return most


def test_what_two_remedies_share_is_saved_once() -> None:
    size = search().size
    rng = np.random.default_rng(7)

    def remedy(rule: str, fraction: float) -> Remedy:
        return Remedy(rule, "", "a rewrite", "inferred", None, rng.random(len(size)) < 0.5, fraction)

    one, two, scaled = remedy("offload", 0.5), remedy("chunked-loss", 0.75), remedy(PROPORTIONAL[0], 0.5)
    assert one.mask is not None
    assert two.mask is not None
    assert scaled.mask is not None
    left = search().sizes([one, two, scaled])
    for at in range(len(size)):
        gone = max(0.5 * one.mask[at], 0.75 * two.mask[at])
        expected = size[at] * (1 - gone) * (0.5 if scaled.mask[at] else 1)
        assert 0 <= left[at] - expected < 1
    assert search().peak_allocated([one, two, scaled]) == peak_by_hand(search().timeline.allocations, left)
    assert (search().sizes([one, one]) == search().sizes([one])).all()
    alone = search().sizes([structs.replace(scaled, mask=np.ones(len(size), bool))])
    assert 0 <= int((alone - size / 2).max()) < 1


def test_the_cheapest_remedies_run_and_are_not_part_of_each_other() -> None:
    answer = search().answer(int(0.7 * search().timeline.peak_bytes))
    assert not answer.fits
    assert answer.sets
    costs = [sum(COST[remedy.effort] for remedy in remedies_of(one.remedies)) for one in answer.sets]
    assert costs == sorted(costs)
    for one in answer.sets:
        sizes = search().sizes(remedies_of(one.remedies))
        assert one.peak_allocated_bytes == peak_by_hand(search().timeline.allocations, sizes)
        assert one.peak_allocated_bytes <= one.peak_reserved_bytes <= answer.memory_bytes
        assert not any(set(remedies_of(other.remedies)) < set(remedies_of(one.remedies)) for other in answer.sets)
    cheaper = [remedy for remedy in search().remedies if COST[remedy.effort] < costs[0]]
    for remedy in cheaper:
        settings, change = search()._changes((remedy,))
        assert fits(search().whatif, settings, answer.memory_bytes, change) is None


def test_where_no_remedy_is_needed_and_where_none_is_enough() -> None:
    needed = search().answer(1).needed_bytes
    assert search().answer(needed).fits
    assert not search().answer(needed - (2 << 20)).fits
    answer = search().answer(1)
    assert not answer.sets
    assert answer.least_bytes is not None
    assert search().peak_allocated(remedies_of(answer.least_with)) <= answer.least_bytes < needed


def test_one_recording_on_the_command_line() -> None:
    path = corpus.path_of("small")
    done = cli.in_process("fit", path, "--memory", "150MiB", "--at", "8", "--to", "16", "--json")
    assert done.code == 0
    (device,) = json.loads(done.out)["devices"]
    recorded, other = device["predictions"]
    assert recorded["low_bytes"] == recorded["peak_reserved_bytes"] == recorded["high_bytes"]
    assert other["low_bytes"] < other["peak_reserved_bytes"] < other["high_bytes"]
    (largest,) = device["largest"]
    assert largest["low_value"] <= (largest["value"] or 0) <= largest["high_value"]
    text = cli.in_process("fit", path, "--memory", "150MiB").out
    assert "remedies, cheapest first" in text
    assert all(one["remedies"][0]["do"] in text for one in device["cheapest"]["sets"])
    text = cli.in_process("fit", path, "--memory", "150MiB", "--at", "8", "--to", "16").out
    assert f"{largest['low_value']} to {largest['high_value']}" in text
    assert "No remedy found" in cli.in_process("fit", path, "--memory", "2MiB").out
    assert "As it was recorded it runs on 80.0 GiB" in cli.in_process("fit", path, "--memory", "80GiB").out
    for arguments in ([], ["--to", "8", "--memory", "1GiB"], ["--at", "4,8"]):
        assert cli.in_process("fit", path, *arguments).code == 2
    (other_number,) = snapreport.fit([path], [64], name="length")["devices"]
    assert "with the batch only" in other_number["aligned"]["reason"]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("one")

    @functools.cache
    def run(script: str, *arguments: object) -> tuple[Path, str]:
        assert TORCH
        out = folder / f"{script} {arguments}.pickle"
        done = TORCH.run(PROGRAMS / script, out, *arguments, FAKE_GPU_GIB=24)
        assert done.code == 0, done.err
        return out, done.out

    return run


@needs_torch
@pytest.mark.parametrize("program", ["gpt_batch", "densenet_batch", "autocast_batch"])
def test_the_range_contains_what_runs(recorded: Any, program: str) -> None:
    path, _ = recorded("sized.py", program, 8)
    (device,) = snapreport.fit([path], [8], to=[16, 32])["devices"]
    for row in device["predictions"]:
        ran = json.loads(recorded("sized.py", program, int(row["value"]))[1].splitlines()[-1])
        assert row["low_bytes"] <= ran["reserved"] <= row["high_bytes"]


@needs_torch
@pytest.mark.parametrize(
    ("program", "remedies", "rules"),
    [
        ("words", "half+sdpa", "accumulation fused-attention sdpa-math-kernel"),
        ("images", "half+autocast", "accumulation mixed-precision"),
        ("zeroed", "none+checkpoint", "keep-gradients checkpointing"),
        ("resumed", "del+chunks", "loaded-checkpoint chunked-loss"),
    ],
)
def test_two_remedies_together_take_what_is_foretold(recorded: Any, program: str, remedies: str, rules: str) -> None:
    found = search_of(snapreport.load(recorded("remedies.py", program, "")[0]))
    chosen = [remedy for remedy in found.remedies if remedy.rule in rules.split()]
    assert len(chosen) == 2
    with_both = snapreport.load(recorded("remedies.py", program, remedies)[0]).timeline(0).peak_bytes
    assert found.peak_allocated(chosen) == pytest.approx(with_both, rel=0.15)


# compared_batch and views_batch of tests/fakecuda/programs/sized.py on PyTorch 2.15: the batch of the recording, and
# requested_bytes.all.peak and reserved_bytes.all.peak of torch.cuda.memory_stats at twice that batch.
PAIRS = {"compared": (1500, 193509728, 232783872), "views": (2048, 928331272, 954204160)}


@pytest.mark.parametrize("name", PAIRS)
def test_similarities_of_all_samples_grow_with_the_square_of_the_batch(name: str) -> None:
    batch, allocated, reserved = PAIRS[name]
    snapshot = snapreport.load(corpus.ROOT / "tests" / "recordings" / "fit" / f"{name}{batch}.pickle.xz")
    (device,) = snapreport.fit([snapshot], [batch], to=[2 * batch])["devices"]
    row = device["predictions"][-1]
    assert row["peak_reserved_bytes"] == reserved
    assert row["peak_allocated_bytes"] == pytest.approx(allocated, abs=64)  # four bytes of a loss grow, too
    assert not page_growth(snapshot, [], {0: 0}, 0)  # the slider knows no batch
    # Another number says nothing of pairs.
    (device,) = snapreport.fit([snapshot], [batch + 1], to=[2 * batch + 2])["devices"]
    assert device["predictions"][-1]["peak_allocated_bytes"] < 0.7 * allocated


# evaluated_batch of tests/fakecuda/programs/sized.py: requested_bytes.all.peak at other batches.
@pytest.mark.parametrize(("batch", "allocated"), [(12, 48960968), (96, 108189000)])
def test_an_evaluation_at_a_batch_of_its_own_may_stay_as_it_is(batch: int, allocated: int) -> None:
    recording = corpus.ROOT / "tests" / "recordings" / "fit" / "evaluated6.pickle.xz"
    found = snapreport.fit([recording], [6], to=[batch])
    row = found["devices"][0]["predictions"][-1]
    assert row["allocated_low_bytes"] <= allocated <= row["allocated_high_bytes"]
    assert row["allocated_low_bytes"] > 0.8 * allocated
    text = fit_text(msgspec.convert(found, FitDocument))
    assert "One recording does not show whether the peak depends on batch." in text
