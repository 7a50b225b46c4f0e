"""What the flame view must show, from the oracle's allocations alone: every prefix of every path, summed one by one."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import Any

import oracle
import polars as pl

from snapreport.reading.noise import NOISE, frame_flags

Key = tuple[Any, ...]
Path = tuple[Key, ...]


@dataclass
class Node:
    """What is at one path or below it. ``own``: what ends there."""

    value: float = 0
    loss: float = 0
    count: int = 0
    own: float = 0


@cache
def is_noise(frame: tuple[str, int, str]) -> bool:
    """The rules themselves are tested in test_noise."""
    table = pl.DataFrame([frame], schema={"filename": pl.String, "line": pl.Int64, "name": pl.String}, orient="row")
    return bool(frame_flags(table)[0] & NOISE)


def path_of(stack: oracle.Frames, root: str, merge: str, noise: bool) -> Path:
    """The keys of a stack from the root of the tree; a stack of noise alone keeps its innermost frame."""
    frames = [f for f in stack if noise or not is_noise(f)] or list(stack[:1])
    if root == "root":
        frames.reverse()
    return tuple((name, file) if merge == "function" else (name, file, line) for file, line, name in frames)


def amount(device: oracle.Device, a: oracle.Allocation, measure: str) -> float:
    """The weight of one live allocation, except in byte-seconds."""
    if measure in ("count", "allocations"):
        return 1
    first, last = max(0, a.alloc_event), a.free_event
    if measure == "events":
        return a.size * ((len(device.events) if last == -1 else last) - first)
    return a.size


def tree(
    device: oracle.Device,
    measure: str,
    position: int,
    since: int = -1,
    root: str = "root",
    merge: str = "function",
    noise: bool = False,
) -> dict[Path, Node]:
    """Every node by its path, the whole tree at ``()``. ``position``, ``since``: as in the design, -1 before the first
    event.
    """
    sums: dict[oracle.Frames, list[float]] = defaultdict(lambda: [0, 0])
    clocked = Clocked(device) if measure == "seconds" else None
    for a in device.allocations:
        if measure in ("allocated", "allocations"):
            times = int(a.alloc_event >= 0)
        elif measure == "growth":
            times = a.lives_at(position) - a.lives_at(since)
        else:
            times = int(a.lives_at(position))
        sums[a.stack][0] += times * (clocked.amount(a) if clocked else amount(device, a, measure))
        sums[a.stack][1] += times
    nodes: dict[Path, Node] = defaultdict(Node)
    for stack, (value, count) in sums.items():
        if value == 0 and count == 0:
            continue
        path = path_of(stack, root, merge, noise)
        for depth in range(len(path) + 1):
            node = nodes[path[:depth]]
            node.value += max(0, value)
            node.loss += max(0, -value)
            node.count += count
        nodes[path].own += abs(value)
    return nodes


class Clocked:
    """Byte-seconds, with the clock computed once."""

    def __init__(self, device: oracle.Device) -> None:
        self.clock = list(accumulate((e["time_us"] for e in device.events), max))

    def amount(self, a: oracle.Allocation) -> float:
        return a.size * (self.clock[a.free_event] - self.clock[max(0, a.alloc_event)]) / 1e6


def folded(device: oracle.Device, position: int, merge: str = "function", noise: bool = False) -> dict[str, int]:
    """Live bytes by folded stack."""
    lines: dict[str, int] = defaultdict(int)
    for a in device.allocations:
        if a.lives_at(position):
            path = path_of(a.stack, "root", merge, noise)
            lines[";".join(folded_name(*key) for key in path) or "[no stack trace]"] += a.size
    return {text: size for text, size in lines.items() if size > 0}


def folded_name(name: str, file: str, line: int = 0) -> str:
    place = "" if file in ("", "??") else f" ({file}:{line})" if line > 0 else f" ({file})"
    return f"{name or '?'}{place}".replace(";", ",").replace("\n", " ")
