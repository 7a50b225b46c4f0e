"""Which allocations a query matches. Every term is a mask over whole columns: strings → frames → stacks → allocations.

The page's twin is ``static/src/search/evaluate.ts``; the tests compare both with a third, row by row.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from msgspec import Struct, field

from snapreport.search.fields import Choice, Range, Text, in_parts
from snapreport.search.grammar import AllOf, Node, Not, Term, parse
from snapreport.search.steps import in_range, positions_within, why_none
from snapreport.search.texts import Folded, StackTexts
from snapreport.timeline.build import DeviceTimeline
from snapreport.timeline.operators import called_operators
from snapreport.vocabulary import DEFAULT_POOL, PART_SEPARATORS, QUERY_NOTES


class Found(Struct):
    """``mask``: bool per allocation. ``notes``: why terms cannot match anything here, without duplicates."""

    mask: np.ndarray
    notes: list[str] = field(default_factory=list)


class Searcher:
    """Answers queries about one device. Strings are folded at the first query that needs them, and cached."""

    def __init__(self, timeline: DeviceTimeline, stacks: StackTexts) -> None:
        self.timeline = timeline
        self.table = timeline.allocations
        self.stacks = stacks
        self._notes: list[str] = []
        self._parts: dict[str, Folded] = {}

    def find(self, query: str) -> Found:
        """Answers a query. Raises :class:`QueryError` for an invalid one."""
        tree = parse(query)
        self._notes = []
        mask = self._node(tree)
        return Found(mask, list(dict.fromkeys(self._notes)))

    def _node(self, node: Node) -> np.ndarray:
        if isinstance(node, Term):
            return self._term(node)
        if isinstance(node, Not):
            return ~self._node(node.inner)
        is_all = isinstance(node, AllOf)
        mask: np.ndarray = np.full(len(self.table), is_all)
        largest = [part for part in node.parts if is_all and isinstance(part, Term) and part.field == "top"]
        for part in node.parts:
            if part not in largest:
                mask = mask & self._node(part) if is_all else mask | self._node(part)
        for part in largest:
            mask = self._largest(part.test, mask)
        return mask

    def _largest(self, test: Any, mask: np.ndarray) -> np.ndarray:
        """Of the allocations in ``mask`` so many of the largest; of equal ones the first."""
        ids = np.flatnonzero(mask)
        order = np.argsort(-self._column("size")[ids], kind="stable")
        found = np.zeros(len(mask), bool)
        found[ids[order[: test.high]]] = True
        return found

    def _term(self, term: Term) -> np.ndarray:
        test = term.test
        if isinstance(test, Text):
            return self._text(term.field, test)
        if isinstance(test, Choice):
            return self._choice(term.field, test)
        return self._range(term.field, test)

    # Texts

    def _text(self, name: str, test: Text) -> np.ndarray:
        if name == "meta":
            either: np.ndarray = self._contexts.having(test.parts) | self._metadata.having(test.parts)
            return either
        if name == "saved":
            return Folded(self.table["saved_by"]).having(test.parts)
        if name in PART_SEPARATORS:
            return self._in_parts(name).having(test.parts)
        if name in ("step", "freed-in"):
            return self._steps(name, test)
        if name == "free-stack":
            rows: np.ndarray = self.stacks.with_either(test)[self._column("free_stack")]
            return rows
        if name == "file":
            return self._of_stacks(self.stacks.with_file(test))
        if name == "func":
            return self._of_stacks(self.stacks.with_function(test))
        found: np.ndarray = self._of_stacks(self.stacks.with_either(test))
        if name == "":
            for column in (self._contexts, self._metadata, self._categories, self._pools):
                found = found | column.having(test.parts)
        return found

    def _of_stacks(self, hit: np.ndarray) -> np.ndarray:
        rows: np.ndarray = hit[self._column("stack")]
        return rows

    @cached_property
    def _contexts(self) -> Folded:
        return Folded(self.table["compile_context"])

    @cached_property
    def _metadata(self) -> Folded:
        return Folded(self.table["user_metadata"])

    def _in_parts(self, name: str) -> Folded:
        if name not in self._parts:
            is_op = name == "op"
            texts = called_operators(self.timeline.recording).gather(self.table["stack"]) if is_op else self.table[name]
            texts = texts.set(texts == "", None)
            distinct = texts.unique().drop_nulls()
            bounded = [in_parts(text, PART_SEPARATORS[name]) for text in distinct]
            self._parts[name] = Folded(texts.replace_strict(distinct, bounded, default=None, return_dtype=pl.String))
        return self._parts[name]

    @cached_property
    def _categories(self) -> Folded:
        return Folded(self.table["category"])

    @cached_property
    def _pools(self) -> Folded:
        return Folded(self.table["pool"])

    # Names

    def _choice(self, name: str, test: Choice) -> np.ndarray:
        if name in ("category", "source", "origin"):
            name = "category_source" if name == "source" else name
            return self.table[name].cast(pl.String).is_in(test.names).to_numpy()
        if name == "pool":
            return self._pool(test.names[0])
        if name == "device":
            return np.full(len(self.table), self.timeline.kind.lower() == test.names[0])
        return self._moment(test.names[0])

    def _pool(self, name: str) -> np.ndarray:
        pool = self.table["pool"].fill_null("")
        shared = {"default": DEFAULT_POOL, "none": ""}
        if name == "private":
            return ~pool.is_in(["", DEFAULT_POOL]).to_numpy()
        return (pool == shared.get(name, name)).to_numpy()

    def _moment(self, name: str) -> np.ndarray:
        if name == "oom":
            events = self.timeline.oom_events
            if not events:
                self._notes.append(QUERY_NOTES["no_oom"])
            counts = np.zeros(self._positions + 1, np.int64)
            counts[np.array(events, np.int64) + 2] = 1  # the state after event i is position s = i + 1
            running = np.cumsum(counts)
            live: np.ndarray = running[self._end] > running[self._start]
            return live
        last = len(self.timeline.events) - 1
        event = {"start": -1, "end": last, "peak": self.timeline.peak_event}[name]
        return (self._start <= event + 1) & (self._end > event + 1)

    # Numbers

    def _range(self, name: str, test: Range) -> np.ndarray:
        if name == "addr":
            return self._addresses(test)
        if name == "event":
            return self._events(test)
        if name == "time":
            return _between(self._alloc_us, test)
        if name == "lifetime":
            return self._lifetimes(test)
        if name == "live" and test.unit == "step":
            before = np.concatenate(([0], np.cumsum(self._within(test))))
            lived: np.ndarray = before[self._end] > before[self._start]
            return lived
        if name == "live":
            found = self._end > (0 if test.low is None else max(test.low, -1) + 1)
            return found if test.high is None else found & (self._start <= test.high + 1)
        if name == "device":
            return np.full(len(self.table), in_range(self.timeline.device, test))
        if name == "line":
            return self._of_stacks(self.stacks.with_frame(_between(self.stacks.lines, test)))
        if name in ("step", "freed-in"):
            return self._steps(name, test)
        if name == "top":
            return self._largest(test, np.ones(len(self.table), bool))
        return _between(self._column(name.replace("-", "_")), test)

    def _addresses(self, test: Range) -> np.ndarray:
        """Allocations with a byte in the range; a single address is also a range."""
        start, size = self.table["addr"].to_numpy(), np.maximum(self._column("size"), 1).astype(np.uint64)
        low = 0 if test.low is None else test.low
        high = 2**64 - 1 if test.high is None else test.high
        if low >= 2**64 or high < 0:
            return np.zeros(len(start), bool)
        reaches = (start >= np.uint64(low)) | (np.uint64(low) - start < size)
        inside: np.ndarray = reaches & (start <= np.uint64(min(high, 2**64 - 1)))
        return inside

    def _events(self, test: Range) -> np.ndarray:
        """For one event, the allocations it concerns; for a range, those allocated in it."""
        alloc_event = self._column("alloc_event")
        if test.low is None or test.low != test.high or test.low < 0:
            return _between(alloc_event, test)
        found: np.ndarray = alloc_event == test.low
        for name in ("free_requested_event", "free_event"):
            found = found | (self._column(name) == test.low)
        return found

    def _lifetimes(self, test: Range) -> np.ndarray:
        if test.unit == "events":
            return _between(self._end - self._start, test)
        if self._event_us is None:
            return _between(self._alloc_us, test)
        last = len(self._event_us) - 1
        alloc_event, free_event = self._column("alloc_event"), self._column("free_event")
        lived = self._event_us[np.where(free_event < 0, last, free_event)] - self._event_us[np.maximum(alloc_event, 0)]
        return _between(lived, test)

    def _steps(self, name: str, test: Range | Text) -> np.ndarray:
        """Allocated, or freed, in the steps or spans that the test selects."""
        within = self._within(test)
        found: np.ndarray = within[self._start]
        if name == "freed-in":
            found = np.append(within, False)[self._end] & (self._column("free_event") >= 0)
        return found

    def _within(self, test: Range | Text) -> np.ndarray:
        if reason := why_none(self.timeline, test):
            self._notes.append(reason)
        return positions_within(self.timeline, test)

    # Columns

    def _column(self, name: str) -> np.ndarray:
        return self.table[name].to_numpy()

    @property
    def _positions(self) -> int:
        return len(self.timeline.events) + 1

    @cached_property
    def _start(self) -> np.ndarray:
        """First position (s = event + 1) at which each allocation is live."""
        return self._column("alloc_event").astype(np.int64) + 1

    @cached_property
    def _end(self) -> np.ndarray:
        """First position at which it is no longer live."""
        free_event = self._column("free_event").astype(np.int64)
        return np.where(free_event < 0, self._positions, free_event + 1)

    @cached_property
    def _first_us(self) -> int:
        """The time of the first event, on the recorder's clock; 0 without times."""
        times = self._filled_times
        return 0 if times is None else int(times[0])

    @cached_property
    def _event_us(self) -> np.ndarray | None:
        """µs since the first event for each event; None if there are no times."""
        times = self._filled_times
        return None if times is None else times - self._first_us

    @cached_property
    def _filled_times(self) -> np.ndarray | None:
        """Times, where an event without one takes that of the previous event, as everywhere in the report."""
        times = self.timeline.events["time_us"]
        if times.null_count() == len(times):
            return None
        return times.fill_null(strategy="forward").fill_null(strategy="backward").to_numpy().astype(np.int64)

    @property
    def _alloc_us(self) -> np.ndarray:
        """µs from the first event to the alloc; NaN if the trace lacks the alloc, or has no times."""
        if self._event_us is None:
            self._notes.append(QUERY_NOTES["no_times"])
            return np.full(len(self.table), np.nan)
        alloc_event = self._column("alloc_event")
        return np.where(alloc_event >= 0, self._event_us[np.maximum(alloc_event, 0)].astype(np.float64), np.nan)


def _between(values: np.ndarray, test: Range) -> np.ndarray:
    """Bool for each value; NaN is in no range."""
    inside: np.ndarray = ~np.isnan(values)
    if test.low is not None:
        inside = inside & (values >= test.low)
    if test.high is not None:
        inside = inside & (values <= test.high)
    return inside
