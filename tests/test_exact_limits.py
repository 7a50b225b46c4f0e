"""Limits, orders and shares at which a decision turns: each test fails if one line is changed by a little."""

from __future__ import annotations

import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import corpus
import numpy as np
import polars as pl
import pytest
from scripted import Script
from test_bad_input import GOOD

import snapreport
from snapreport.allocator import check, trace
from snapreport.allocator.blocks import segment_size
from snapreport.allocator.minimum import STEP, fits, minimum_memory
from snapreport.allocator.model import CachingAllocator
from snapreport.allocator.placement import Ascending
from snapreport.allocator.settings import AllocatorSettings
from snapreport.findings import peak
from snapreport.findings.advice_context import AdviceContext
from snapreport.findings.opening import opening
from snapreport.findings.repeated_layers import repeated_layers
from snapreport.jobs import reduce
from snapreport.jobs.groups import Group
from snapreport.jobs.outliers import find_outliers
from snapreport.packing import columns
from snapreport.reading.recording import ACTIONS
from snapreport.report import build
from snapreport.report.payload import Sections
from snapreport.timeline import inference, phases, steps

MIB = 1 << 20


@pytest.mark.parametrize(("top", "transform"), [((1 << 51) - 1, "dz"), (1 << 51, "n"), (1 << 51 | 1, "n")])
def test_differences_are_stored_below_what_doubles_hold(top: int, transform: str) -> None:
    values = np.arange(top - 999, top + 1, dtype=np.int64)
    chosen = columns._best_plain(values, values)[0]
    assert chosen == transform if transform == "n" else chosen in ("dz", "Dz")
    assert columns._best_plain(-values, -values)[0] == ("nz" if transform == "n" else chosen)


@pytest.mark.parametrize(("limit", "left"), [(32, 20), (33, 0)])
def test_blocks_of_just_max_split_size_are_released_first(limit: int, left: int) -> None:
    """As PyTorch does: enough large blocks for the request, and only if these do not suffice every cached segment."""
    memory = Ascending(100 * MIB)
    model = CachingAllocator(memory, AllocatorSettings(max_split_size=limit * MIB))
    pools = model.pair(None)
    blocks = [model.allocate(size * MIB, 0, pools) for size in (32, 32, 20)]
    for block in blocks:
        assert block is not None
        model.free_block(block)
    assert model.reserved == (32 + 32 + 20) * MIB
    assert model.allocate(50 * MIB, 0, pools) is not None
    assert model.reserved == (50 + left) * MIB and model.retries == int(left == 0)


@pytest.mark.parametrize(("limit", "given"), [(32, 36), (38, 32)])
def test_requests_of_just_max_split_size_split_no_block(limit: int, given: int) -> None:
    """`should_split`: from it on a cached block is given whole; below it the rest of the block is left for others."""
    model = CachingAllocator(Ascending(100 * MIB), AllocatorSettings(max_split_size=limit * MIB))
    pools = model.pair(None)
    cached = model.allocate(36 * MIB, 0, pools)
    assert cached is not None
    model.free_block(cached)
    block = model.allocate(32 * MIB, 0, pools)
    assert block is not None
    assert (block.size, model.reserved) == (given * MIB, 36 * MIB)


class OnSomeMemory:
    """A trace that runs on these amounts of memory alone, in steps."""

    def __init__(self, *amounts: int) -> None:
        self.amounts = {amount * STEP for amount in amounts}

    def peak_allocated(self, change: object) -> int:
        return 1 * STEP

    def replay(self, settings: object, change: object, *, memory: Any, start: object) -> SimpleNamespace:
        total = memory.total
        runs = total is None or total >= 40 * STEP or total in self.amounts
        return SimpleNamespace(failure=None if runs else 7, retries=3, peak_reserved=40 * STEP)


def test_less_memory_that_suffices_is_the_minimum() -> None:
    """Below what halving finds, a smaller amount may do: it is the answer, and said not to be the only one."""
    amounts = (*range(20, 41), 16)
    least = minimum_memory(OnSomeMemory(*amounts), AllocatorSettings())
    assert least.memory == 16 * STEP and not least.monotone
    plain = minimum_memory(OnSomeMemory(*range(20, 41)), AllocatorSettings())
    assert plain.memory == 20 * STEP and plain.monotone
    smallest = minimum_memory(OnSomeMemory(1, *range(3, 41)), AllocatorSettings())
    assert smallest.memory == STEP and not smallest.monotone
    assert minimum_memory(OnSomeMemory(*range(1, 41)), AllocatorSettings()).memory == STEP


def test_eight_steps_on_either_side_of_the_minimum_are_tried() -> None:
    for less in range(11, 19):
        found = minimum_memory(OnSomeMemory(less, *range(20, 41)), AllocatorSettings())
        assert found.memory == (less if less >= 12 else 20) * STEP and found.monotone is (less < 12)
    for fails in range(21, 30):
        found = minimum_memory(OnSomeMemory(*{*range(20, 41)} - {fails}), AllocatorSettings())
        assert found.memory == 20 * STEP and found.monotone is (fails > 28)


def test_what_fails_on_any_memory_has_no_minimum() -> None:
    class Failing(OnSomeMemory):
        def replay(self, settings: object, change: object, *, memory: Any, start: object) -> SimpleNamespace:
            return SimpleNamespace(failure=7, retries=3, peak_reserved=40 * STEP)

    found = minimum_memory(Failing(), AllocatorSettings())
    assert (found.memory, found.retries, found.monotone, found.unlimited) == (None, 0, True, 40 * STEP)
    assert fits(Failing(), AllocatorSettings(), 50 * STEP) is None


def test_retries_where_memory_suffices() -> None:
    """A replay that runs out of memory ends there; one that would go on without a request has failed as well."""
    on = OnSomeMemory(20)
    assert [fits(on, AllocatorSettings(), amount * STEP) for amount in (19, 20, 21, 40)] == [None, 3, None, 3]


def test_the_unfinished_step_of_the_recorder() -> None:
    def table(*actions: str) -> pl.DataFrame:
        codes = pl.Series(actions, dtype=pl.Enum(ACTIONS))
        events = pl.DataFrame({"action": codes, "time_us": pl.Series(range(len(actions)), dtype=pl.Int64)})
        return steps._from_recorder(pl.DataFrame({"step": [1, 2], "time_us": [1, 3]}), events)

    step = ["alloc", "free_completed"]
    with_more = table(*step, *step, "alloc", "free_completed")
    assert with_more["name"].to_list() == ["step 0", "step 1", "step 2 (unfinished)"]
    assert with_more["last_event"].to_list() == [1, 3, 5]
    failed = table(*step, *step, "free_completed", "oom")
    assert failed["name"].to_list() == ["step 0", "step 1", "step 2 (unfinished)"], "its first request fails"
    with_frees = table(*step, *step, "free_completed")
    assert with_frees["name"].to_list() == ["step 0", "step 1"] and with_frees["last_event"].to_list() == [1, 4]
    just_ended = table("alloc", "free_completed", "free_completed", "alloc")
    assert just_ended["name"].to_list() == ["step 0", "step 1"]


def test_what_is_important_is_restored_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the parts left out before the last, the latest in the list returns if only one fits."""
    parts = build.PARTS[:3]
    weights = {part.description: weight for part, weight in zip(parts, (10, 10, 30), strict=True)}
    monkeypatch.setattr(build, "PARTS", parts)
    monkeypatch.setattr(build, "worth_leaving_out", lambda *_: True)
    monkeypatch.setattr(build, "render_page", lambda _, payload: b"." * payload)
    payload = Sections.payload
    monkeypatch.setattr(
        Sections,
        "payload",
        lambda self, left: (payload(self, left), 1000 - sum(weights[part.description] for part in left.parts))[1],
    )
    snapshot = corpus.loaded(corpus.path_of("small"))
    document, left = build.fit_document([snapshot], None, 968)
    assert len(document) == 960 and left.parts == (parts[0], parts[2])


def test_pinned_memory_opens_only_where_no_device_allocated() -> None:
    def device(kind: str, size: int) -> SimpleNamespace:
        events = pl.DataFrame({"size": [size], "time_us": [1]})
        return SimpleNamespace(kind=kind, peak_bytes=size, peak_event=0, events=events, oom_events=[])

    def opened(*devices: SimpleNamespace) -> int:
        snapshot: Any = SimpleNamespace(devices=list(range(len(devices))), timeline=lambda number: devices[number])
        found = opening([snapshot])
        assert found is not None
        return found.index

    assert opened(device("host", 1000), device("cuda", 10)) == 1
    assert opened(device("cuda", 10), device("host", 1000)) == 0
    assert opened(device("cuda", 10), device("cuda", 20)) == 1
    assert opened(device("host", 1000), device("cuda", 0)) == 0


@pytest.mark.parametrize(("many", "found"), [(1, 1), (3, 3), (4, 0)])
def test_more_than_a_quarter_of_a_group_are_not_outliers(many: int, found: int) -> None:
    ranks = 12
    stacks = np.full((ranks, 1), 1000 * MIB)
    stacks[:many] *= 3
    totals = stacks[:, 0]
    typical = np.full(ranks, 1000.0 * MIB)
    group = Group(list(range(ranks)), typical[:, None].copy(), typical, None, "level", True)
    assert len(find_outliers([group], stacks, totals)) == found


@pytest.mark.parametrize(("rest", "says"), [(61, "almost as high"), (60, "at event 1"), (100, "is as high")])
def test_a_second_peak_limits_what_removing_the_largest_saves(rest: int, says: str) -> None:
    """Said if less than 80% of its 50 bytes would be saved: 40 are not less."""
    timeline: Any = SimpleNamespace(peak_bytes=100, peak_event=5, allocated=np.array([0, 0, 99]))
    top: Any = {"bytes": 50, "peak_without_bytes": rest, "peak_without_event": 1}
    assert says in peak._without_top(timeline, top)


def test_rows_of_a_job_are_in_order_of_rank(tmp_path: Path) -> None:
    """Files without a rank take the numbers that are left, which may be lower."""
    for name in ("host10", "rank1", "rank3", "host9"):
        (tmp_path / f"{name}.pickle").write_bytes(pickle.dumps(GOOD))
    job = snapreport.job(sorted(str(path) for path in tmp_path.iterdir()), jobs=1)
    assert [(row.rank, Path(row.path).stem) for row in job.rows] == [
        (0, "host9"), (1, "rank1"), (2, "host10"), (3, "rank3"),
    ]  # fmt: skip


def test_a_request_that_just_fits_failed_at_the_limit_of_the_process() -> None:
    size = 64 * MIB
    needed = segment_size(size, 20 * MIB)

    def capacity(left: int) -> Any:
        events = pl.DataFrame({"size": [size, size], "device_free": [None, left]})
        timeline: Any = SimpleNamespace(events=events, reserved=np.array([0, size, size]), oom_events=[1])
        nothing = np.zeros(0, np.int64)
        return trace._capacity(timeline, np.zeros(2, np.int64), nothing, nothing, AllocatorSettings())

    limit, device = capacity(needed), capacity(needed - 1)
    assert (limit.exact, limit.most, limit.bytes) == (False, size + needed, size + needed - 1)
    assert (device.exact, device.most, device.bytes) == (True, None, size + needed - 1)


@pytest.mark.parametrize(
    ("lines", "after", "unfinished"),
    [
        (40, {"alloc": [41, 42]}, True),  # a twentieth of a step's events and lines
        (40, {"alloc": [41, 41]}, False),  # one line that logs twice
        (40, {"alloc": [41]}, False),
        (10, {"alloc": [41]}, False),  # enough lines, too few events
        (40, {"free_completed": [41, 42, 43]}, False),
        (40, {}, False),
    ],
)
def test_what_follows_the_last_optimizer_step(lines: int, after: dict[str, list[int]], unfinished: bool) -> None:
    names = ["alloc"] * 80 + [name for name, stacks in after.items() for _ in stacks]
    stacks = [1 + n % lines for n in range(80)] + [stack for stacks in after.values() for stack in stacks]
    events = pl.DataFrame({"action": pl.Series(names, dtype=pl.Enum(ACTIONS)), "stack": stacks})
    table = steps._ending_at(np.array([39, 79]), events, "optimizer")
    assert table["name"].to_list() == ["step 1", "step 2", *["step 3 (unfinished)"] * unfinished]
    assert table["last_event"].to_list() == ([39, 79, len(events) - 1] if unfinished else [39, len(events) - 1])


def test_garbage_collection_ends_as_soon_as_the_excess_is_gone() -> None:
    """60 MiB are 20 above the threshold: of two cached segments the older one is released, and that is enough."""
    settings = AllocatorSettings(garbage_collection_threshold=0.4)
    model = CachingAllocator(Ascending(200 * MIB), settings, limit=100 * MIB)
    pools = model.pair(None)
    older, younger = (model.allocate(20 * MIB, 0, pools) for _ in range(2))
    assert older is not None and younger is not None
    model.free_block(older)
    assert model.allocate(20 * MIB, 1, pools) is not None
    model.free_block(younger)
    assert model.reserved == 60 * MIB and model.allocate(30 * MIB, 0, pools) is not None
    assert model.reserved == (60 - 20 + 30) * MIB and model.retries == 0


def test_garbage_are_whole_segments() -> None:
    """50 MiB are 10 above the threshold, but what is free beside a block in use stays."""
    settings = AllocatorSettings(garbage_collection_threshold=0.4)
    model = CachingAllocator(Ascending(200 * MIB), settings, limit=100 * MIB)
    pools = model.pair(None)
    blocks = [model.allocate(size * MIB, 0, pools) for size in (5, 5, 30)]  # the first two in a segment of 20
    assert blocks[0] is not None
    model.free_block(blocks[0])
    assert model.reserved == 50 * MIB and model.allocate(30 * MIB, 0, pools) is not None
    assert (model.reserved, model.collected, model.retries) == (80 * MIB, 0, 0)


def test_an_expandable_segment_without_memory_is_gone() -> None:
    """Its addresses are not used again; one that has a block in use keeps its place."""
    model = CachingAllocator(Ascending(), AllocatorSettings(True))
    pools = model.pair(None)

    def allocated(size: int) -> Any:
        block = model.allocate(size * MIB, 0, pools)
        assert block is not None
        return block

    first, second = allocated(40), allocated(20)
    at = first.address
    model.free_block(first)
    model.release_cached()
    assert model.reserved == 20 * MIB and second.address == at + 40 * MIB
    again = allocated(30)
    assert (again.address, model.reserved) == (at, 60 * MIB)
    for block in (again, second):
        model.free_block(block)
    model.release_cached()
    assert model.reserved == 0 and allocated(40).address > at + 60 * MIB


@pytest.mark.parametrize(("threshold", "limit"), [(0.4, None), (0.0, 100)])
def test_garbage_is_collected_only_below_a_limit_and_with_a_threshold(threshold: float, limit: int | None) -> None:
    settings = AllocatorSettings(garbage_collection_threshold=threshold)
    model = CachingAllocator(Ascending(200 * MIB), settings, limit=limit and limit * MIB)
    pools = model.pair(None)
    block = model.allocate(20 * MIB, 0, pools)
    assert block is not None
    model.free_block(block)
    assert model.allocate(30 * MIB, 0, pools) is not None
    assert model.reserved == (20 + 30) * MIB and model.collected == 0


@pytest.mark.parametrize(("apart", "length", "agree"), [(50, 100, True), (51, 100, False), (1, 1, True), (2, 1, False)])
def test_clocks_agree_within_half_a_step_or_a_millisecond(apart: float, length: float, agree: bool) -> None:
    """Steps of two hosts, in milliseconds; a step of the second ends ``apart`` later."""
    ends = 1000 * length * np.arange(1, 5)
    digests = [SimpleNamespace(host=name, peak_us=1) for name in ("a", "b")]
    rows = [SimpleNamespace(packed=SimpleNamespace(step_ends=ends + 1000 * late)) for late in (0, apart)]
    assert reduce._clock(SimpleNamespace(digests=digests, rows=rows)).comparable is agree


@pytest.mark.parametrize(("passes", "count"), [(1, 12), (3, 12), (4, 8), (7, 8), (8, None)])
def test_what_every_forward_pass_makes_once_is_no_layer(passes: int, count: int | None, tmp_path: Path) -> None:
    """Eight tensors of one line, then four of another: layers of fewer passes, but the outputs of as many."""
    script = Script()
    lines = [("layer", 40)] * 8 + [("head", 10)] * 4
    for name, size in lines:  # none is freed: all of them wait for a backward pass
        script.alloc(name, size * MIB, (f"/app/{name}.py", "forward"))
    path = tmp_path / "passes.pickle"
    path.write_bytes(pickle.dumps(script.raw()))
    snapshot = snapreport.load(path)
    context = AdviceContext(snapshot, snapshot.timeline(0), [])
    found = repeated_layers(context, np.ones(12, bool), passes)
    assert (found and len(found.rows)) == count


@pytest.mark.parametrize(
    ("events", "stacks", "bursts"),
    [
        ("FFGA", [1, 1, 1, 1], [(0, True, 1)]),
        ("FFGA", [1, 1, 2, 2], [(0, False, 1)]),  # another line emptied the cache
        ("FGA", [0, 0, 0], [(0, True, 0)]),  # without stack traces a new segment is enough
        ("FA", [0, 0], [(0, False, 0)]),
        ("FA", [1, 1], [(0, True, 0)]),
        ("FO", [1, 1], [(0, True, 0)]),
        ("FO", [1, 2], [(0, False, 0)]),
        ("FO", [0, 0], [(0, True, 0)]),
        ("FCFGA", [1, 5, 1, 1, 1], [(0, True, 2)]),  # the allocator waits for other streams in between
        ("FCCFO", [1, 5, 5, 1, 1], [(0, True, 3)]),
        ("FRFGA", [1, 5, 1, 1, 1], [(0, False, 0), (2, True, 2)]),
        ("FCRFGA", [1, 5, 5, 1, 1, 1], [(0, False, 0), (3, True, 3)]),
        ("FAGA", [1, 2, 1, 1], [(0, False, 0)]),  # the request behind it needed no segment
        ("FRGA", [1, 1, 1, 1], [(0, False, 0)]),
        ("AF", [1, 1], [(1, False, 1)]),
        ("FG", [1, 1], [(0, False, 0)]),
        ("AA", [1, 1], []),
    ],
)
def test_segments_are_released_by_a_retry_or_by_empty_cache(
    events: str, stacks: list[int], bursts: list[tuple[int, bool, int]]
) -> None:
    names = {
        "F": "segment_free", "G": "segment_alloc", "A": "alloc", "O": "oom", "C": "free_completed",
        "R": "free_requested",
    }  # fmt: skip
    action = np.array([trace.CODE[names[letter]] for letter in events])
    first, is_retry, last = trace._releases(action, np.array(stacks))
    assert list(zip(first.tolist(), is_retry.tolist(), last.tolist(), strict=True)) == bursts


@pytest.mark.parametrize(("lowest", "frees", "returns"), [(1004, -1, True), (1006, -1, False), (1006, 1, True)])
def test_memory_that_comes_back_to_its_start_was_weights(lowest: int, frees: int, returns: bool) -> None:
    """Within half a percent, whatever went instead; or what a forward pass has made goes again."""
    curve, forward = np.array([1000, 1300, lowest]), np.array([phases.FORWARD])
    lives: Any = SimpleNamespace(born=forward)
    one: Any = {
        "alloc": np.array([0]),
        "free": np.array([frees]),
        "is_freed": np.array([frees >= 0]),
        "size": np.array([300]),
        "is_traced": np.array([True]),
    }
    assert inference._returns(SimpleNamespace(allocated=curve, lives=lives, **one)) is returns


@pytest.mark.parametrize(
    ("replayed", "error"), [((20, 40, 0), 0), ((30, 40, 0), 0.25), ((20, 38, 0), 0.05), ((20, 40, 20), 0.5)]
)
def test_a_replay_is_compared_behind_each_request_and_each_release(replayed: tuple[int, ...], error: float) -> None:
    """Two requests that reserve 20 bytes each, and an ``empty_cache()`` that releases both in two events."""
    recorded = SimpleNamespace(reserved=np.array([0, 20, 20, 40, 40, 20, 0]))
    kinds = np.array([trace.ALLOC, trace.ALLOC, trace.EMPTY_CACHE])
    own: Any = SimpleNamespace(timeline=recorded, kind=kinds, event=np.array([1, 3, 4]), item=np.array([0, 1, 5]))
    done: Any = SimpleNamespace(events=np.array([-1, 1, 3, 4]), reserved=np.array([0, *replayed]), oom_event=None)
    assert check._curve_error(own, done, recorded_retries=False) == error
    done.oom_event = 3
    assert check._curve_error(own, done, recorded_retries=False) == 1
