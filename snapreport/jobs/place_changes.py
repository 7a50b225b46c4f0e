"""What changed between two digests, by function and file: lines move with every refactoring, functions seldom."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from snapreport.jobs.digest_model import Digest
from snapreport.jobs.stack_identity import shown_file

Place = tuple[str, str]
"""Function, and file as sentences show it."""


def bytes_by_place(digest: Digest) -> dict[Place, int]:
    """Bytes at the peak."""
    held: dict[Place, int] = defaultdict(int)
    for stack in digest.stacks:
        held[stack.function, shown_file(stack.file)] += stack.bytes
    return {place: size for place, size in held.items() if size}


def place_name(place: Place, line: int = 0) -> str:
    """``forward model/attention.py:34``, or without the line."""
    return (" ".join(filter(None, place)) or "allocations without a stack trace") + (f":{line}" if line else "")


def growth(before: Digest, after: Digest) -> list[tuple[Place, int]]:
    """Places whose bytes at the peak changed, the largest growth first."""
    old, new = followed([before, after])
    changes = [(place, new.get(place, 0) - old.get(place, 0)) for place in {**old, **new}]
    return sorted([one for one in changes if one[1]], key=lambda one: (-one[1], one[0]))


def line_of_growth(before: Digest, after: Digest, place: Place) -> int:
    """The line of a place's largest stack that has no equal in bytes and count in that function before; 0: none."""
    known = Counter((stack.bytes, stack.count) for stack in before.stacks if stack.function == place[0])
    here = [stack for stack in after.stacks if (stack.function, shown_file(stack.file)) == place]
    for stack in sorted(here, key=lambda stack: (-stack.bytes, stack.line)):
        if not known[stack.bytes, stack.count]:
            return stack.line
        known[stack.bytes, stack.count] -= 1
    return 0


def followed(digests: Sequence[Digest]) -> list[dict[Place, int]]:
    """:func:`bytes_by_place` of each, under the names of the last. A function that has only moved to another file has
    not changed: where one place of that function went and another came, they are one.
    """
    each = [bytes_by_place(digest) for digest in digests]
    for number in range(len(each) - 1, 0, -1):
        earlier, later = each[number - 1], each[number]
        for place in [place for place in later if place not in earlier]:
            gone = [other for other in earlier if other not in later and other[0] == place[0]]
            if len(gone) == 1:
                for one in each[:number]:
                    if gone[0] in one:
                        one[place] = one.get(place, 0) + one.pop(gone[0])
    return each
