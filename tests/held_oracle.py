"""What memory is for and where it comes from: category, function, line and module path of an allocation, and their
sums.

Computed from the oracle's replay with plain loops over single frames. Categories are the product's own, which
test_categories and test_category_truth verify; which frames are Python's and which are noise comes from the reader, and
is tested in test_noise.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable
from functools import cache
from itertools import pairwise
from typing import Any

import oracle
import table_oracle

from snapreport.reading.noise import PYTHON

CALLS = ("_call_impl", "_wrapped_call_impl", "_slow_forward", "__call__", "inner")
NO_FRAMES = "allocations without a stack trace"
Row = dict[str, Any]


def slashed(path: str) -> str:
    return path.replace("\\", "/")


def category(a: oracle.Allocation) -> str:
    return a.category


@cache
def function(stack: oracle.Frames) -> str:
    frame = table_oracle.top(stack)
    if frame is None:
        return ""
    if table_oracle.FLAGS[frame] & PYTHON:
        return f"{frame[2]} {slashed(frame[0]).split('/')[-1]}"
    plain = re.split(r"[(<]", frame[2].replace("(anonymous namespace)::", ""))[0].split(" ")[-1]
    return plain or frame[2]


@cache
def place(stack: oracle.Frames) -> str:
    frame = table_oracle.top(stack)
    if frame is None:
        return NO_FRAMES
    return f"{function(stack)}:{frame[1]}" if table_oracle.FLAGS[frame] & PYTHON and frame[1] > 0 else function(stack)


@cache
def module_path(stack: oracle.Frames) -> str:
    """Among Python's frames, every forward that nn.Module's own machinery called, outermost first; "" where there is
    none.
    """
    table_oracle.learn(set(stack))
    python = [f for f in stack if table_oracle.FLAGS[f] & PYTHON]
    path = []
    for frame, caller in pairwise(python):
        if frame[2] == "forward" and slashed(caller[0]).endswith("torch/nn/modules/module.py") and caller[2] in CALLS:
            path.append(f"{slashed(frame[0]).split('/')[-1]}:{frame[1]}")
    return " › ".join(reversed(path))


def has_modules(live: Iterable[oracle.Allocation]) -> bool:
    """Whether the recorder noted the modules of activations, not only those of parameters."""
    return any(a.module and a.category == "activation" for a in live)


def module_of(live: Iterable[oracle.Allocation]) -> Callable[[oracle.Allocation], str]:
    """The name of an allocation's module: the recorder's, or the module path."""
    return (lambda a: a.module) if has_modules(live) else (lambda a: module_path(a.stack))


def sums(allocations: Iterable[oracle.Allocation], key: Any) -> dict[Hashable, Row]:
    """``bytes`` and ``count`` by the value of ``key`` for an allocation."""
    found: dict[Hashable, Row] = {}
    for a in allocations:
        row = found.setdefault(key(a), {"bytes": 0, "count": 0})
        row["bytes"] += a.size
        row["count"] += 1
    return found


def rows(allocations: Iterable[oracle.Allocation], name: str, key: Any) -> list[Row]:
    """All sums as the findings have them, most bytes first; ``name``: what the key is called there."""
    return sorted(({name: k, **row} for k, row in sums(allocations, key).items()), key=lambda row: -row["bytes"])


def by_category(live: list[oracle.Allocation]) -> list[Row]:
    return rows(live, "category", category)


def by_stack(live: list[oracle.Allocation]) -> list[Row]:
    """With the category of most of each stack's bytes, and these bytes."""
    parts = sums(live, lambda a: (a.stack, category(a)))
    most: dict[oracle.Frames, tuple[int, str]] = {}
    for (stack, what), row in sorted(parts.items(), key=lambda part: part[0][1]):  # equal ones by name
        if row["bytes"] > most.get(stack, (-1, ""))[0]:
            most[stack] = row["bytes"], what
    found = rows(live, "stack", lambda a: a.stack)
    return [
        {
            **row,
            "function": function(row["stack"]) or NO_FRAMES,
            "category": most[row["stack"]][1],
            "category_bytes": most[row["stack"]][0],
        }
        for row in found
    ]


def live_at(device: oracle.Device, position: int) -> list[oracle.Allocation]:
    return [device.allocations[i] for i in device.live_at(position)]
