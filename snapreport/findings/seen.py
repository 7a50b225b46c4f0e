"""What the rules of advice look at, and what they answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from snapreport.findings.model import Confidence, Finding
from snapreport.number_format import bytes_text, share_text
from snapreport.reading.noise import NOISE, PYTHON, recorded_flags
from snapreport.timeline.build import DeviceTimeline, Snapshot

LEAST_BYTES = 64 << 20
_WORTH = 0.10
"""Of the peak: less is not worth an advice."""


@dataclass(frozen=True)
class Advice:
    """``rule``: its name; ``do``: what to do; ``saw``: what speaks for it; ``bytes``: what it saves at most, of
    ``memory`` ("allocated" at the peak or "reserved"; "" where it saves time and ``bytes`` is what goes round);
    ``term``, ``url``: PyTorch's own name for it, and where that is described; ``query``: what it is about at the peak;
    ``link``: of the finding that it rests on, which is shown instead.
    """

    rule: str
    do: str
    saw: str
    bytes: int
    term: str
    url: str
    confidence: Confidence = "likely"
    query: str = ""
    memory: str = "allocated"
    link: dict[str, Any] | None = None

    @property
    def title(self) -> str:
        if not self.memory:
            return f"{self.do}: saves time, not memory"
        of = " of what is reserved" if self.memory == "reserved" else ""
        return f"{self.do}: saves at most {bytes_text(self.bytes)}{of}"


class Seen:
    """What the rules look at: one device at its peak, and the findings made before."""

    def __init__(self, snapshot: Snapshot, timeline: DeviceTimeline, findings: Sequence[Finding]) -> None:
        self.snapshot = snapshot
        self.timeline = timeline
        self.findings = [finding for finding in findings if finding.device == timeline.device]

    @cached_property
    def peak(self) -> pl.DataFrame:
        """``stack``, ``category``, ``size`` of what is live at the peak."""
        event = self.timeline.peak_event
        free = pl.col("free_event")
        live = (pl.col("alloc_event") <= event) & ((free < 0) | (free > event))
        return self.timeline.allocations.filter(live).select(
            "stack", pl.col("category").cast(pl.String), "size", "alloc_event"
        )

    @cached_property
    def by_category(self) -> dict[str, int]:
        return dict(self.peak.group_by("category").agg(pl.col("size").sum()).rows())

    def bytes_of(self, *categories: str) -> int:
        return sum(self.by_category.get(category, 0) for category in categories)

    def frames_match(self, pattern: str) -> np.ndarray:
        """Bool per stack: whether a frame's "file name" matches."""
        recording = self.snapshot.recording
        frames = recording.frames
        text = frames.select(
            t=pl.concat_str(
                [pl.col("filename").str.replace_all("\\", "/", literal=True), pl.col("name")], separator=" "
            )
        )["t"]
        hit = text.str.contains(pattern).to_numpy()
        stacks = np.zeros(len(recording.stack_offsets) - 1, bool)
        place = np.flatnonzero(hit[recording.stack_frames]) if len(recording.stack_frames) else np.zeros(0, np.int64)
        stacks[np.searchsorted(recording.stack_offsets, place, "right") - 1] = True
        return stacks

    def peak_bytes_in(self, stacks: np.ndarray) -> int:
        """Bytes at the peak of the stacks marked in ``stacks``."""
        return int(self.peak["size"].to_numpy()[stacks[self.peak["stack"].to_numpy()]].sum()) if len(self.peak) else 0

    @cached_property
    def innermost(self) -> pl.Series:
        """String per stack: its innermost Python frame, "function file.py"; null where it has none."""
        recording = self.snapshot.recording
        flags = recorded_flags(recording)[recording.stack_frames]
        place = np.flatnonzero((flags & PYTHON > 0) & (flags & NOISE == 0))
        stack, first = np.unique(np.searchsorted(recording.stack_offsets, place, "right") - 1, return_index=True)
        frame = np.full(len(recording.stack_offsets) - 1, -1, np.int64)
        frame[stack] = recording.stack_frames[place[first]]
        base = pl.col("filename").str.replace_all("\\", "/", literal=True).str.replace(r"^.*/", "")
        names = recording.frames.select(t=pl.concat_str([pl.col("name"), base], separator=" "))["t"]
        return names.gather(pl.Series(frame).replace(-1, None))

    def has_frames(self, pattern: str) -> bool:
        return bool(self.frames_match(pattern).any())

    @cached_property
    def trains(self) -> bool:
        """Whether anything recorded is of a backward pass or an optimizer. Without a trace nothing tells: lifetimes
        do.
        """
        if not len(self.timeline.events):
            return False
        told = self.timeline.allocations["category"].cast(pl.String).is_in(["gradient", "optimizer state"]).any()
        return bool(told) or self.has_frames(
            r"Backward\d*(::|_apply|\.)|torch/autograd|AccumulateGrad|\bbackward$|torch/optim/"
        )

    def is_much(self, size: int) -> bool:
        """Whether so many bytes are worth an advice."""
        return size >= max(LEAST_BYTES, _WORTH * self.timeline.peak_bytes)

    def share(self, size: int) -> str:
        return f"{bytes_text(size)}, {share_text(size, self.timeline.peak_bytes)} of the peak"

    def finding(self, kind: str) -> Finding | None:
        return next((finding for finding in self.findings if finding.kind == kind and finding.severity != "info"), None)
