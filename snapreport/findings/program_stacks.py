"""Which stacks and frames of a recording match; what does not depend on the device is found once for all."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import polars as pl

from snapreport.memoize import memoize
from snapreport.reading.noise import NOISE, PYTHON, recorded_flags
from snapreport.reading.recording import Recording
from snapreport.reading.stack_marks import frames_at, innermost_places, stacks_with
from snapreport.timeline.frame_search import files_of
from snapreport.timeline.own_code import own_code, python_calls
from snapreport.timeline.phases import BACKWARD, FORWARD, StackPhases, stack_phases
from snapreport.timeline.threads import beside_passes

Result = TypeVar("Result")

_OPERATOR = r"(^|/)torch/_tensor\.py (wrapped|__r?[a-z]+__)$"
"""What PyTorch runs for ``x ** 2`` and ``1 - x``: the line that has the operator made the result."""


@memoize
def _of_stacks(recording: Recording) -> dict[Hashable, Any]:
    return {}


class ProgramStacks:
    """The stacks of one recording."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording

    def remember_of_stacks(self, key: Hashable, compute: Callable[[], Result]) -> Result:
        """What ``compute`` returned the first time, for whatever device: callers must not change it."""
        known = _of_stacks(self.recording)
        if key not in known:
            known[key] = compute()
        result: Result = known[key]
        return result

    def frames(self, pattern: str) -> np.ndarray:
        """Bool per stack: whether the text "file function" of one of its frames matches."""
        return self.remember_of_stacks(("frames", pattern), lambda: self._stacks(self._texts, pattern))

    @cached_property
    def may_be_backward(self) -> np.ndarray:
        """Bool per stack: of a backward pass, or without frames, as those of the autograd engine's threads."""
        found = self.phases.runs(BACKWARD)
        found[0] = True
        return found

    @cached_property
    def in_no_pass(self) -> np.ndarray:
        """Bool per stack: with frames, and of neither a forward nor a backward pass."""
        found = ~np.isin(self.phases.innermost, (FORWARD, BACKWARD))
        found[0] = False
        return found

    @property
    def beside_passes(self) -> np.ndarray:
        """Bool per stack: of a thread beside the program's forward passes."""
        return beside_passes(self.recording)

    def functions(self, pattern: str) -> np.ndarray:
        """Bool per stack: whether the function name of one of its frames matches."""
        return self.remember_of_stacks(
            ("functions", pattern), lambda: self._stacks(self.recording.frames["name"], pattern)
        )

    def _stacks(self, texts: pl.Series, pattern: str) -> np.ndarray:
        recording = self.recording
        hit = texts.str.contains(pattern).to_numpy()
        if not hit.any():  # most programs have few of the patterns
            return np.zeros(len(recording.stack_offsets) - 1, bool)
        return stacks_with(recording, hit)

    @property
    def _texts(self) -> pl.Series:
        """String per frame: "file function"."""
        text = pl.concat_str([pl.lit(files_of(self.recording)), "name"], separator=" ")
        return self.remember_of_stacks("texts of frames", lambda: self.recording.frames.select(t=text)["t"])

    def texts_contain(self, pattern: str) -> np.ndarray:
        """Bool per frame: whether its text "file function" matches."""
        return self.remember_of_stacks(("texts", pattern), lambda: self._texts.str.contains(pattern).to_numpy())

    def innermost(self, skip: str = r"(?!)") -> np.ndarray:
        """Int64 per stack: its innermost Python frame that is not runtime noise and whose text does not match ``skip``.

        -1 where there is none.
        """
        return self.remember_of_stacks(("innermost", skip), lambda: self._innermost(skip))

    def _innermost(self, skip: str) -> np.ndarray:
        recording = self.recording
        flags = recorded_flags(recording)
        wanted = (flags & PYTHON > 0) & (flags & NOISE == 0) & ~self.texts_contain(_OPERATOR)
        if skip != r"(?!)":
            wanted &= ~self._texts.str.contains(skip).to_numpy()
        return frames_at(recording, innermost_places(recording, wanted))

    @cached_property
    def function_of_frame(self) -> np.ndarray:
        """Int64 per frame: a number for its file and function, whatever its line; the last is for frame -1."""
        return self.remember_of_stacks(
            "functions of frames", lambda: np.append(self._texts.rank("dense").to_numpy().astype(np.int64), 0)
        )

    @property
    def frames_called(self) -> np.ndarray:
        """Bool per frame: the call of a module, within which its ``forward`` runs."""
        return self.texts_contain(r" (_call_impl|_wrapped_call_impl|_slow_forward)$")

    @cached_property
    def own_frames(self) -> np.ndarray:
        """Bool per frame: the program's own Python code; False, the last, for frame -1."""
        return np.append(own_code(self.recording), False)

    @cached_property
    def by_program(self) -> np.ndarray:
        """Bool per stack: its innermost frame is the program's own."""
        return np.asarray(self.own_frames[self.innermost()])

    @cached_property
    def frames_outside_of_torch(self) -> np.ndarray:
        """Bool per frame: the program's own, or of a library other than PyTorch; False, the last, for frame -1."""
        return np.append(~self.texts_contain(r"(^|/)torch/"), False)

    @cached_property
    def outside_of_torch(self) -> np.ndarray:
        """Bool per stack: so is its innermost frame."""
        return np.asarray(self.frames_outside_of_torch[self.innermost()])

    @cached_property
    def function(self) -> np.ndarray:
        """Int64 per stack: the function of its innermost frame."""
        return np.asarray(self.function_of_frame[self.innermost()])

    @cached_property
    def phases(self) -> StackPhases:
        return stack_phases(self.recording)

    @cached_property
    def calls(self) -> np.ndarray:
        """Int64 per stack, of its Python frames; with C++ frames each operator of a line has a stack of its own."""
        return python_calls(self.recording)

    @cached_property
    def without_python(self) -> np.ndarray:
        """Bool per stack: the empty one, and those of C++ alone, as threads of autograd have."""
        return np.asarray(self.calls == self.calls[0])
