"""Which files of a program were moved or renamed between two recordings: other names, the same functions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

LEAST_SHARE = 0.5
"""Of the functions of two files, and of the stacks through a file, that have to be the same."""


def renamed_files(before: Iterable[tuple[str, str]], after: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Names before → after of files on one side alone that share at least half of their functions, one to one.

    ``before``, ``after``: (file, function). A file that kept its name and changed its folder is preferred.
    """
    sides: list[defaultdict[str, set[str]]] = []
    for pairs in (before, after):
        functions: defaultdict[str, set[str]] = defaultdict(set)
        for file, function in pairs:
            functions[file].add(function)
        sides.append(functions)
    ours, theirs = sides
    scored = []
    for old in ours.keys() - theirs.keys():
        for new in theirs.keys() - ours.keys():
            share = len(ours[old] & theirs[new]) / len(ours[old] | theirs[new])
            if share >= LEAST_SHARE:
                is_moved = old.rpartition("/")[2] == new.rpartition("/")[2]
                scored.append((not is_moved, -share, old, new))
    found: dict[str, str] = {}
    for _, _, old, new in sorted(scored):
        if old not in found and new not in found.values():
            found[old] = new
    return found
