"""Levels of detail, computed column by column from their description: the slow way to the page's spans.

Without snapreport. A position is ``s`` = event + 1, so that ``s = 0`` is the state before the first event.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import oracle

COLUMNS = 1024
ROWS = 1024


@dataclass(frozen=True)
class Span:
    first: int
    length: int
    rep: int
    stack: int
    count: int
    bytes: int


@dataclass
class Lives:
    """Lifetimes in birth order: live at s with ``start <= s < end``; ``allocated[s]`` in bytes."""

    start: Sequence[int]
    end: Sequence[int]
    size: Sequence[int]
    stack: Sequence[int]
    allocated: Sequence[int]


def lives_of(device: oracle.Device, stacks: Sequence[int]) -> Lives:
    """A device's allocations; ``stacks``: the number of each one's stack."""
    after = len(device.events) + 1
    return Lives(
        start=[a.alloc_event + 1 for a in device.allocations],
        end=[after if a.free_event < 0 else a.free_event + 1 for a in device.allocations],
        size=[a.size for a in device.allocations],
        stack=stacks,
        allocated=device.allocated,
    )


def depth(positions: int) -> int:
    """The exact level m: the smallest with COLUMNS * 2**m >= positions."""
    m = 0
    while COLUMNS * 2**m < positions:
        m += 1
    return m


def tiles(positions: int, level: int) -> int:
    """Tiles of a level that hold at least one position."""
    return -(-positions // (COLUMNS * 2 ** (depth(positions) - level)))


def tolerance(allocated: Sequence[int], y_level: int = 0) -> float:
    return max(1, -(-max(allocated) // ROWS)) / 2**y_level


def samples(allocated: Sequence[int], level: int, tile: int) -> list[int]:
    """For each column of a tile, the first s of the highest allocated within the column."""
    width = 2 ** (depth(len(allocated)) - level)
    begin, chosen = tile * COLUMNS * width, []
    for at in range(begin, min(begin + COLUMNS * width, len(allocated)), width):
        inside = range(at, min(at + width, len(allocated)))
        chosen.append(max(inside, key=lambda s: (allocated[s], -s)))
    return chosen


def groups(lives: Lives, visible: list[int], tol: float) -> dict[int, int]:
    """Group number of every visible allocation: thick ones alone, thin neighbours born in the same row together."""
    numbers: dict[int, int] = {}
    previous: tuple[str, float] | None = None
    before, count = 0, 0
    offsets = {}
    for i, (start, size) in enumerate(zip(lives.start, lives.size, strict=True)):
        if start == 0:
            offsets[i], before = before, before + size
        else:
            offsets[i] = max(0, lives.allocated[start] - size)
    for i in visible:
        kind = ("thick", float(i)) if lives.size[i] >= tol else ("thin", float(offsets[i] // tol))
        count += kind != previous
        numbers[i] = count
        previous = kind
    return numbers


def tile_spans(lives: Lives, level: int, tile: int, y_level: int = 0) -> list[Span]:
    """All spans of a tile in stacking order."""
    columns = samples(lives.allocated, level, tile)
    start, end = np.array(lives.start), np.array(lives.end)
    live = [np.flatnonzero((start <= s) & (s < end)).tolist() for s in columns]
    visible = sorted({i for ids in live for i in ids})
    group = groups(lives, visible, tolerance(lives.allocated, y_level))
    rows: dict[int, dict[int, tuple[int, int, int, int]]] = {}
    known: dict[tuple[int, ...], tuple[int, int, int, int]] = {}  # few groups change from column to column
    for c, ids in enumerate(live):
        # Numbers of groups rise with those of their members, which are therefore neighbours.
        for g, members in itertools.groupby(ids, group.__getitem__):
            inside = tuple(members)
            if inside not in known:
                known[inside] = summary(lives, inside)
            rows.setdefault(g, {})[c] = known[inside]
    return [span for g in sorted(rows) for span in runs(rows[g])]


def summary(lives: Lives, ids: Sequence[int]) -> tuple[int, int, int, int]:
    """(rep, stack, count, bytes) of a group's members live in a column."""
    held: dict[int, int] = {}
    for i in ids:
        held[lives.stack[i]] = held.get(lives.stack[i], 0) + lives.size[i]
    stack = min(held, key=lambda s: (-held[s], s))
    rep = min(i for i in ids if lives.stack[i] == stack)
    return rep, stack, len(ids), sum(lives.size[i] for i in ids)


def runs(columns: dict[int, tuple[int, int, int, int]]) -> list[Span]:
    """Equal neighbours across columns joined."""
    spans: list[Span] = []
    for c in sorted(columns):
        last = spans[-1] if spans else None
        if last and last.first + last.length == c and (last.rep, last.stack, last.count, last.bytes) == columns[c]:
            spans[-1] = Span(last.first, last.length + 1, *columns[c])
        else:
            spans.append(Span(c, 1, *columns[c]))
    return spans
