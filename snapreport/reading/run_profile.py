"""The ``torch.profiler`` trace of the run that a snapshot shows: given, or written beside it by our recorder."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import polars as pl
from msgspec import structs

from snapreport.errors import SnapshotError
from snapreport.reading.activity_trace import ActivityTrace
from snapreport.reading.clock_alignment import Alignment, align
from snapreport.reading.paths import PROFILE_NAME, is_remote
from snapreport.reading.recorder_metadata import RecorderMetadata

Result = TypeVar("Result")


class RunProfile:
    """A trace, which is read when something first needs it. ``events``: of the snapshot's devices. ``hide``: redacts
    its names.
    """

    def __init__(
        self, path: str, events: Sequence[pl.DataFrame] = (), hide: Callable[[str], str] | None = None
    ) -> None:
        self.path, self._events, self._hide = path, events, hide
        self.alignment = Alignment()
        self.problem = ""
        self._results: dict[Hashable, Any] = {}

    def redacted(self, hide: Callable[[str], str]) -> RunProfile:
        return RunProfile(self.path, self._events, hide)

    @cached_property
    def activities(self) -> ActivityTrace | None:
        """On the snapshot's clock. None for a file that cannot be read; ``problem`` then says why."""
        from snapreport.reading.open import load_activities

        try:
            trace = load_activities(self.path)
        except SnapshotError as error:
            self.problem = str(error)
            return None
        self.alignment = align(self._events, trace.allocations)
        trace = trace.moved(self.alignment.shift_ns)
        if not self._hide:
            return trace
        shown = {name: self._hide(name) for name in trace.intervals["name"].unique().to_list()}
        hidden = trace.intervals.with_columns(name=pl.col("name").replace(shown))
        return structs.replace(trace, name=self._hide(trace.name), intervals=hidden)

    def remember(self, key: Hashable, compute: Callable[[ActivityTrace], Result]) -> Result | None:
        """``compute`` of the activities, once for each key; None without them. One that raises :class:`SnapshotError`
        is a trace of another run, and becomes the ``problem``.
        """
        if key not in self._results and self.activities is not None and not self.problem:
            try:
                self._results[key] = compute(self.activities)
            except SnapshotError as error:
                self.problem = str(error)
        return self._results.get(key)


def profile_beside(path: str, recorder: RecorderMetadata | None, events: Sequence[pl.DataFrame]) -> RunProfile | None:
    """The trace that the recorder names, if it is in the folder of the snapshot at ``path``, whose devices' ``events``
    are given.
    """
    if recorder is None or not PROFILE_NAME.fullmatch(recorder.profile) or path == "-" or is_remote(path):
        return None
    beside = Path(path).with_name(recorder.profile)
    return RunProfile(str(beside), events) if beside.is_file() else None
