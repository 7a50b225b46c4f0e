"""A device's steps and annotated spans as entries of the manifest: the page reserves space for them before it reads any
column.

Read by ``static/src/steps``. Empty tables are omitted.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from snapreport.number_format import count_text
from snapreport.sentence import listed
from snapreport.timeline.build import DeviceTimeline

RAGGED_START, RAGGED_END = 1, 2


def span_entries(timeline: DeviceTimeline, time0: int | None) -> dict[str, object]:
    """``steps``, ``spans`` and ``broken_annotations`` of a device's manifest entry, if not empty.

    ``time0``: µs of event 0 on the recorder's clock, None without times. Starts are differences from the row before.
    """
    entries: dict[str, object] = {}
    steps, annotated = timeline.steps, timeline.annotated
    if len(steps):
        entries["steps"] = {
            "source": steps["source"][0],
            "names": steps["name"].to_list(),
            "numbers": steps["step"].to_list(),
            "first": _differences(steps["first_event"]),
            "events": _events(steps),
        }
    if len(annotated.spans):
        entries["spans"] = _spans(annotated.spans, time0)
    if annotated.broken:
        entries["broken_annotations"] = annotated.broken
    return entries


def _spans(spans: pl.DataFrame, time0: int | None) -> dict[str, object]:
    names = spans["name"].unique(maintain_order=True)
    index = names.to_frame().with_row_index("index")
    entry: dict[str, object] = {
        "names": names.to_list(),
        "name": spans.join(index, on="name", how="left", maintain_order="left")["index"].to_list(),
        "first": _differences(spans["first_event"]),
        "events": _events(spans),
        "depth": spans["depth"].to_list(),
    }
    ragged = np.where(spans["starts"], 0, RAGGED_START) + np.where(spans["ends"], 0, RAGGED_END)
    if ragged.any():
        entry["ragged"] = ragged.tolist()
    known = pl.coalesce("start_us", "end_us")
    if time0 is not None and spans.select(known.is_not_null().any()).item():
        # An open end has no time: it is written as 0, which the page ignores.
        start = spans.select((pl.col("start_us") - time0).fill_null(0))["start_us"]
        entry["start_us"] = _differences(start)
        entry["us"] = (spans["end_us"].fill_null(time0) - time0 - start).to_list()
    return entry


def _differences(first: pl.Series) -> list[int]:
    steps: list[int] = np.diff(first.to_numpy().astype(np.int64), prepend=0).tolist()
    return steps


def _events(table: pl.DataFrame) -> list[int]:
    return (table["last_event"] - table["first_event"] + 1).to_list()


_WORDS = {
    "unpaired_starts": ("annotation never ends", "annotations never end"),
    "unpaired_ends": ("annotation never begins", "annotations never begin"),
    "untimed": ("annotation has no time", "annotations have no time"),
    "unknown_stage": ("annotation is neither a start nor an end", "annotations are neither starts nor ends"),
    "outside": ("annotated span lies outside the trace", "annotated spans lie outside the trace"),
    "without_allocation": (
        "annotation names memory that is not allocated",
        "annotations name memory that is not allocated",
    ),
}


def broken_sentence(broken: dict[str, int]) -> str:
    """What is broken about a device's annotations; "" if nothing is."""
    parts = [f"{count_text(count)} {_WORDS[key][count != 1]}" for key, count in broken.items()]
    return f"{listed(parts)}." if parts else ""
