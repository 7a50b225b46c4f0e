"""Accuracy of inferred categories: the frames of everything before a cut are hidden, and the inferred categories are
compared with those that the frames give.

Cuts are at quiet positions: in each tenth of a trace, the lowest that is within 1% of the minimum of the rest. The
truth is what the whole trace says about a block; for blocks from before it that never had a stack, it is what is
inferred from the whole trace, which was checked by hand. Blocks of one size are interchangeable, so bytes are right up
to the true bytes of their category.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

import snapreport
from snapreport.timeline.activity import device_activity
from snapreport.timeline.build import DeviceTimeline
from snapreport.timeline.categories import (
    FREED_IN,
    INFERRED,
    SOURCE_UNKNOWN,
    StackCategories,
    stack_and_free_categories,
    stack_categories,
)
from snapreport.timeline.inference import RULES, infer
from snapreport.timeline.life_phases import Evidence, life_phases
from snapreport.timeline.phases import LOADING
from snapreport.vocabulary import CATEGORIES

_TENTHS = 10
_LEAST_EVENTS = 150


def measure(paths: Sequence[Path]) -> pl.DataFrame:
    """A row per file, device, cut and rule: ``source``, ``rule``, the ``bytes`` that it categorised and the ``right``
    bytes among them; rule "(silent)": bytes that no rule categorised.
    """
    rows = []
    for path in paths:
        snapshot = snapreport.load(path)
        by_stack = stack_categories(snapshot.recording)
        for device in snapshot.devices:
            timeline = snapshot.timeline(device)
            if len(timeline.events) < _LEAST_EVENTS or not timeline.peak_bytes:
                continue
            for cut in _quiet(timeline.allocated):
                rows += [
                    {"file": path.name, "device": device, "cut": cut, **row} for row in _at(timeline, by_stack, cut)
                ]
    schema = {"file": pl.String, "device": pl.Int64, "cut": pl.Int64, "source": pl.String, "rule": pl.String,
              "bytes": pl.Int64, "right": pl.Int64}  # fmt: skip
    return pl.DataFrame(rows, schema)


def _quiet(allocated: np.ndarray) -> list[int]:
    """Positions (event numbers) to cut at."""
    events, cuts = len(allocated) - 1, []
    for tenth in range(_TENTHS):
        first, last = events * tenth // _TENTHS, events * (tenth + 1) // _TENTHS
        if last - first < 8:
            continue
        cut = first + int(np.argmin(allocated[first + 1 : last + 1]))
        if 0 < allocated[cut + 1] <= 1.01 * allocated[cut + 1 :].min():
            cuts.append(cut)
    return cuts


def _at(timeline: DeviceTimeline, by_stack: StackCategories, cut: int) -> list[dict[str, object]]:
    whole = timeline.allocations
    truth = whole["category"].to_physical().to_numpy()
    told = truth > 0
    rest = ((whole["free_event"] < 0) | (whole["free_event"] > cut)).to_numpy()
    table, truth, told = whole.filter(rest), truth[rest], told[rest]
    hidden = (table["alloc_event"] <= cut).to_numpy()
    shift = cut + 1
    moved = {
        name: np.where(table[name].to_numpy() > cut, table[name].to_numpy() - shift, -1)
        for name in ("alloc_event", "free_requested_event", "free_event")
    }
    stack = np.where(hidden, 0, table["stack"].to_numpy())
    table = table.with_columns(stack=pl.Series(stack), **{name: pl.Series(column) for name, column in moved.items()})
    events = timeline.events[shift:]
    lives = life_phases(events, table, by_stack.phases)
    codes, source = stack_and_free_categories(by_stack, table, lives)
    uncertain = source == INFERRED
    probable = np.where(uncertain, codes, 0).astype(np.uint8)
    codes, source = np.where(uncertain, 0, codes).astype(np.uint8), np.where(uncertain, SOURCE_UNKNOWN, source)
    activity = device_activity(events, table, by_stack.phases)
    columns = (table[name].to_numpy() for name in ("addr", "size", "alloc_event", "free_event", "stack"))
    allocated = timeline.allocated[shift:]
    reserved = int(timeline.reserved[shift])
    unnamed = np.zeros(len(codes), bool)
    loaded = by_stack.phases.innermost[stack] == LOADING
    said, rule = infer(Evidence(*columns, codes, lives, allocated, activity.kind, reserved, probable, unnamed, loaded))
    size = table["size"].to_numpy()
    groups = [("inferred", name, (rule == number) & hidden) for number, name in enumerate(RULES, 1)]
    groups += [
        ("freed in", name, (source == FREED_IN) & (codes == code) & (said == 0) & hidden)
        for code, name in enumerate(CATEGORIES)
    ]
    groups.append(("", "(silent)", (source == SOURCE_UNKNOWN) & (said == 0) & hidden))
    found = np.where(said > 0, said, codes)
    return [
        {
            "source": kind,
            "rule": name,
            "bytes": int(size[mine & told].sum()),
            "right": _right(found[mine & told], truth[mine & told], size[mine & told]),
        }
        for kind, name, mine in groups
        if (mine & told).any()
    ]


def _right(said: np.ndarray, truth: np.ndarray, size: np.ndarray) -> int:
    """Bytes of each category that are both claimed and true, summed."""
    most = len(CATEGORIES)
    of_said, of_truth = (np.bincount(codes, size, minlength=most)[1:] for codes in (said, truth))
    return int(np.minimum(of_said, of_truth).sum())


def table(rows: pl.DataFrame) -> str:
    """The figures as text: for each rule its bytes, how many of them are right, and in how many files it applies."""
    total = max(1, int(rows["bytes"].sum()))
    lines = [f"{'rule':<28}{'GiB':>9}{'of all':>8}{'right':>8}{'files':>7}"]
    grouped = rows.group_by("source", "rule").agg(pl.col("bytes", "right").sum(), files=pl.col("file").n_unique())
    for kind, name, size, right, files in grouped.sort("source", "bytes", descending=[False, True]).rows():
        share = f"{100 * right / size:.1f}%" if kind else ""
        label = f"{kind} {name}" if kind == "freed in" else name
        lines.append(f"{label:<28}{size / 2**30:>9.1f}{100 * size / total:>7.1f}%{share:>8}{files:>7}")
    return "\n".join(lines)
