"""Growth over a series of snapshots: ``snapshot_0.pt snapshot_50.pt …``, in the order given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from snapreport.timeline.build import Snapshot

_KEYS = ("peak_allocated_bytes", "end_allocated_bytes", "peak_reserved_bytes", "end_reserved_bytes")


def series(snapshots: Sequence[Snapshot]) -> list[dict[str, Any]]:
    """Per device that all snapshots have: ``device``, ``files``, the numbers of each, and ``growth``, the median change
    from one snapshot to the next of ``end_allocated_bytes`` (bytes a snapshot).
    """
    common = [device for device in snapshots[0].devices if all(device in other.devices for other in snapshots)]
    rows = []
    for device in common:
        stats = [snapshot.timeline(device).stats for snapshot in snapshots]
        if not any(entry["peak_allocated_bytes"] or entry["segments"] for entry in stats):
            continue
        ends = np.array([entry["end_allocated_bytes"] for entry in stats], np.int64)
        rows.append(
            {
                "device": device,
                "kind": stats[0]["kind"],
                "files": [snapshot.recording.name for snapshot in snapshots],
                **{key: [entry[key] for entry in stats] for key in _KEYS},
                "growth": int(np.median(np.diff(ends))) if len(ends) > 1 else 0,
            }
        )
    return rows
