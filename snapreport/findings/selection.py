"""A query that selects exactly the allocations of a mask, in the language of ``docs/queries.md``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl

from snapreport.integers import distinct, is_among
from snapreport.reading.stack_marks import stacks_with
from snapreport.sentence import joined, sentence, stack_part
from snapreport.timeline.build import DeviceTimeline
from snapreport.timeline.lifetimes import IS_FREED
from snapreport.vocabulary import CATEGORIES, ORIGINS

LONGEST = 3500
"""Characters of a query; the language allows 4,000, and pages number stacks with more digits."""


def select(timeline: DeviceTimeline, mask: np.ndarray, functions: Sequence[str] = ()) -> tuple[str, np.ndarray]:
    """(a query, Bool per allocation that it selects exactly): ``mask``, less its smallest parts where the query is too
    long.

    ``functions``: see :func:`query_of`. Dropped are sizes of stacks that hold fewest bytes over their lives for their
    part of the query, a quarter of those left at a time. What the engine makes for each time step of a recurrent
    network may be as large as gradients, has no stack trace either, and takes a term for each allocation.
    """
    query = query_of(timeline, mask, functions)
    if len(query) <= LONGEST:
        return query, mask
    table = timeline.allocations
    freed = pl.when(~IS_FREED).then(len(timeline.events)).otherwise("free_event")
    byte_events = pl.col("size") * (freed - pl.col("alloc_event"))
    rows = table.select("stack", "size", byte_events=byte_events)
    while len(query) > LONGEST and mask.any():
        groups = rows.with_columns(chosen=pl.Series(mask)).group_by("stack", "size")
        mine = pl.col("byte_events").filter("chosen").sum()
        sums = groups.agg(mine, pl.col("chosen").sum(), is_whole=pl.col("chosen").all()).filter(pl.col("chosen") > 0)
        terms = pl.when("is_whole").then(1).otherwise("chosen")
        remaining = sums.sort(pl.col("byte_events") / terms, "stack", "size")[max(1, len(sums) // 4) :]
        left = rows.join(
            remaining.select("stack", "size", left=pl.lit(value=True)),
            on=["stack", "size"],
            how="left",
            maintain_order="left",
        )
        mask = mask & left["left"].fill_null(value=False).to_numpy()
        query = query_of(timeline, mask, functions)
    return query, mask


def query_of(timeline: DeviceTimeline, mask: np.ndarray, functions: Sequence[str] = ()) -> str:
    """The shortest form found: categories, names of functions, stacks, then single allocations by their events.

    ``functions``: parts of function names (lower case) that the selection is about. They are used where together with
    at most one more term they select the same allocations. An empty mask gives a query that matches nothing.
    """
    if not mask.any():
        return "size<0"
    table = timeline.allocations
    if mask.all():
        return "size>=0"
    for text, base in (*_functions(timeline, functions), *_categories(table, mask)):
        if not (mask & ~base).any():
            if np.array_equal(mask, base):
                return text
            for term, found in _terms(timeline, mask):
                if np.array_equal(base & found, mask):
                    return f"({text}) {term}" if " OR " in text else f"{text} {term}"
    return _by_stacks(timeline, mask)


def _categories(table: pl.DataFrame, mask: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    codes = table["category"].to_physical().to_numpy()
    chosen = np.unique(codes[mask])
    names = [CATEGORIES[int(code)] for code in chosen]
    texts = [f'category:"{name}"' if " " in name else f"category:{name}" for name in names]
    yield " OR ".join(texts), is_among(codes, chosen)


def _functions(timeline: DeviceTimeline, functions: Sequence[str]) -> Iterator[tuple[str, np.ndarray]]:
    """Terms ``func:word``, with the allocations that they select."""
    recording = timeline.recording
    stack = timeline.allocations["stack"].to_numpy()
    for word in functions:
        named = recording.frames["name"].str.to_lowercase().str.contains(word, literal=True).to_numpy()
        yield f"func:{word}", stacks_with(recording, named)[stack]


def _terms(timeline: DeviceTimeline, mask: np.ndarray) -> list[tuple[str, np.ndarray]]:
    """Terms that hold for all of the mask, with the allocations that they select."""
    return [(term, found) for term, found in _candidates(timeline, mask) if not (mask & ~found).any()]


def _candidates(timeline: DeviceTimeline, mask: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    table = timeline.allocations
    size = table["size"].to_numpy()
    least, most = int(size[mask].min()), int(size[mask].max())
    if least == most:
        yield f"size:{least}", size == least
    yield f"size>={least}", size >= least
    yield f"size:{least}..{most}", (size >= least) & (size <= most)
    born, freed = (table[name].to_numpy().astype(np.int64) for name in ("alloc_event", "free_event"))
    (text, of_categories), *_ = _categories(table, mask)
    yield f"({text})" if " OR " in text else text, of_categories
    last = len(timeline.events)
    lived = np.where(freed < 0, last + 1, freed + 1) - (born + 1)
    shortest, longest = int(lived[mask].min()), int(lived[mask].max())
    yield f"lifetime>={shortest}", lived >= shortest
    yield f"lifetime<={longest}", lived <= longest
    peak = timeline.peak_event
    yield "live:peak", (born <= peak) & ((freed < 0) | (freed > peak))
    yield "live:end", freed < 0
    yield "live:start", born < 0
    yield "-live:start", born >= 0
    origins = table["origin"].to_physical().to_numpy()
    for origin in np.unique(origins[mask]).tolist():
        yield f"origin:{ORIGINS[origin]}", origins == origin


def _by_stacks(timeline: DeviceTimeline, mask: np.ndarray) -> str:
    """Stacks that are chosen whole as ranges, of others the sizes, and what sizes cannot tell apart by address and
    event.
    """
    table = timeline.allocations
    stack, size = table["stack"].to_numpy(), table["size"].to_numpy()
    term, base = _common_term(timeline, mask)
    mixed = distinct(stack[base & ~mask])
    whole = np.setdiff1d(stack[mask], mixed)
    parts = [stack_term(*one) for one in _ranges(whole, stack, base)]
    rest: dict[tuple[int, ...], list[int]] = {}
    single = np.zeros(len(mask), bool)
    rows = np.flatnonzero(base & is_among(stack, np.intersect1d(mixed, stack[mask])))
    rows = rows[np.argsort(stack[rows], kind="stable")]
    for here in np.split(rows, np.flatnonzero(np.diff(stack[rows])) + 1) if len(rows) else []:
        chosen = mask[here]
        sizes = np.setdiff1d(size[here][chosen], size[here][~chosen])
        single[here] = chosen & ~np.isin(size[here], sizes)
        if len(sizes):
            rest.setdefault(tuple(sizes.tolist()), []).append(int(stack[here[0]]))
    for sizes_of, numbers in rest.items():
        stacks = any_of([stack_term(*run) for run in _runs(numbers)])
        parts.append(sentence("({} {})", stacks, any_of([f"size:{n}" for n in sizes_of])))
    query = any_of(parts) if parts else ""
    query = sentence("{} {}", query, term) if query and term else query
    singles = _singles(table, np.flatnonzero(single))
    if not singles:
        return query[1:-1] if _is_wrapped(query) else query
    return joined([sentence("({})", query)] * bool(query) + singles, " OR ")


def _common_term(timeline: DeviceTimeline, mask: np.ndarray) -> tuple[str, np.ndarray]:
    """The one further term that leaves fewest stacks chosen in part; none where it helps nothing."""
    stack = timeline.allocations["stack"].to_numpy()
    best = ("", np.ones(len(mask), bool))
    shared = ~mask & is_among(stack, stack[mask])
    fewest = len(distinct(stack[shared]))
    for term, found in _terms(timeline, mask):
        if not fewest:
            break
        left = len(distinct(stack[found & shared]))
        if left < fewest:
            best, fewest = (term, found), left
    return best


def _ranges(chosen: np.ndarray, stack: np.ndarray, base: np.ndarray) -> list[tuple[int, int]]:
    """Runs of chosen stacks; numbers that no allocation has, or none of ``base``, may stand within one."""
    used = distinct(stack[base])
    at = np.searchsorted(used, np.unique(chosen))
    return [(int(used[low]), int(used[high])) for low, high in _runs(at.tolist())]


def _runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return runs


def stack_term(low: int, high: int | None = None) -> str:
    """``stack:7`` or ``stack:7..9``; the numbers are parts, since a page with several files numbers stacks anew."""
    first = stack_part(low, str(low))
    return (
        sentence("stack:{}", first)
        if high in (None, low)
        else sentence("stack:{}..{}", first, stack_part(high, str(high)))
    )


def any_of(terms: Sequence[str]) -> str:
    return terms[0] if len(terms) == 1 else sentence("({})", joined(terms, " OR "))


def _is_wrapped(query: str) -> bool:
    """Whether the outermost parentheses belong to each other."""
    depth = 0
    for place, letter in enumerate(query):
        depth += (letter == "(") - (letter == ")")
        if depth == 0 and place < len(query) - 1:
            return False
    return query.startswith("(")


def _singles(table: pl.DataFrame, rows: np.ndarray) -> list[str]:
    """A term for each allocation: the event that allocates it, or its address before the trace.

    An event may also end the life of an older block at the same address; the size of the newer one then decides.
    """
    ended = np.append(table["free_event"].to_numpy(), table["free_requested_event"].to_numpy())
    chosen = table[rows].select("addr", "alloc_event", "size")
    terms = []
    for (addr, event, size), ends in zip(chosen.rows(), np.isin(chosen["alloc_event"], ended).tolist(), strict=True):
        if event < 0:
            terms.append(f"(addr:{addr:#x} live:start)")
        else:
            terms.append(f"(event:{event} size:{size})" if ends else f"event:{event}")
    return terms
