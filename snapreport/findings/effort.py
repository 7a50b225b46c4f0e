"""Where a remedy applies, and what a person does first: advice is ranked by that before bytes."""

from __future__ import annotations

import numpy as np

from snapreport.findings.advice_context import ONE_LINE, Advice, AdviceContext

MUCH = 0.05
"""Of the peak: a change of one line that saves less does not come before others that save more."""
_LIBRARY = r"(^|/)(torch|torchinductor_[^/]*|site-packages|dist-packages|lib/python[\d.]+)/"


def place_of(context: AdviceContext, mask: np.ndarray | None) -> str | None:
    """``file.py:12``: the line of the program that allocates most of these bytes; None where none is recorded."""
    if mask is None:
        return None
    rows = np.flatnonzero(mask & context.at_peak & (context.stack > 0))
    frames = context.remember("lines of the program", lambda: context.innermost(_LIBRARY))[context.stack[rows]]
    rows, frames = rows[frames >= 0], frames[frames >= 0]
    if not len(rows):
        return None
    bytes_of = np.zeros(int(frames.max()) + 1, np.int64)
    np.add.at(bytes_of, frames, context.size[rows])
    frame = context.snapshot.recording.frames.row(int(np.argmax(bytes_of)), named=True)
    return f"{frame['filename']}:{frame['line']}" if frame["line"] > 0 else None


def priority_of(advice: Advice, saves_bytes: int, peak_bytes: int) -> int:
    """0 for a change of one line that the recording shows and that saves much, 2 for an estimate, 1 for others."""
    if advice.confidence == "estimate":
        return 2
    return 0 if advice.effort == ONE_LINE and saves_bytes >= MUCH * peak_bytes else 1
