"""Stack traces as a tree in a terminal: outermost frames first, chains without a branch together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec import Struct, field

from snapreport.number_format import plural
from snapreport.reading.noise import NOISE, PYTHON, recorded_flags
from snapreport.reading.recording import Recording
from snapreport.timeline.operators import stack_labels
from snapreport.timeline.own_code import frame_lines, own_code

MIN_SHARE = 0.01
"""Calls below this share of the tree's weight are counted together."""
NO_STACK = "no stack trace"
Call = tuple[str, bool]
"""``forward dit.py:83``, and whether it is the program's own code."""


class CallNode(Struct):
    """A call, with ``values`` summed over all stacks through it; ``weight`` orders and limits what is shown."""

    call: Call
    values: list[int]
    weight: int = 0
    below: dict[Call, CallNode] = field(default_factory=dict)

    def add(self, values: Sequence[int], weight: int) -> None:
        self.weight += weight
        self.values = [a + b for a, b in zip(self.values, values, strict=True)]


class Chains:
    """The calls of a recording's stacks, outermost first: Python's, else what names the stack."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._flags, self._own = recorded_flags(recording), own_code(recording)
        self._lines, self._labels = frame_lines(recording).to_list(), stack_labels(recording)

    def of(self, stack: int) -> list[Call]:
        frames = [
            (self._lines[i], bool(self._own[i]))
            for i in reversed(self._recording.stack(stack))
            if self._flags[i] & PYTHON and not self._flags[i] & NOISE
        ]
        return frames or [(self._labels[stack] or NO_STACK, True)]


def call_tree(title: str, stacks: Iterable[tuple[list[Call], Sequence[int], int]]) -> CallNode:
    """The tree of (chain, values, weight) of each stack."""
    root: CallNode | None = None
    for chain, values, weight in stacks:
        node = root = root or CallNode((title, True), [0] * len(values))
        node.add(values, weight)
        for call in chain:
            node = node.below.setdefault(call, CallNode(call, [0] * len(values)))
            node.add(values, weight)
    return root or CallNode((title, True), [])


def tree_lines(root: CallNode, cells: Callable[[list[int]], str]) -> list[str]:
    """A line per call, ``cells`` of its values before it. Calls that all of a call's weight passes through follow it
    without numbers; those of libraries among them are counted.
    """
    blank = " " * len(cells(root.values))
    lines = []
    waiting: list[tuple[CallNode, int]] = [(root, 0)]
    while waiting:
        node, depth = waiting.pop()
        indent = "  " * depth
        undivided = list(_undivided_calls(node))
        first, *others = _chain([one.call for one in undivided])
        lines.append(f"{cells(node.values)}  {indent}{first}")
        lines += [f"{blank}  {indent}{text}" for text in others]
        below = sorted(undivided[-1].below.values(), key=lambda child: -child.weight)
        shown = [child for child in below if child.weight >= max(1, MIN_SHARE * root.weight)]
        rest = below[len(shown) :]
        if rest and shown:
            together = CallNode((plural(len(rest), "smaller call"), True), [0] * len(root.values))
            for child in rest:
                together.add(child.values, child.weight)
            shown += [together] * (together.weight > 0)
        waiting += [(child, depth + 1) for child in reversed(shown)]
    return lines


def _undivided_calls(node: CallNode) -> Iterator[CallNode]:
    """A call, and those that all of its weight passes through."""
    yield node
    while len(node.below) == 1:
        (node,) = node.below.values()
        yield node


def _chain(calls: Sequence[Call]) -> list[str]:
    """The texts of such calls; libraries' in the middle of them are a number."""
    texts, hidden = [], 0
    for number, (text, is_own) in enumerate(calls):
        if is_own or number in (0, len(calls) - 1):
            texts.append(f"{text} (via {plural(hidden, 'library call')})" if hidden else text)
            hidden = 0
        else:
            hidden += 1
    return texts
