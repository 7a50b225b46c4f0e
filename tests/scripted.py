"""Snapshots written by hand: what is allocated, by which frames, and when it is freed; and what is live at the peak."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

MIB = 1 << 20
Frame = tuple[str, str]  # file, function


@dataclass
class Script:
    """A trace being written. Every allocation has a tag, by which its bytes at the peak are counted."""

    settings: dict[str, Any] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    live: dict[int, tuple[str, int]] = field(default_factory=dict)
    notes: list[dict[str, Any]] = field(default_factory=list)
    peak: dict[int, tuple[str, int]] = field(default_factory=dict)
    tags: dict[int, str] = field(default_factory=dict)  # of all addresses: none is given twice
    top: int = 1 << 30

    def alloc(self, tag: str, size: int, *frames: Frame) -> int:
        address, self.top = self.top, self.top + size
        self._event("alloc", address, size, frames)
        self.live[address] = (tag, size)
        self.tags[address] = tag
        if self.total(self.live) > self.total(self.peak):
            self.peak = dict(self.live)
        return address

    def free(self, address: int, *frames: Frame) -> None:
        _, size = self.live.pop(address)
        self._event("free_requested", address, size, frames)
        self._event("free_completed", address, size, frames)

    def step(self, number: int, began: int) -> None:
        """Annotates what happened since event ``began`` as a step."""
        for stage, event in (("START", began), ("END", len(self.events))):
            self.notes.append(
                {"name": f"ProfilerStep#{number}", "stage": stage, "device": 0, "time_us": 10 * event + 5}
            )

    def at_peak(self, *tags: str) -> int:
        return self.total({address: held for address, held in self.peak.items() if held[0] in tags})

    def max_or_zero(self, tag: str) -> int:
        return max(size for held, size in self.peak.values() if held == tag)

    def total(self, live: dict[int, tuple[str, int]]) -> int:
        return sum(size for _, size in live.values())

    def raw(self) -> dict[str, Any]:
        segments = [
            {
                "device": 0, "address": address, "total_size": size, "stream": 0, "segment_type": "large",
                "allocated_size": size, "active_size": size,
                "blocks": [{
                    "address": address, "size": size, "requested_size": size, "state": "active_allocated", "frames": [],
                }],
            }
            for address, (_, size) in self.live.items()
        ]  # fmt: skip
        return {
            "segments": segments, "device_traces": [self.events], "allocator_settings": self.settings,
            "external_annotations": self.notes,
        }  # fmt: skip

    def _event(self, action: str, address: int, size: int, frames: tuple[Frame, ...]) -> None:
        told = [{"filename": file, "line": 7, "name": name} for file, name in (*frames, ("/app/train.py", "main"))]
        time = 10 * (len(self.events) + 1)
        self.events.append(
            {"action": action, "addr": address, "size": size, "stream": 0, "time_us": time, "frames": told}
        )
