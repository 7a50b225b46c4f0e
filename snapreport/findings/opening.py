"""The device and the moment that a report opens on: the worst failure, else the greatest peak."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from snapreport.findings.oom import retries
from snapreport.snapshot import Snapshot


class Opening(Struct, frozen=True):
    """``snapshot``: number of the file; ``device``: number of the device in it; ``index``: the device's place among
    all devices of all files, as the page counts them; ``event``: the position to show, -1 before the first event.
    """

    snapshot: int
    device: int
    index: int
    event: int


def opening(snapshots: Sequence[Snapshot]) -> Opening | None:
    """The out-of-memory failure with the largest request; without one the peak of the device that allocated most.

    Pinned host memory is chosen only where no accelerator allocated anything. None without any events and bytes.
    """
    best: tuple[tuple[bool, bool, int], Opening] | None = None
    index = 0
    for number, snapshot in enumerate(snapshots):
        for device in snapshot.devices:
            timeline = snapshot.timeline(device)
            sizes = timeline.events["size"]
            moments = [(True, int(sizes[group[0]]), group[0]) for group in retries(timeline)]
            if timeline.peak_bytes or len(timeline.events):
                moments.append((False, timeline.peak_bytes, timeline.peak_event))
            for failed, size, event in moments:
                # Of equal ones the first; a device that allocated nothing comes after pinned memory.
                rank = (failed, timeline.kind != "host" and size > 0, size)
                if best is None or rank > best[0]:
                    best = rank, Opening(number, device, index, event)
            index += 1
    return best[1] if best else None
