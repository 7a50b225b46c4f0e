"""``forward_frames``: the forward-pass stack trace of the operator whose backward pass allocates.

Recorded in anomaly mode, in the text form of Python tracebacks (``  File "x.py", line 3, in f``), outermost first.
"""

from __future__ import annotations

import re
from typing import Any

from snapreport.reading.fields import Where, bad

_LINE = re.compile(r'\s*File "(.*)", line (\d{1,9}), in (.*)')


class ForwardFrames:
    """Turns such texts into lists of frame dicts, innermost first, one list for equal texts."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, ...], list[dict[str, Any]]] = {}

    def lists(self, values: list[Any], where: Where) -> list[Any]:
        """Values as ``StackInterner.add`` takes them; None and lists of frame dicts are unchanged."""
        return [self._one(value, where, row) if value else None for row, value in enumerate(values)]

    def _one(self, value: Any, where: Where, row: int) -> list[Any]:
        if type(value) not in (list, tuple):
            raise bad(where(row), "forward_frames", value, "a list")
        if type(value[0]) is not str:
            return list(value)
        for item in value:
            if type(item) is not str:
                raise bad(where(row), "forward_frames", item, "a text as the others")
        key = tuple(value)
        if key not in self._known:
            self._known[key] = [_frame(text) for text in reversed(key)]
        return self._known[key]


def _frame(text: str) -> dict[str, Any]:
    found = _LINE.match(text)
    if not found:
        return {"filename": "", "line": 0, "name": text.strip()}
    return {"filename": found[1], "line": int(found[2]), "name": found[3].strip()}
