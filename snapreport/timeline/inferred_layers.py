"""Layers of forward passes that no recorder noted, counted in stack traces.

``dit.py:249 [3] › dit.py:125`` is line 125 in the fourth of the modules that line 249 calls. A call is told from the
next by the lines inside of it: where those of a ``forward`` repeat as a whole, in one order, the line that calls it has
called it that often. What repeats in another way gets no number. ``python -m benchmarks layers`` prints the precision.
"""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import polars as pl

from snapreport.reading.recording import Recording
from snapreport.timeline.modules import ARROW, ModulePaths
from snapreport.timeline.phases import BACKWARD, stack_phases

_LIBRARY = "torch/nn/modules/"
_MOST_DEPTH = 200  # of forward calls inside of each other; deeper ones get no number


def layer_paths(recording: Recording, allocations: pl.DataFrame) -> pl.Series:
    """String per allocation: the lines of its chain of ``forward`` calls, with the number of the call where it can be
    inferred; "" without such a chain.

    allocations: with ``stack``, ``alloc_event``, in order of birth.
    """
    paths = ModulePaths(recording)
    plain = pl.Series(paths.of(range(len(recording.stack_offsets) - 1)), dtype=pl.String)
    stack = allocations["stack"].to_numpy()
    # What a checkpoint runs again is a part of a pass, in an order of its own.
    counts = (plain != "").to_numpy() & ~stack_phases(recording).runs(BACKWARD)
    is_forward = counts[stack] & (allocations["alloc_event"].to_numpy() >= 0)
    begins = np.flatnonzero(np.diff(is_forward, prepend=~is_forward[:1]))
    passes = _Passes(recording, paths)
    result = plain.gather(stack).to_list()
    for begin, end in itertools.pairwise([*begins.tolist(), len(stack)]):
        if is_forward[begin]:
            result[begin:end] = passes.paths(stack[begin:end].tolist())
    return pl.Series("module", result, pl.String)


class _Passes:
    """Reads uninterrupted sequences of allocations in forward calls; equal ones once."""

    def __init__(self, recording: Recording, paths: ModulePaths) -> None:
        self._file = recording.frames["filename"].str.replace_all("\\", "/", literal=True)
        self._paths = paths
        self._known: dict[tuple[int, ...], list[str]] = {}

    def paths(self, stacks: list[int]) -> list[str]:
        key = tuple(stacks)
        if key not in self._known:
            chains = {stack: self._paths.chain(stack) for stack in set(stacks)}
            numbers: list[dict[int, int]] = [{} for _ in stacks]  # by depth
            self._count([chains[stack][0] for stack in stacks], range(len(stacks)), 0, numbers)
            self._known[key] = [self._path(*chains[stack], found) for stack, found in zip(stacks, numbers, strict=True)]
        return self._known[key]

    def _path(self, chain: list[int], around: int, numbers: dict[int, int]) -> str:
        """Those around only show if a number follows."""
        first = around if not numbers else min(around, min(numbers))
        return ARROW.join(
            self._paths.place(row) + (f" [{numbers[depth]}]" if depth in numbers else "")
            for depth, row in enumerate(chain[first:], first)
        )

    def _count(self, chains: list[list[int]], rows: range, depth: int, numbers: list[dict[int, int]]) -> None:
        """Numbers the calls in ``rows``, which one call of a forward made: their chains begin alike up to ``depth``."""
        runs = [
            (line, [*same])
            for line, same in itertools.groupby(
                rows, lambda row: chains[row][depth] if depth < len(chains[row]) else -1
            )
        ]
        lines = [line for line, _ in runs]
        loop = self._loop(lines) if depth else range(0)  # without a line that calls, the program calls the model again
        unit = len(set(lines[loop.start : loop.stop]))
        unsure = {line for line, times in Counter(lines).items() if times > 1} - set(lines[loop.start : loop.stop])
        for number, (line, same) in enumerate(runs):
            if line >= 0 and line not in unsure and depth < _MOST_DEPTH:
                if number in loop:
                    for row in same:
                        numbers[row][depth - 1] = (number - loop.start) // unit
                self._count(chains, range(same[0], same[-1] + 1), depth + 1, numbers)

    def _loop(self, lines: list[int]) -> range:
        """Places at which some lines of one file run again and again in one order, and nowhere else; empty if there are
        none. Lines of PyTorch's own modules do not count: a container calls different modules by one line.
        """
        times = Counter(lines)
        first = next((at for at, line in enumerate(lines) if times[line] > 1), None)
        if first is None:
            return range(0)
        unit = lines.index(lines[first], first + 1) - first
        end = first + unit
        while end < len(lines) and lines[end] == lines[end - unit]:
            end += 1
        inside = set(lines[first:end])
        files = {self._file[line] if line >= 0 else _LIBRARY for line in inside}
        is_own = len(files) == 1 and _LIBRARY not in files.pop()
        is_whole = (end - first) % unit == 0 and len(inside) == unit > 1 and not inside & set(lines[end:])
        return range(first, end) if is_own and is_whole else range(0)
