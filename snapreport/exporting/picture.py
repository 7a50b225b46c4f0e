"""A device's memory as a picture for slides and tickets: categories stacked, reserved memory, the peak, failures.

Drawn by matplotlib: it writes SVG and PNG, and brings its own fonts, which machines of CI often lack.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, BinaryIO

import numpy as np

from snapreport.errors import SnapshotError
from snapreport.number_format import bytes_text, count_text, device_name
from snapreport.snapshot import Snapshot
from snapreport.timeline.build import DeviceTimeline
from snapreport.vocabulary import CATEGORIES

# The page's light colours of categories, near enough to be recognised.
_COLOURS = {
    "unknown": "#a3a6ab", "parameter": "#4a76b8", "gradient": "#c97b3d", "optimizer state": "#7d5fb0",
    "activation": "#3f9a6b", "temporary": "#d8b13c", "input": "#4fa9b8", "communication": "#b8577f",
    "workspace": "#8c7b6a", "kv cache": "#c4574e",
}  # fmt: skip
_COLUMNS = 600  # of the chart; more are finer than a pixel of its width, and make an SVG of 700 KB
_WIDTH, _HEIGHT = 12.0, 4.5  # inches, of one device
_UNITS = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))


def write_picture(snapshots: Sequence[Snapshot], file: BinaryIO, kind: str) -> None:
    """``kind``: svg or png. Devices are drawn one below the other. Raises :class:`SnapshotError` for none."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    drawn = [
        (snapshot, timeline)
        for snapshot in snapshots
        for timeline in map(snapshot.timeline, snapshot.devices)
        if len(timeline.events) and timeline.peak_bytes
    ]
    if not drawn:
        raise SnapshotError(f"{snapshots[0].recording.path}: no device has a trace to draw")
    figure = Figure(figsize=(_WIDTH, _HEIGHT * len(drawn)), layout="constrained")
    for axes, (snapshot, timeline) in zip(figure.subplots(len(drawn), squeeze=False)[:, 0], drawn, strict=True):
        _draw(axes, snapshot, timeline)
    # No date and no random ids: the same snapshot gives the same bytes.
    with mpl.rc_context({"svg.hashsalt": "snapreport", "svg.fonttype": "none"}):
        figure.savefig(file, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else {"Software": None})


def _draw(axes: Any, snapshot: Snapshot, timeline: DeviceTimeline) -> None:
    at, by_category = _held(snapshot, timeline)
    top = max(timeline.peak_bytes, int(timeline.reserved.max()))
    unit, scale = next((one for one in _UNITS if top >= one[1]), _UNITS[-1])
    names = [name for name in CATEGORIES if name in by_category and by_category[name].any()]
    axes.stackplot(
        at,
        [by_category[name] / scale for name in names],
        labels=names,
        colors=[_COLOURS[n] for n in names],
        step="post",
    )
    if timeline.reserved.any():
        edges = _edges(len(timeline.events) + 1)
        reserved = np.maximum.reduceat(timeline.reserved, edges) / scale
        axes.step(at, reserved, where="post", color="#5b3fa8", linewidth=1.2, label="reserved")
    for event in timeline.oom_events[:20]:
        axes.axvline(
            event, color="#b00020", linewidth=1, label="out of memory" if event == timeline.oom_events[0] else None
        )
    peak = timeline.peak_event
    axes.plot([peak], [timeline.peak_bytes / scale], "o", color="#222222", markersize=5)
    where = f"peak {bytes_text(timeline.peak_bytes)} at event {count_text(peak)}"
    axes.set_title(
        f"{snapshot.recording.name}, {device_name(timeline.kind, timeline.device)}: {where}", loc="left", fontsize=11
    )
    axes.set(xlabel="event", ylabel=unit, xlim=(0, max(len(timeline.events) - 1, 1)), ylim=(0, None))
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), reverse=True, frameon=False)


def _edges(positions: int) -> np.ndarray:
    columns = min(_COLUMNS, positions)
    return np.arange(columns) * positions // columns


def _held(snapshot: Snapshot, timeline: DeviceTimeline) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Int64 event of each column and, by category, Int64 bytes there. A column shows the moment with most bytes in it,
    so that the peak is never lost.
    """
    allocated = timeline.allocated
    edges = _edges(len(allocated))
    ends = np.append(edges[1:], len(allocated))
    position = np.array([start + int(np.argmax(allocated[start:end])) for start, end in zip(edges, ends, strict=True)])
    curves = snapshot.category_curve(timeline.device).drop("position")
    return edges - 1, {curve.name: curve.to_numpy()[position] for curve in curves}
