"""Categories over time as ``torch.profiler``'s ``export_memory_timeline`` wrote them, which PyTorch has deprecated."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import BinaryIO

import numpy as np

from snapreport.exporting.time_trace import event_times
from snapreport.snapshot import Snapshot
from snapreport.timeline.build import DeviceTimeline

ORDER = ("parameter", "optimizer state", "input", "temporary", "activation", "gradient", None, None)
"""Which of our categories the columns of that format are: the seventh, ``AUTOGRAD_DETAIL``, is empty, and the last,
unknown there, has all others."""
_ROWS = 10_000  # written at a time


def write_memory_timeline(snapshots: Sequence[Snapshot], file: BinaryIO) -> None:
    """``[times, sizes]`` of the device with the highest peak: µs, and for each a 0 and the bytes of the categories."""
    snapshot, timeline = max(
        ((one, one.timeline(device)) for one in snapshots for device in one.devices),
        key=lambda pair: (pair[1].peak_bytes, len(pair[1].events)),
    )
    times, sizes = _rows(snapshot, timeline)
    for begin, values, end in ((b"[[", times, b"], ["), (b"", sizes, b"]]")):
        file.write(begin)
        for at in range(0, len(values), _ROWS):
            text = json.dumps(values[at : at + _ROWS].tolist())[1:-1]
            file.write((", " if at else "").encode() + text.encode())
        file.write(end)


def _rows(snapshot: Snapshot, timeline: DeviceTimeline) -> tuple[np.ndarray, np.ndarray]:
    """Int64 times in µs, and a row of Int64 bytes for each: before the first event, then once for each later time."""
    curve = snapshot.category_curve(timeline.device)
    sizes = np.zeros((len(curve), 1 + len(ORDER)), np.int64)
    for column, name in enumerate(ORDER, 1):
        if name in curve.columns:
            sizes[:, column] = curve[name].to_numpy()
    sizes[:, -1] = timeline.allocated - sizes.sum(axis=1)
    times, _ = event_times(timeline)
    if not len(times):
        return np.zeros(1, np.int64), sizes
    is_last = np.append(np.diff(times) != 0, True)
    return np.append(times[0], times[is_last]), np.concatenate((sizes[:1], sizes[1:][is_last]))
