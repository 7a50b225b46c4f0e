"""Layers of forward passes that no recorder noted, counted in stack traces.

``dit:249.3.dit:125`` is line 125 of dit.py in the fourth of the modules that line 249 calls. A call is told from the
next by the lines inside of it: where those of a ``forward`` repeat as a whole, in one order, the line that calls it has
called it that often; where only some of them do, they are a loop in it. What repeats in another way gets no number.
``python -m benchmarks layers`` prints the precision.
"""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import polars as pl
from msgspec import Struct

from snapreport.memoize import memoize
from snapreport.reading.recording import Recording
from snapreport.timeline.frame_search import files_of
from snapreport.timeline.modules import module_paths
from snapreport.timeline.phases import BACKWARD, stack_phases

# Modules of PyTorch that call others by one line each; those of a transformer are written like anybody's.
_LIBRARY = r"torch/nn/modules/(?:[^t]|t[^r])\w*\.py$"
_FEWEST_ITERATIONS = 4  # of a line that calls something and allocates itself, in turns: an expression may do so thrice
_NO_CALL = -1
_MOST_DEPTH = 200  # of forward calls inside of each other; deeper ones get no number


def layer_paths(recording: Recording, allocations: pl.DataFrame) -> pl.Series:
    """String per allocation: the lines of its chain of ``forward`` calls, with the number of the call where it can be
    inferred; null without such a chain.

    allocations: with ``stack``, ``alloc_event``, in order of birth.
    """
    stack = allocations["stack"].to_numpy()
    # What a checkpoint runs again is a part of a pass, in an order of its own.
    is_forward = (module_paths(recording).shows & ~stack_phases(recording).runs(BACKWARD))[stack]
    is_forward &= allocations["alloc_event"].to_numpy() >= 0
    if not is_forward.any():
        return pl.Series("module", [None], pl.String).new_from_index(0, len(stack))
    passes = _Passes(_forward_lines(recording))
    begins = np.flatnonzero(np.diff(is_forward, prepend=~is_forward[:1]))
    bounds = [(begin, end) for begin, end in itertools.pairwise([*begins.tolist(), len(stack)]) if is_forward[begin]]
    for begin, end in bounds:
        passes.count(stack[begin:end])
    code = stack.copy()
    for begin, end in bounds:
        code[begin:end] = passes.codes(stack[begin:end])
    return pl.Series("module", passes.names, pl.String).gather(code)


class _Loop(Struct, frozen=True):
    """A loop by the chain of lines around it and those in it. is_led: whether something runs before it."""

    place: tuple[int, ...]
    body: tuple[int, ...]
    is_led: bool


_Numbers = list[dict[int, tuple[int, _Loop]]]
"""Of each allocation, by depth: the number of the call, and the loop that makes it."""


class _ForwardLines(Struct, frozen=True, eq=False):
    """chains: per stack the rows of ``frames`` of its forward calls, outermost first, and how many of these are around
    those that show. places: "dit:249" per row; files: "" for modules of PyTorch.
    """

    chains: list[tuple[list[int], int]]
    places: list[str]
    files: list[str]

    def path(self, stack: int, numbers: dict[int, int]) -> str:
        """The path of a stack, with numbers by depth. Those around only show if a number follows."""
        chain, around = self.chains[stack]
        first = min([around, *numbers])
        return ".".join(
            self.places[row] + (f".{numbers[depth]}" if depth in numbers else "")
            for depth, row in enumerate(chain[first:], first)
        )


@memoize
def _forward_lines(recording: Recording) -> _ForwardLines:
    file = files_of(recording)
    name = file.str.extract(r"([^/]*?)(?:\.\w+)?$").str.replace_all(".", "_", literal=True)
    return _ForwardLines(
        module_paths(recording).chains(),
        pl.select(pl.format("{}:{}", name, recording.frames["line"])).to_series().to_list(),
        file.set(file.str.contains(_LIBRARY), "").to_list(),
    )


class _Passes:
    """Reads uninterrupted sequences of allocations in forward calls; equal ones once."""

    def __init__(self, lines: _ForwardLines) -> None:
        self._lines = lines
        self.names = [
            lines.path(stack, {}) if len(chain) > around else None for stack, (chain, around) in enumerate(lines.chains)
        ]
        """By code: those without numbers by stack, then all others."""
        self._code: dict[str, int] = {}
        self._numbers: dict[bytes, _Numbers] = {}
        self._known: dict[bytes, list[int]] = {}
        self._led: set[_Loop] = set()

    def count(self, stacks: np.ndarray) -> None:
        key = stacks.tobytes()
        if key not in self._numbers:
            self._numbers[key] = [{} for _ in stacks]
            chains = [self._lines.chains[stack][0] for stack in stacks.tolist()]
            self._calls(chains, range(len(stacks)), 0, self._numbers[key], False)

    def codes(self, stacks: np.ndarray) -> list[int]:
        """Only after all were counted: a sequence may begin in the midst of a loop that elsewhere has lines before."""
        key = stacks.tobytes()
        if key not in self._known:
            self._known[key] = [
                self._code_of(stack, found) for stack, found in zip(stacks.tolist(), self._numbers[key], strict=True)
            ]
        return self._known[key]

    def _code_of(self, stack: int, found: dict[int, tuple[int, _Loop]]) -> int:
        sure = {depth: number for depth, (number, loop) in found.items() if loop not in self._led}
        if not sure:
            return stack
        name = self._lines.path(stack, sure)
        if name not in self._code:
            self._code[name] = len(self.names)
            self.names.append(name)
        return self._code[name]

    def _calls(self, chains: list[list[int]], rows: range, depth: int, numbers: _Numbers, is_led: bool) -> None:
        """Numbers what calls of one line, or of the program, made: ``rows``, whose chains begin alike."""
        runs = [
            (line, range(same[0], same[-1] + 1))
            for line, group in itertools.groupby(
                rows, lambda row: chains[row][depth] if depth < len(chains[row]) else _NO_CALL
            )
            for same in [[*group]]
        ]
        lines = [line for line, _ in runs]
        unit = _period(lines)
        if unit == len(lines):
            self._call(chains, runs, depth, numbers, is_led)
        elif not depth:  # the program calls the model again and again
            for at in range(0, len(runs), unit):
                self._call(chains, runs[at : at + unit], depth, numbers, False)
        elif self._is_body(lines[:unit], len(lines) // unit) and _is_whole(chains, runs, unit):
            loop = self._loop(chains[rows[0]][:depth], lines[:unit], is_led)
            for number, at in enumerate(range(0, len(runs), unit)):
                self._number(runs[at : at + unit], depth - 1, number, loop, numbers)
                self._call(chains, runs[at : at + unit], depth, numbers, is_led)

    def _call(
        self, chains: list[list[int]], runs: list[tuple[int, range]], depth: int, numbers: _Numbers, is_led: bool
    ) -> None:
        """The same of one call, which ran these lines."""
        if depth >= _MOST_DEPTH:
            return
        lines = [line for line, _ in runs]
        times = Counter(lines)
        at = 0
        while at < len(runs):
            unit, end = _repeated(lines, at) if times[lines[at]] > 1 else (1, at + 1)
            body, is_led = lines[at : at + unit], is_led or at > 0
            is_alone = sum(times[line] for line in body) == end - at > unit
            if is_alone and self._is_body(body) and _is_whole(chains, runs[at:end], unit):
                loop = self._loop(chains[runs[at][1][0]][:depth], body, is_led)
                for place in range(at, end):
                    self._number(runs[place : place + 1], depth, (place - at) // unit, loop, numbers)
            for line, rows in runs[at:end]:
                if line != _NO_CALL and (times[line] == 1 or depth in numbers[rows[0]]):
                    self._calls(chains, rows, depth + 1, numbers, is_led)
            at = end

    def _is_body(self, body: list[int], iterations: int = 0) -> bool:
        """Whether lines that run again and again are those of one forward. Lines of PyTorch's own modules do not count:
        a container calls different modules by one line.
        """
        if _NO_CALL in body:
            return len(body) == 2 and iterations >= _FEWEST_ITERATIONS
        files = {self._lines.files[line] for line in body}
        return len(body) > 1 and len(files) == 1 and "" not in files

    def _loop(self, around: list[int], body: list[int], is_led: bool) -> _Loop:
        if is_led:
            self._led.add(_Loop(tuple(around), tuple(body), False))
        return _Loop(tuple(around), tuple(body), is_led)

    def _number(self, runs: list[tuple[int, range]], depth: int, number: int, loop: _Loop, numbers: _Numbers) -> None:
        for _, rows in runs:
            for row in rows:
                numbers[row][depth] = number, loop


def _is_whole(chains: list[list[int]], runs: list[tuple[int, range]], unit: int) -> bool:
    """Whether the last iteration is complete, or cut off by the end of the sequence."""
    return len(runs) % unit == 0 or runs[-1][1][-1] == len(chains) - 1


def _period(lines: list[int]) -> int:
    """The length of the shortest beginning that all ``lines`` repeat, twice at least, the last time perhaps in part;
    that of all of them if there is none.
    """
    for unit in range(1, len(lines) // 2 + 1):
        if lines[unit] == lines[0] and lines[unit:] == lines[:-unit]:
            return unit
    return len(lines)


def _repeated(lines: list[int], at: int) -> tuple[int, int]:
    """The distance to the next line equal to that at ``at``, and the end of what repeats at this distance."""
    later = lines[at + 1 :]
    unit = later.index(lines[at]) + 1 if lines[at] in later else 1
    end = at + unit
    while end < len(lines) and lines[end] == lines[end - unit]:
        end += 1
    return unit, end
