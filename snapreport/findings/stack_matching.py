"""Which stacks of two recordings are the same code, though its lines have moved.

Two stacks are of one *shape* when their frames name the same functions of the same files, innermost to outermost,
runtime noise left out (interpreters and dispatchers change between versions without the program changing). Where a
shape has one stack on each side they are the same. Where it has several, they are paired in the order of their lines,
which an edit elsewhere in the file leaves as it is, so that the lines of all pairs together differ least.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import polars as pl
from msgspec import Struct, field

from snapreport.findings.renamed_files import LEAST_SHARE, renamed_files
from snapreport.reading.noise import NOISE, recorded_flags
from snapreport.reading.recording import Recording

# A file below one of these is the same library wherever it is installed.
_INSTALLED = re.compile(
    r"(?:^|/)(?:site-packages|dist-packages|lib/python3[^/]*)/(?!.*(?:site-packages|dist-packages)/)(.*)$"
)


class Matching(Struct, frozen=True):
    """``before``, ``after``: Int64, the number of the common identity of each stack of either recording.

    Identities are 0 … ``count`` - 1; those below ``both`` occur on both sides. Stack 0, the empty one, is identity 0.
    ``renamed``: files of the program that were moved or renamed, names before → after.
    """

    before: np.ndarray
    after: np.ndarray
    both: int
    count: int
    renamed: dict[str, str] = field(default_factory=dict)


def stack_matching(before: Recording, after: Recording) -> Matching:
    """Match the stacks of two recordings one to one."""
    first, second, renamed = _common_shapes(before, after)
    pairs: list[tuple[int, int]] = []
    groups: defaultdict[bytes, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for side, shapes in enumerate((first, second)):
        for stack, key in enumerate(shapes.keys):
            groups[key][side].append(stack)
    for ours, theirs in groups.values():
        if ours and theirs:
            pairs += _nearest(ours, theirs, first, second)
    pairs.sort()
    identity = [np.full(len(shapes.keys), -1, np.int64) for shapes in (first, second)]
    for side in (0, 1):
        identity[side][[pair[side] for pair in pairs]] = np.arange(len(pairs))
    count = len(pairs)
    for numbers in identity:
        alone = np.flatnonzero(numbers < 0)
        numbers[alone] = count + np.arange(len(alone))
        count += len(alone)
    return Matching(identity[0], identity[1], len(pairs), count, renamed)


def _common_shapes(before: Recording, after: Recording) -> tuple[_Shapes, _Shapes, dict[str, str]]:
    """The numbered shapes of both sides, and the files that were renamed: those through which at least half of the
    stacks are then of a shape that the other side has.
    """
    names, own = _file_names(before, after)
    frames = (before.frames, after.frames)
    pairs = [
        [(file, function) for file, function in zip(files, table["name"].to_list(), strict=True) if file in mine]
        for files, table, mine in zip(names, frames, own, strict=True)
    ]
    renamed = renamed_files(*pairs)
    while True:
        first = _shapes(before, names[0].replace(renamed) if renamed else names[0])
        second = _shapes(after, names[1])
        _number(first, second)
        wrong = [old for old in renamed if not _is_same_code(first, second, (names[0] == old).to_numpy())]
        if not wrong:
            return first, second, renamed
        renamed = {old: new for old, new in renamed.items() if old not in wrong}


def _is_same_code(first: _Shapes, second: _Shapes, frames: np.ndarray) -> bool:
    """Whether half of the first side's stacks with one of the ``frames`` (Boolean by frame) have a shape of the
    second's.
    """
    inside = np.concatenate(([0], np.cumsum(frames[first.flat])))
    stacks = np.flatnonzero(np.diff(inside[first.offsets]))
    known = set(second.keys)
    return sum(first.keys[stack] in known for stack in stacks.tolist()) >= LEAST_SHARE * max(len(stacks), 1)


class _Shapes(Struct):
    """A recording's stacks without noise. ``flat``: function of each frame (until numbered: row of ``functions``)."""

    functions: pl.DataFrame
    flat: np.ndarray
    lines: np.ndarray
    offsets: np.ndarray
    keys: list[bytes]

    def lines_of(self, stack: int) -> np.ndarray:
        return self.lines[self.offsets[stack] : self.offsets[stack + 1]]


def _shapes(recording: Recording, files: pl.Series) -> _Shapes:
    frames = recording.frames
    keep = (recorded_flags(recording) & NOISE == 0)[recording.stack_frames]
    flat = recording.stack_frames[keep]
    offsets = np.concatenate(([0], np.cumsum(keep)))[recording.stack_offsets]
    lines = frames["line"].to_numpy()[flat]
    return _Shapes(pl.DataFrame({"file": files, "name": frames["name"]}), flat, lines, offsets, [])


def _number(first: _Shapes, second: _Shapes) -> None:
    """Give functions (file and name) common numbers and every stack its key."""
    both = pl.concat([first.functions, second.functions])
    number = both.select(n=pl.struct("file", "name").rank("dense")).to_series().to_numpy().astype(np.int32)
    cut = len(first.functions)
    for shapes, numbers in ((first, number[:cut]), (second, number[cut:])):
        flat = numbers[shapes.flat]
        ends = shapes.offsets.tolist()
        shapes.keys = [flat[a:b].tobytes() for a, b in pairwise(ends)]


def _nearest(ours: list[int], theirs: list[int], first: _Shapes, second: _Shapes) -> list[tuple[int, int]]:
    """Pair stacks of one shape, as many as the smaller side has."""
    if len(ours) == len(theirs) == 1:
        return [(ours[0], theirs[0])]
    swap = len(ours) > len(theirs)
    few, many = (theirs, ours) if swap else (ours, theirs)
    few_lines, many_lines = (second, first) if swap else (first, second)
    rows, columns = (
        sorted(stacks, key=lambda stack: shapes.lines_of(stack).tolist())
        for stacks, shapes in ((few, few_lines), (many, many_lines))
    )
    picked = _in_order(
        np.stack([few_lines.lines_of(stack) for stack in rows]),
        np.stack([many_lines.lines_of(stack) for stack in columns]),
    )
    pairs = [(row, columns[column]) for row, column in zip(rows, picked, strict=True)]
    return [(b, a) for a, b in pairs] if swap else pairs


def _in_order(rows: np.ndarray, columns: np.ndarray) -> list[int]:
    """A column for each row, ascending, so that the sum of the differences is least. ``rows`` are no more than
    ``columns``.
    """
    if len(rows) == len(columns):
        return list(range(len(rows)))
    # least[j]: the least sum for the rows so far with the last of them at a column up to j.
    least = np.zeros(len(columns))
    is_best = np.zeros((len(rows), len(columns)), bool)
    for number, row in enumerate(rows):
        before = np.concatenate(([np.inf], least[:-1])) if number else least
        here = before + np.abs(columns - row).sum(axis=1)
        least = np.minimum.accumulate(here)
        is_best[number] = here == least
    picked, end = [], len(columns)
    for number in range(len(rows) - 1, -1, -1):
        end = int(np.flatnonzero(is_best[number, :end])[-1])
        picked.append(end)
    return picked[::-1]


def _file_names(before: Recording, after: Recording) -> tuple[list[pl.Series], list[set[str]]]:
    """The files of both recordings' frames under names that do not depend on where a library or a checkout lies, and
    the program's own among them.
    """
    sides = [[installed_name(name) for name in recording.frames["filename"].to_list()] for recording in (before, after)]
    own = [{name for name in names if _is_own(name)} for names in sides]
    # Recorded in one place, the paths say it themselves. Else what all of a side's own files have in common goes.
    if not own[0] & own[1]:
        roots = [_common_folder(sorted(names)) for names in own]
        sides = [[_relative_to(name, root) for name in names] for names, root in zip(sides, roots, strict=True)]
        own = [{_relative_to(name, root) for name in names} for names, root in zip(own, roots, strict=True)]
    return [pl.Series("file", names, dtype=pl.String) for names in sides], own


def installed_name(name: str) -> str:
    """A file's path below the folder that packages are installed in; other paths as they are, with slashes."""
    name = name.replace("\\", "/")
    found = _INSTALLED.search(name)
    return found[1] if found else name


def _is_own(name: str) -> bool:
    """An absolute path of the program's own Python."""
    return name.endswith(".py") and (name.startswith("/") or name[1:3] == ":/")


def _common_folder(names: Sequence[str]) -> str:
    folders = [name.rpartition("/")[0] for name in names]
    # Character by character, and the last slash cuts back to whole folders: commonpath would refuse C:/ beside /.
    common = os.path.commonprefix([f"{folder}/" for folder in folders])  # noqa: RUF071
    return common.rpartition("/")[0]


def _relative_to(name: str, root: str) -> str:
    return name.removeprefix(f"{root}/") if root and _is_own(name) else name
