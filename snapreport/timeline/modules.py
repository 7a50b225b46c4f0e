"""The chain of nn.Module calls in a stack, as far as its frames show.

A frame has the file, the line and the function's name, but not the class or the module's name. So the chain shows a
module as the current line of its ``forward``: two layers of one loop look alike, two calls in one ``forward`` do not.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from snapreport.memoize import memoize
from snapreport.reading.noise import PYTHON, recorded_flags
from snapreport.reading.recording import Recording
from snapreport.timeline.frame_search import files_of

_MACHINERY = r"torch/nn/modules/module\.py$"
_CALLS = r"^(_call_impl|_wrapped_call_impl|_slow_forward|__call__|inner)$"
ARROW = " › "


@memoize
def module_paths(recording: Recording) -> ModulePaths:
    """The module paths of a recording's stacks."""
    return ModulePaths(recording)


class ModulePaths:
    """See :func:`module_paths`."""

    def __init__(self, recording: Recording) -> None:
        frames, flat, offsets = recording.frames, recording.stack_frames, recording.stack_offsets
        file = files_of(recording)
        python = recorded_flags(recording) & PYTHON != 0
        forward = (frames["name"] == "forward").to_numpy()
        call = (file.str.contains(_MACHINERY) & frames["name"].str.contains(_CALLS)).to_numpy()
        # Among Python frames (ignoring C++ ones between them), a module's forward is called by Module's machinery.
        at = np.flatnonzero((forward & python)[flat])
        stack, row = np.searchsorted(offsets, at, "right") - 1, flat[at]
        end, caller, native = offsets[stack + 1], at.copy(), np.arange(len(at))
        while len(native):
            caller[native] += 1
            native = native[caller[native] < end[native]]
            native = native[~python[flat[caller[native]]]]
        is_module = caller < end
        is_module[is_module] = call[flat[caller[is_module]]]
        # A decorated forward is called by its decorator: it counts around those that are seen.
        outermost = np.full(len(offsets) - 1, len(flat))
        outermost[stack[is_module]] = at[is_module]  # the last assignment wins
        is_around = at > outermost[stack]
        self._around, self._row = row[is_around], row[is_module]
        self._around_offsets, self._offsets = (
            np.searchsorted(stack[these], np.arange(len(offsets))) for these in (is_around, is_module)
        )
        self._files, self._lines = file, frames["line"]

    def of(self, stacks: Sequence[int]) -> list[str]:
        """For each stack "model.py:178 › block.py:42 › linear.py:134", outermost first; "" if it shows no module."""
        return [
            ARROW.join(map(self.place, self._row[self._offsets[s] : self._offsets[s + 1]][::-1].tolist()))
            for s in stacks
        ]

    @property
    def shows(self) -> np.ndarray:
        """Bool per stack: whether :meth:`of` names any."""
        return np.diff(self._offsets) > 0

    def chains(self) -> list[tuple[list[int], int]]:
        """Per stack the rows of ``frames`` that :meth:`of` names, after those of the forwards around them, and how many
        these are, outermost first; ``([], 0)`` where it names none.
        """
        found: list[tuple[list[int], int]] = [([], 0)] * (len(self._offsets) - 1)
        for stack in np.flatnonzero(self.shows).tolist():
            around = self._around[self._around_offsets[stack] : self._around_offsets[stack + 1]][::-1].tolist()
            inside = self._row[self._offsets[stack] : self._offsets[stack + 1]][::-1].tolist()
            found[stack] = [*around, *inside], len(around)
        return found

    def place(self, row: int) -> str:
        return f"{self._files[row].rsplit('/', 1)[-1]}:{self._lines[row]}"
