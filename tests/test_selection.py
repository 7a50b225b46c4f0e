"""The query of a finding selects exactly the allocations that the finding is about, whatever these are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import snapreport
from snapreport.findings import selection
from snapreport.findings.selection import query_of, select
from snapreport.snapshot import Snapshot

RECORDINGS = Path(__file__).parent / "recordings"
NAMES = ("h200/neighbour part", "witnesses/waiting", "mistakes/validation part", "fit/unet8")


@pytest.fixture(scope="module", params=NAMES)
def snapshot(request: pytest.FixtureRequest) -> Snapshot:
    """Whole, or its second half: much is from before the trace."""
    name, _, part = request.param.partition(" ")
    whole = snapreport.load(RECORDINGS / f"{name}.pickle.xz")
    events = len(whole.events(0))
    return whole.part(events=(events // 2, events)) if part else whole


def masks(snapshot: Snapshot, count: int) -> Iterator[np.ndarray]:
    """Random ones: of lines, sizes, both, times of birth, and single allocations, alone or beside others."""
    rng, table = np.random.default_rng(5), snapshot.allocations(0)
    stack, size, born, freed = (table[name].to_numpy() for name in ("stack", "size", "alloc_event", "free_event"))
    category = table["category"].to_physical().to_numpy()

    def some(values: np.ndarray) -> np.ndarray:
        chosen = rng.choice(np.unique(values), rng.integers(1, 5))
        return np.isin(values, chosen)

    for number in range(count):
        singles = np.isin(np.arange(len(size)), rng.integers(0, len(size), rng.integers(1, 6)))
        yield (
            some(stack), some(size), some(stack) & some(size), some(category), singles, some(stack) | singles,
            some(stack) & (born < 0), some(stack) & (freed < 0), (size >= rng.choice(size)) & some(category),
            np.abs(stack - rng.choice(stack)) < 9,
        )[number % 10]  # fmt: skip


def selected(snapshot: Snapshot, query: str) -> np.ndarray:
    return np.asarray(snapshot.searcher(0).find(query).mask)


def is_wrapped(query: str) -> bool:
    """Whether parentheses around all of it are one pair."""
    depths = np.cumsum([(letter == "(") - (letter == ")") for letter in query])
    return bool(depths[0] == 1 and depths[:-1].min() > 0)


def test_a_query_selects_its_mask(snapshot: Snapshot) -> None:
    for mask in masks(snapshot, 60):
        query = query_of(snapshot.timeline(0), mask)
        assert (selected(snapshot, query) == mask).all(), query
        assert not is_wrapped(query), query


def test_nothing_and_everything_can_be_selected(snapshot: Snapshot) -> None:
    mask = np.zeros(len(snapshot.allocations(0)), bool)
    assert not selected(snapshot, query_of(snapshot.timeline(0), mask)).any()
    assert selected(snapshot, query_of(snapshot.timeline(0), ~mask)).all()


def test_two_terms_are_enough_where_they_select_it(snapshot: Snapshot) -> None:
    """A category, and one of: a size, a range of sizes, whether it lived at the peak, the start or the end."""
    table, timeline = snapshot.allocations(0), snapshot.timeline(0)
    size, born, freed = (table[name].to_numpy() for name in ("size", "alloc_event", "free_event"))
    peak, middle = timeline.peak_event, int(np.median(size))
    at_peak = (born <= peak) & ((freed < 0) | (freed > peak))
    names = table["category"].cast(str)
    for name in names.unique().to_list():
        of_name = (names == name).to_numpy()
        term = f'category:"{name}"' if " " in name else f"category:{name}"
        assert query_of(timeline, of_name) == term
        others = (
            size == middle, size >= middle, (size >= 512) & (size <= middle), at_peak, born < 0, born >= 0, freed < 0,
        )  # fmt: skip
        for mask in (of_name & other for other in others):
            query = query_of(timeline, mask)
            assert query.startswith(term) or not mask.any()
            assert query.count(":") <= 2 and not any(name in query for name in ("stack:", "event:", "addr:")), query
            assert (selected(snapshot, query) == mask).all()


def test_a_function_is_named_where_it_selects_it(snapshot: Snapshot) -> None:
    table, timeline = snapshot.allocations(0), snapshot.timeline(0)
    for word in ("forward", "step"):
        of_word = selected(snapshot, f"func:{word}")
        for mask in (of_word, of_word & (table["free_event"] < 0).to_numpy()):
            if mask.any() and not mask.all():
                query = query_of(timeline, mask, ("nothing", word))
                assert f"func:{word}" in query and "stack:" not in query and (selected(snapshot, query) == mask).all()


def test_neighbouring_stacks_are_one_range(snapshot: Snapshot) -> None:
    table, timeline = snapshot.allocations(0), snapshot.timeline(0)
    stack = table["stack"].to_numpy()
    numbers = np.unique(stack)
    for low, high in ((1, 3), (2, len(numbers) - 2), (len(numbers) // 2, len(numbers) // 2)):
        mask = (stack >= numbers[low]) & (stack <= numbers[high])
        query = query_of(timeline, mask)
        assert query.count("stack:") <= 1 and "event:" not in query and (selected(snapshot, query) == mask).all()


def test_a_query_that_is_too_long_leaves_out_what_holds_least(
    snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines and sizes with the fewest bytes over their lives, for each of their terms: one for all, or one each."""
    monkeypatch.setattr(selection, "LONGEST", 150)
    table, rng = snapshot.allocations(0), np.random.default_rng(6)
    mask = rng.random(len(table)) < 0.4
    query, chosen = select(snapshot.timeline(0), mask)
    assert len(query_of(snapshot.timeline(0), mask)) > 150 >= len(query) and (selected(snapshot, query) == chosen).all()
    groups: dict[tuple[int, int], list[int]] = {}
    for row, key in enumerate(table.select("stack", "size").rows()):
        groups.setdefault(key, []).append(row)
    last, (born, freed) = len(snapshot.events(0)), table.select("alloc_event", "free_event").to_numpy().T
    worth: dict[bool, list[float]] = {True: [], False: []}
    for (_, size), rows in groups.items():
        wanted = [row for row in rows if mask[row]]
        if wanted:
            assert len({bool(chosen[row]) for row in wanted}) == 1
            held = sum(size * int((freed[row] if freed[row] >= 0 else last) - born[row]) for row in wanted)
            worth[bool(chosen[wanted[0]])].append(held / (1 if wanted == rows else len(wanted)))
    assert min(worth[True], default=np.inf) >= max(worth[False]) * (1 - 1e-9)
    assert not (chosen & ~mask).any()


def test_a_query_that_is_short_selects_all(snapshot: Snapshot) -> None:
    mask = np.arange(len(snapshot.allocations(0))) < 5
    assert (select(snapshot.timeline(0), mask)[1] == mask).all()
