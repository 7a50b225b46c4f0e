"""Live allocations at a position, and their bytes by category, stack, function and module."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import polars as pl

from snapreport.contracts.finding import Row
from snapreport.integers import sums_of_codes
from snapreport.memoize import memoize, memoize_by_identity
from snapreport.number_format import upper_first
from snapreport.reading.recording import Recording
from snapreport.sentence import Sentence, place_part, stack_part
from snapreport.snapshot import Snapshot
from snapreport.timeline.lifetimes import is_live_at
from snapreport.timeline.modules import module_paths
from snapreport.timeline.operators import stack_labels
from snapreport.timeline.own_code import frame_line, own_frames, own_functions, own_places
from snapreport.timeline.stats import stack_sums
from snapreport.vocabulary import CATEGORIES

MOST = 10
"""Rows of a breakdown that a finding has; the page has them all."""
_SORTED = sorted(CATEGORIES)
_PLACES = np.array([_SORTED.index(name) for name in CATEGORIES])
NO_STACK_TRACE = "allocations without a stack trace"


class CategoryRow(Row):
    """``bytes`` in ``count`` allocations of one category."""

    category: str
    bytes: int
    count: int


class StackRow(Row):
    """The bytes of one stack; ``line`` with what launched it, ``category`` that of most of its bytes, which are
    ``category_bytes``.
    """

    stack: int
    bytes: int
    count: int
    function: str
    line: str
    category: str
    category_bytes: int


class FunctionRow(Row):
    function: str
    bytes: int
    count: int


class PlaceRow(Row):
    """``place``: ``forward dit.py:83``."""

    place: str
    bytes: int
    count: int


class Names:
    """The names of a snapshot's stacks, as parts of sentences; built once for all devices."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._recording = snapshot.recording
        # Columns, since a row of a frame costs a hundred times as much as a value.
        self._file, self._line = (snapshot.recording.frames[name] for name in ("filename", "line"))
        self.functions = own_functions(snapshot.recording)
        self.modules = module_paths(snapshot.recording)

    def function(self, stack: int) -> str:
        """``forward dit.py``: for sums over all lines of a function."""
        return self._named(stack, self.functions[stack])

    def line(self, stack: int) -> str:
        """``forward dit.py:83``, with `` · linear`` where several operators of the line allocate, and with
        `` from train.py:42`` where the program's own line only launched it.
        """
        return self._named(stack, stack_labels(self._recording)[stack])

    @cached_property
    def frames(self) -> np.ndarray:
        """Int64 per stack: the row of the frame that names it, -1 for an empty stack."""
        return own_frames(self._recording)

    def place(self, stack: int) -> str:
        """``forward dit.py:83``, without what launched it."""
        return self._named(stack, own_places(self._recording)[stack])

    def subject(self, stack: int) -> str:
        """Likewise, where a sentence begins."""
        place = self.place(stack)
        return upper_first(place) if place == NO_STACK_TRACE else place

    def _named(self, stack: int, name: str) -> str:
        frame = int(self.frames[stack])
        if not name or frame < 0:
            return NO_STACK_TRACE
        return stack_part(stack, name, self._file[frame], max(0, self._line[frame] or 0))


def place_of_frame(recording: Recording, frame: int) -> Sentence:
    """``forward dit.py:83`` of a row of ``frames``."""
    file, line = recording.frames.select("filename", "line").row(frame)
    return place_part(frame_line(recording, frame), file, max(0, line or 0))


@memoize
def names_of(snapshot: Snapshot) -> Names:
    return Names(snapshot)


def live_at(allocations: pl.DataFrame, position: int) -> pl.DataFrame:
    """The rows of the allocations live at ``position``, in birth order."""
    return allocations.filter(is_live_at(position))


@memoize_by_identity
def _categories(live: pl.DataFrame) -> np.ndarray:
    """The place of each allocation's category in ``_SORTED``."""
    places: np.ndarray = _PLACES[live["category"].to_physical().to_numpy()]
    return places


def by_category(live: pl.DataFrame) -> list[CategoryRow]:
    """All of them, most bytes first."""
    sums = sums_of_codes(_categories(live), live["size"].to_numpy())
    rows = zip(*(column.tolist() for column in sums), strict=True)
    return [CategoryRow(category=_SORTED[code], bytes=size, count=count) for code, size, count in rows]


def by_stack(live: pl.DataFrame, names: Names, most: int = MOST) -> list[StackRow]:
    """The largest, most bytes first."""
    top = stack_sums(live).head(most)
    category, stacks, sizes = _categories(live), live["stack"].to_numpy(), live["size"].to_numpy()
    made = []
    for stack, size, count in top.iter_rows():
        mine = stacks == stack
        of_category = np.zeros(len(_SORTED), np.int64)
        np.add.at(of_category, category[mine], sizes[mine])
        main = int(of_category.argmax())
        made.append(
            StackRow(
                stack=stack,
                bytes=size,
                count=count,
                function=names.function(stack),
                line=names.line(stack),
                category=_SORTED[main],
                category_bytes=int(of_category[main]),
            )
        )
    return made


def by_function(live: pl.DataFrame, names: Names) -> list[FunctionRow]:
    """``function``, ``bytes``, ``count``: the stacks' own functions, see ``timeline/own_code.py``."""
    stacks = stack_sums(live)
    rows = _sums(stacks.with_columns(function=names.functions.gather(stacks["stack"])), "function").head(MOST)
    return [FunctionRow(**row) for row in rows.rows(named=True)]


def by_place(live: pl.DataFrame, names: Names) -> list[PlaceRow]:
    """``place``, ``bytes``, ``count``: the lines of those functions."""
    stack = live["stack"].to_numpy()
    frame = names.frames[stack] + 1
    first = np.full(int(frame.max(initial=0)) + 1, len(names.frames))
    np.minimum.at(first, frame, stack)
    sums = sums_of_codes(first[frame], live["size"].to_numpy())
    rows = zip(*(column[:MOST].tolist() for column in sums), strict=True)
    return [PlaceRow(place=names.place(stack), bytes=size, count=count) for stack, size, count in rows]


def by_module(live: pl.DataFrame, names: Names) -> pl.DataFrame:
    """``module``, ``bytes``, ``count``: recorded modules, or else the lines of their forward; "" for none, most bytes
    first.
    """
    if has_recorded_modules(live):
        is_recorded = pl.col("module_source") == "recorded"
        own = live.with_columns(module=pl.when(is_recorded).then(pl.col("module").cast(pl.String)).fill_null(""))
        return _sums(own.select("module", bytes="size", count=pl.lit(1, pl.Int64)), "module")
    stacks = stack_sums(live)
    return _sums(
        stacks.with_columns(module=pl.Series(names.modules.of(stacks["stack"].to_list()), dtype=pl.String)), "module"
    )


def has_recorded_modules(live: pl.DataFrame) -> bool:
    """Whether the recorder noted which modules allocate, not only what their parameters are."""
    is_noted = (pl.col("module_source") == "recorded") & (pl.col("category") == "activation")
    return bool(live.select(is_noted.any()).item())


def _sums(rows: pl.DataFrame, key: str) -> pl.DataFrame:
    grouped = rows.group_by(key).agg(pl.col("bytes").sum(), pl.col("count").sum())
    return grouped.sort(["bytes", key], descending=[True, False])


_PLURALS = {
    "parameter": "parameters",
    "gradient": "gradients",
    "activation": "activations",
    "temporary": "temporaries",
    "input": "inputs",
    "communication": "communication buffers",
    "workspace": "workspaces",
    "kv cache": "KV cache",
}
_MOST_PARTS, _MIN_SHARE = 4, 0.01


def category_text(category: str) -> str:
    """The name of a category in a sentence: ``activations``, ``optimizer state``."""
    return _PLURALS.get(category, category)


def main_parts(categories: Sequence[CategoryRow]) -> list[tuple[str, int]]:
    """(name, bytes) of the largest categories of at least 1%; what is unknown comes last, whatever its size."""
    total = sum(row["bytes"] for row in categories)
    parts = [row for row in categories if row["bytes"] >= _MIN_SHARE * total]
    known = [row for row in parts if row["category"] != "unknown"][:_MOST_PARTS]
    unknown = [row for row in parts if row["category"] == "unknown"]
    return [(category_text(row["category"]), row["bytes"]) for row in [*known, *unknown]]
