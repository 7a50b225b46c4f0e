"""What a program would allocate and reserve at a value that was not recorded: aligned, fitted, replayed.

Of one recording alone, what grows with the batch is taken from categories (``batch_growth.py``): an estimate.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import polars as pl
from msgspec import Struct

from snapreport.allocator.placement import Ascending
from snapreport.allocator.replay import Replayed, replay
from snapreport.allocator.settings import AllocatorSettings, parse_settings
from snapreport.allocator.whatif import WhatIf
from snapreport.contracts.finding import Confidence
from snapreport.contracts.fit import FitPrediction, LeftOutRecording
from snapreport.findings.saving import live_mask
from snapreport.forecast.alignment import Alignment, align
from snapreport.forecast.batch_growth import batch_growth, cubic_bytes
from snapreport.forecast.convolution_workspaces import FACTORS, fit_workspaces, workspaces
from snapreport.forecast.reductions import SummedTrace
from snapreport.forecast.size_laws import ADOPTED, AT_MOST_QUADRATIC, LINEAR, UNKNOWN, SizeLaws, size_laws
from snapreport.forecast.varying_steps import varying_line
from snapreport.number_format import count_text, share_text

FAR = 1.5
"""Times the largest recorded value, and below the least, up to which a value is near: of 30 programs none took there,
and some took at twice that value, a kernel that no recording showed and that raised the peak."""
LEAST_PROVEN = 0.5
"""Of the bytes at the peak that grow: below this share of proven laws, sizes follow something else than the value."""
ROOM = 0.08
"""By which an estimate's range of reserved memory is wider than its replays. Of 504 peaks of 21 programs at other
batches on PyTorch 2.9 and 2.15, 502 are within that range (``python -m benchmarks fit``), of ten others 162 of 168."""


class PeakMoment(Struct, frozen=True):
    """The event of the peak at some value, in the recording ``own`` (an index) whose operations stand for it."""

    own: int
    event: int


class DeviceFit:
    """One device of several recordings of a program, at ascending ``values``; ``settings``: in the syntax of
    PYTORCH_CUDA_ALLOC_CONF, on top of the recorded ones.
    """

    def __init__(self, values: Sequence[float], whatifs: Sequence[WhatIf], settings: Sequence[str] = ()) -> None:
        self.values = np.array(values, np.float64)
        self.whatifs = list(whatifs)
        self.traces = [SummedTrace(whatif.trace) for whatif in whatifs]
        self.settings: AllocatorSettings = parse_settings(list(settings), self.whatifs[-1].own)
        self._laws: dict[int, SizeLaws] = {}
        self._workspaces: dict[int, np.ndarray] = {}
        self._alignments: dict[tuple[int, int], Alignment] = {}

    def reason(self) -> str:
        """Why nothing can be foretold; empty where it can."""
        for value, whatif in zip(self.values, self.whatifs, strict=True):
            if not whatif.check.exact:
                return f"the replay of the recording at {value:g} is not exact: {whatif.check.reason}"
            if whatif.timeline.oom_events:
                return f"the program ran out of memory at {value:g}: record it at a smaller value"
            if varying := varying_line(whatif.timeline):
                share = share_text(varying.bytes, varying.requested_bytes)
                return (
                    f"shapes depend on the data: at {value:g} steps differ in {share} of their bytes, most in "
                    f"{varying.line}; record steps of one shape, such as the largest"
                )
        timeline, value = self.whatifs[0].timeline, float(self.values[0])
        cubes = cubic_bytes(timeline, value) if self.is_estimate else 0
        if cubes > ROOM * timeline.peak_bytes:
            share = share_text(cubes, timeline.peak_bytes)
            return (
                f"{share} of the peak are tensors of {value:g}³ numbers, which grow with the third power of the value"
            )
        last = len(self.values) - 1
        for at in range(last):
            if self.alignment(at, at + 1).insertions is None:
                counts = [len(whatif.trace.kind) for whatif in self.whatifs[at : at + 2]]
                return (
                    f"the recordings at {self.values[at]:g} and {self.values[at + 1]:g} are too different: "
                    f"{count_text(counts[0])} and {count_text(counts[1])} requests and frees"
                )
        if not self.is_estimate and self._proven_share(last) < LEAST_PROVEN:
            more = "; a third recording shows whether they do" if len(self.values) == 2 else ""
            return f"most sizes do not follow the value: other lengths of the data, or another program{more}"
        return ""

    def _proven_share(self, own: int) -> float:
        """Of the bytes at the peak that grow, those whose law is proven; 1.0 where none grow."""
        timeline, laws = self.whatifs[own].timeline, self.laws(own)
        grows = live_mask(timeline, timeline.peak_event) & (np.abs(laws.coefficients[:, 1:]).sum(axis=1) > 0)
        grows &= ~self.workspaces(own)
        size = timeline.allocations["size"].to_numpy()
        return float(size[grows & laws.is_proven].sum() / size[grows].sum()) if grows.any() else 1.0

    def alignment(self, smaller: int, larger: int) -> Alignment:
        """Of two recordings, by their indices."""
        key = smaller, larger
        if key not in self._alignments:
            growth = float(self.values[larger] / self.values[smaller])
            self._alignments[key] = align(self.traces[smaller], self.traces[larger], growth)
        return self._alignments[key]

    @property
    def is_estimate(self) -> bool:
        """Whether there is one recording alone."""
        return len(self.values) == 1

    @cached_property
    def is_exact(self) -> bool:
        """Whether all recordings have the same operations, and every size a proven law."""
        pairs = [self.alignment(at, at + 1).insertions for at in range(len(self.values) - 1)]
        return not any(pairs) and bool(self.laws(len(self.values) - 1).is_proven.all())

    def confidence(self, value: float) -> Confidence:
        """Inferred near the recordings where they are exact: no other kernel was seen to be taken there."""
        if value in self.values:
            return "measured"
        is_near = self.values[0] / FAR <= value <= self.near_limit
        return "inferred" if is_near and not self.is_estimate and self.is_exact else "estimate"

    @cached_property
    def near_limit(self) -> float:
        """The largest value that the recordings answer for, if others take other kernels."""
        return float(self.values[-1]) * (FAR if not self.is_estimate and self.is_exact else 1)

    def nearest(self, value: float) -> int:
        """The recording whose operations stand for ``value``: the nearest by ratio, the larger of two."""
        distance = np.abs(np.log(self.values / value))
        return int(len(distance) - 1 - np.argmin(distance[::-1]))

    def laws(self, own: int) -> SizeLaws:
        """Of the allocations of one recording."""
        if own not in self._laws and self.is_estimate:
            self._laws[own] = batch_growth(self.whatifs[own].timeline, float(self.values[own]))
            self._workspaces[own] = workspaces(self.whatifs[own].trace)
        elif own not in self._laws:
            count = len(self.whatifs[own].trace.size)
            sizes = np.full((len(self.values), count), -1, np.int64)
            for at, whatif in enumerate(self.whatifs):
                other = np.arange(count) if at == own else self._matched(own, at)
                there = whatif.trace.size if len(whatif.trace.size) else np.zeros(1, np.int64)
                sizes[at] = np.where(other >= 0, there[np.maximum(other, 0)], -1)
            self._laws[own] = size_laws(self.values, sizes, own)
            scratch = self.traces[own].scratch
            self._laws[own].kind[scratch], self._laws[own].is_proven[scratch] = LINEAR, True
            mask = workspaces(self.whatifs[own].trace)
            mask[scratch] = False
            self._workspaces[own] = fit_workspaces(self._laws[own], self.values, sizes, own, mask)
        return self._laws[own]

    def workspaces(self, own: int) -> np.ndarray:
        """Boolean by allocation of one recording: workspaces of convolutions, whose sizes may differ in others."""
        self.laws(own)
        return self._workspaces[own]

    def _matched(self, own: int, at: int) -> np.ndarray:
        """Int64 by allocation of ``own``: its id in recording ``at``, -1 for none."""
        if at > own:
            return self.alignment(own, at).other
        back = self.alignment(at, own).other
        found = np.full(len(self.whatifs[own].trace.size), -1, np.int64)
        there = np.flatnonzero(back >= 0)
        found[back[there]] = there
        return found

    def peak_allocated(self, value: float, *, least: bool = False, workspaces: float = 1.0) -> int:
        """Bytes, without a replay of the allocator. ``least``, ``workspaces``: see :meth:`_sizes`."""
        own = self.nearest(value)
        return self.traces[own].peak_allocated(self._sizes(own, value, least=least, workspaces=workspaces))

    def predict(self, value: float, memory: int | None = None) -> FitPrediction:
        """On ``memory`` bytes for the allocator (None: unlimited); ``fits`` is left open.

        The ranges: with allocations of unknown growth as they were recorded, on the smallest device that the recording
        may be from, and grown with the value, as in the peak; with workspaces of convolutions times :data:`FACTORS`; of
        one recording alone with :data:`ROOM` on both sides.
        """
        own = self.nearest(value)
        sizes = self._sizes(own, value)
        others = [self._sizes(own, value, least=True), *(self._sizes(own, value, workspaces=x) for x in FACTORS)]
        others = [other for other in others if not np.array_equal(sizes, other)]
        done = self._replay(own, sizes, memory)
        allocated = self.traces[own].peak_allocated(sizes)
        confidence = self.confidence(value)
        room = ROOM if self.is_estimate and confidence != "measured" else 0.0
        ends = _range([allocated, *(self.traces[own].peak_allocated(other) for other in others)], room)
        if done.failure is not None:
            return FitPrediction(value, allocated, *ends, None, None, None, None, None, confidence)
        peak = done.peak_reserved
        low, high = _range([peak, *(self._replay(own, other, None).peak_reserved for other in others)], room)
        return FitPrediction(value, allocated, *ends, peak, low, high, done.retries, None, confidence)

    def retries(self, value: float, memory: int, *, least: bool = False, workspaces: float = 1.0) -> int | None:
        """On ``memory`` bytes for the allocator; None where a request fails. ``least``, ``workspaces``: see
        :meth:`_sizes`.
        """
        own = self.nearest(value)
        done = self._replay(own, self._sizes(own, value, least=least, workspaces=workspaces), memory)
        return done.retries if done.failure is None else None

    def _sizes(self, own: int, value: float, *, least: bool = False, workspaces: float = 1.0) -> np.ndarray:
        """Int64 bytes by id of :attr:`SummedTrace.trace` at ``value``. Those of unknown growth grow with the value, so
        that no value is said to fit that does not; with ``least`` they stay as they are above the recorded value, and
        shrink below it, and sums have the scratch memory of the smallest device. ``workspaces``: times what is foretold
        of convolutions' workspaces, where nothing was recorded.
        """
        laws = self.laws(own)
        sizes = laws.sizes(value)
        growth = (min if least else max)(1.0, value / float(self.values[own]))
        sizes = np.where(laws.kind == UNKNOWN, np.rint(sizes * growth).astype(np.int64), sizes)
        if least == (value > self.values[own]):
            linear = np.rint(sizes * float(self.values[own]) / value).astype(np.int64)
            sizes = np.where(laws.kind == AT_MOST_QUADRATIC, linear, sizes)
        if value not in self.values:
            sizes = np.where(self.workspaces(own), np.rint(sizes * workspaces).astype(np.int64), sizes)
        return self.traces[own].with_scratch(sizes, least=least)

    @cached_property
    def workspace_bytes(self) -> int:
        """Workspaces of convolutions, of the largest recording, at most at once."""
        own = len(self.values) - 1
        return self._most_at_once(own, self.workspaces(own))

    def decides_by_range(self, value: float) -> bool:
        """Whether the peak at a value may be another than the replay's, so that only its range decides what fits."""
        return self.is_estimate or (self.workspace_bytes > 0 and value not in self.values)

    def unmatched_bytes(self) -> int:
        """What only the largest recording has, at most at once; of one recording what may grow or not."""
        own = len(self.values) - 1
        return self._most_at_once(own, self.laws(own).kind <= ADOPTED)

    def only_in_one(self, smaller: int, larger: int) -> tuple[int, int, int]:
        """Of two neighbours: requests that only the smaller has, only the larger, and their bytes at most at once."""
        only = [self._matched(own, at) < 0 for own, at in ((smaller, larger), (larger, smaller))]
        for mask, own in zip(only, (smaller, larger), strict=True):
            mask[self.traces[own].scratch] = False
        most = max(self._most_at_once(own, mask) for own, mask in zip((smaller, larger), only, strict=True))
        return int(only[0].sum()), int(only[1].sum()), most

    def _most_at_once(self, own: int, mask: np.ndarray) -> int:
        """Bytes of some allocations of a recording."""
        size = self.whatifs[own].timeline.allocations["size"].to_numpy()
        return int(self.traces[own].curve(np.where(mask, size, 0)).max())

    def peak_moment(self, value: float) -> PeakMoment:
        """The first event after which the peak allocated is reached."""
        own = self.nearest(value)
        sizes = self._sizes(own, value)[: len(self.whatifs[own].trace.size)]
        return PeakMoment(own, int(np.argmax(self.traces[own].curve(sizes))) - 1)

    def growth_at(self, moment: PeakMoment, value: float) -> int:
        """Bytes that one more unit adds to what is live at a moment."""
        live = live_mask(self.whatifs[moment.own].timeline, moment.event)
        return round(float(self.laws(moment.own).growth(value)[live].sum()))

    def left_out(self) -> list[LeftOutRecording]:
        """Each recording as the others foretell it; empty for fewer than three."""
        found = []
        for at, value in enumerate(self.values.tolist() if len(self.values) > 2 else ()):
            others = [other for other in range(len(self.values)) if other != at]
            fit = DeviceFit(self.values[others].tolist(), [self.whatifs[other] for other in others])
            fit.settings = self.whatifs[at].own
            foretold = None if fit.reason() else fit.predict(value)
            found.append(
                LeftOutRecording(
                    value,
                    self.whatifs[at].timeline.peak_bytes,
                    self.whatifs[at].trace.peak_reserved,
                    foretold.peak_allocated_bytes if foretold else None,
                    foretold.peak_reserved_bytes if foretold else None,
                )
            )
        return found

    def growth(self) -> dict[str, int]:
        """Category → bytes that one more unit adds to what is live at the peak of the largest recording."""
        own = len(self.values) - 1
        timeline = self.whatifs[own].timeline
        live = live_mask(timeline, timeline.peak_event)
        added = self.laws(own).growth(float(self.values[own]))[live]
        frame = timeline.allocations.filter(live).select("category", bytes=pl.Series(added))
        rows = frame.group_by("category").agg(pl.col("bytes").sum()).sort("bytes", "category", descending=[True, False])
        return {category: round(count) for category, count in rows.iter_rows() if round(count)}

    def _replay(self, own: int, sizes: np.ndarray, memory: int | None) -> Replayed:
        without = None if sizes.all() else sizes == 0
        trace = self.traces[own].trace
        return replay(trace, self.settings, Ascending(memory), start=None, without=without, sizes=sizes)


def _range(peaks: list[int], room: float) -> tuple[int, int]:
    return round(min(peaks) * (1 - room)), round(max(peaks) * (1 + room))
