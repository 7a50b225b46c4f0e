"""The composition of the peak: bytes by stack, the last stretch before it, and the peak without each of the largest
stacks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import polars as pl

from snapreport.findings.basis import basis_of
from snapreport.findings.evidence import CategoryRow, LastStretch, ModuleRow, PeakEvidence, PeakStackRow
from snapreport.findings.live import (
    MOST,
    Names,
    by_category,
    by_function,
    by_module,
    by_place,
    by_stack,
    category_text,
    live_at,
    main_parts,
    names_of,
)
from snapreport.findings.model import Confidence, Finding
from snapreport.number_format import bytes_text, count_text, device_name, plural, share_text, upper_first
from snapreport.snapshot import Snapshot
from snapreport.timeline.build import DeviceTimeline
from snapreport.timeline.recorded_totals import RecordedPeaks, recorded_peaks
from snapreport.timeline.recording_gaps import has_history, lost_events

_LATE = 0.75
"""The last stretch before the peak begins where allocated was last at most this share of the peak."""
_SHORT = 0.05
"""Of the trace's events: a longer stretch is the normal course of the program, and one line does not explain it."""
_ALMOST = 0.9
"""Of the peak: a moment that high is almost as high."""


def peak_findings(snapshot: Snapshot, timeline: DeviceTimeline) -> list[Finding]:
    """One for a device that has allocations."""
    peak, event = timeline.peak_bytes, timeline.peak_event
    if not peak:
        return []
    names = names_of(snapshot)
    live = live_at(timeline.allocations, event)
    categories = by_category(live)
    stacks = [cast("PeakStackRow", {**row, **without(timeline, row["stack"])}) for row in by_stack(live, names)]
    modules = by_module(live, names)
    stretch = last_stretch(timeline, live, names)
    in_modules = modules.filter(pl.col("module") != "")
    evidence: PeakEvidence = {
        "peak_bytes": peak,
        "peak_event": event,
        "recorded_peak_bytes": recorded.allocated if (recorded := recorded_peaks(timeline)) else None,
        "recorded_peak_reserved_bytes": recorded.reserved if recorded else None,
        "reserved_bytes": int(timeline.reserved[event + 1]),
        "max_memory_allocated_bytes": _counted_by_torch(timeline),
        "count": len(live),
        "categories": categories,
        "inferred_categories": _inferred(live, categories),
        "unknown_bytes": next((row["bytes"] for row in categories if row["category"] == "unknown"), 0),
        "no_frames_bytes": timeline.peak_stackless_bytes,
        "before_trace_bytes": int(live.filter(pl.col("alloc_event") < 0)["size"].sum()),
        "stacks": stacks,
        "functions": by_function(live, names),
        "places": by_place(live, names),
        "modules": cast("list[ModuleRow]", in_modules.head(MOST).rows(named=True)),
        "module_bytes": int(in_modules["bytes"].sum()),
        "last_stretch": stretch,
    }
    return [
        Finding(
            kind="peak",
            device=timeline.device,
            severity="info",
            title=_title(timeline, evidence),
            detail=_detail(timeline, evidence),
            bytes=peak,
            event=event,
            stack=stacks[0]["stack"],
            evidence=evidence,
            basis=_basis(timeline, evidence),
            confidence=_confidence(timeline),
            link={"view": "timeline", "at": event, "query": "live:peak"},
        )
    ]


def without(timeline: DeviceTimeline, stack: int) -> dict[str, Any]:
    """``peak_without_bytes``, ``peak_without_event``: the peak had the stack's allocations not been there. Exact, by a
    new curve.
    """
    table = timeline.allocations
    rows = np.flatnonzero(table["stack"].to_numpy() == stack)
    born, freed, size = (table[name].to_numpy()[rows] for name in ("alloc_event", "free_event", "size"))
    ends = freed >= 0
    # Between two changes of the stack the greatest is where it was: only as many stretches are compared as it has
    # changes.
    position = np.concatenate((np.maximum(born, -1), freed[ends])).astype(np.int64) + 1
    starts, which = np.unique(np.append(position, 0), return_inverse=True)
    change = np.bincount(
        which[:-1], weights=np.concatenate((size, -size[ends])), minlength=len(starts)
    )  # exact below 2**53
    most = np.maximum.reduceat(timeline.allocated, starts) - np.cumsum(change).astype(np.int64)
    stretch = int(np.argmax(most))
    stop = starts[stretch + 1] if stretch + 1 < len(starts) else len(timeline.allocated)
    at = int(starts[stretch] + np.argmax(timeline.allocated[starts[stretch] : stop]))
    return {"peak_without_bytes": int(most[stretch]), "peak_without_event": at - 1}


def last_stretch(timeline: DeviceTimeline, live: pl.DataFrame, names: Names) -> LastStretch:
    """The bytes added from 75% of the peak up to it that are still allocated.

    ``from_event``: the last position at which allocated was at most that (-1: it never was), ``added_bytes``,
    ``count``, ``categories``, ``stacks``.
    """
    before = timeline.allocated[: timeline.peak_event + 1]
    low = np.flatnonzero(before <= _LATE * timeline.peak_bytes)
    start = int(low[-1]) - 1 if len(low) else -1
    added = live.filter(pl.col("alloc_event") > start)
    return {
        "from_event": start,
        "added_bytes": int(added["size"].sum()),
        "count": len(added),
        "categories": by_category(added),
        "stacks": by_stack(added, names, 5),
    }


def _title(timeline: DeviceTimeline, evidence: PeakEvidence) -> str:
    name = device_name(timeline.kind, timeline.device)
    recorded = higher_peaks(timeline)
    allocated, reserved = bytes_text(timeline.peak_bytes), bytes_text(evidence["reserved_bytes"])
    if recorded:
        allocated, reserved = bytes_text(recorded.allocated), bytes_text(recorded.reserved)
        return f"Peak on {name}: {allocated} allocated, {reserved} reserved, counted by PyTorch before the first event"
    has_reserved = timeline.kind != "host" and not (timeline.recording.is_profiled and not timeline.reserved.any())
    sizes = f"{allocated} allocated, {reserved} reserved" if has_reserved else f"{allocated} allocated"
    if not has_history(timeline):
        return f"Final state of {name}: {sizes}"
    when = "before the first event" if timeline.peak_event < 0 else f"event {count_text(timeline.peak_event)}"
    least = "at least " if timeline.recording_gaps and not recorded_peaks(timeline) else ""
    return f"Peak on {name}: {least}{sizes} ({when})"


def higher_peaks(timeline: DeviceTimeline) -> RecordedPeaks | None:
    """What the recorder noted, where the trace has events missing and never reaches as much."""
    recorded = recorded_peaks(timeline)
    if recorded is None or not lost_events(timeline):
        return None
    return recorded if recorded.allocated > timeline.peak_bytes else None


def composition(evidence: Mapping[str, Any]) -> str:
    """One sentence on the main categories of the peak: ``Activations 26.2 GiB, gradients 12.7 GiB (inferred)``."""
    inferred = evidence["inferred_categories"]
    parts = [
        f"{name} {bytes_text(size)}{' (inferred)' if name in inferred else ''}"
        for name, size in main_parts(evidence["categories"])
    ]
    return f"{upper_first(', '.join(parts))}."


def _inferred(live: pl.DataFrame, categories: list[CategoryRow]) -> list[str]:
    """Names of the categories of which most bytes are inferred rather than recorded or seen in a stack."""
    if "category_source" not in live.columns:
        return []
    guessed = live.filter(pl.col("category_source").cast(pl.String) == "inferred")
    of = {row["category"]: row["bytes"] for row in by_category(guessed)}
    return [category_text(row["category"]) for row in categories if 2 * of.get(row["category"], 0) > row["bytes"]]


def _detail(timeline: DeviceTimeline, evidence: PeakEvidence) -> list[str]:
    lines = []
    if recorded := higher_peaks(timeline):
        place = "its start" if timeline.peak_event < 0 else f"event {count_text(timeline.peak_event)}"
        rest = f"What is left of it peaks at {bytes_text(timeline.peak_bytes)}, at {place}."
        lines.append(f"The trace lost its oldest events. {rest}")
        blocks = bytes_text(recorded.blocks)
        lines.append(f"torch.cuda.max_memory_allocated() reported {blocks}: it counts rounded blocks.")
    counted = evidence["max_memory_allocated_bytes"]
    if counted is not None:
        lines.append(f"torch.cuda.max_memory_allocated() would report {bytes_text(counted)}: it counts rounded blocks.")
    stretch = evidence["last_stretch"]
    single = stretch["from_event"] >= 0 and stretch["count"] == 1
    if single:
        most = stretch["stacks"][0]
        lines.append(f"One allocation set the peak: {bytes_text(stretch['added_bytes'])} in {most['line']}.")
    top = next((row for row in evidence["stacks"] if row["stack"]), None)
    if top:
        size = f"{bytes_text(top['bytes'])} in {plural(top['count'], 'allocation')}"
        lines.append(f"The largest recorded stack is {top['line']}: {size}.")
        if has_history(timeline):
            lines.append(_without_top(timeline, top))
    if stretch["from_event"] >= 0 and stretch["added_bytes"] and not single:
        most = stretch["stacks"][0]
        length = timeline.peak_event - stretch["from_event"]
        is_most = 2 * most["bytes"] > stretch["added_bytes"]
        if is_most or length <= _SHORT * len(timeline.events):
            where = f", most of it in {most['line']} ({bytes_text(most['bytes'])})" if is_most else ""
            added = bytes_text(stretch["added_bytes"])
            lines.append(f"The last {plural(length, 'event')} before the peak added {added}{where}.")
    return lines


def _without_top(timeline: DeviceTimeline, top: PeakStackRow) -> str:
    """The effect of removing the largest stack, and the second maximum that limits it."""
    peak, rest, event = timeline.peak_bytes, top["peak_without_bytes"], top["peak_without_event"]
    where = "the start of the trace" if event < 0 else f"event {count_text(event)}"
    if rest == peak:
        return f"Removing it would not lower the peak: {where} is as high."
    if event == timeline.peak_event:
        return f"Removing it lowers the peak to {bytes_text(rest)}."
    if peak - rest < 0.8 * top["bytes"] and int(timeline.allocated[event + 1]) >= _ALMOST * peak:
        return f"Removing it lowers the peak only to {bytes_text(rest)}, because {where} is almost as high."
    return f"Removing it lowers the peak to {bytes_text(rest)}, at {where}."


def _counted_by_torch(timeline: DeviceTimeline) -> int | None:
    """The value of ``torch.cuda.max_memory_allocated()``; None where the recording does not have it."""
    is_known = has_history(timeline) and timeline.kind == "cuda" and not timeline.recording_gaps
    is_known = is_known and not timeline.recording.is_profiled
    return timeline.max_memory_allocated if is_known else None


def _basis(timeline: DeviceTimeline, evidence: PeakEvidence) -> list[str]:
    lines = basis_of(timeline)
    lines.append("Categories follow from function and file names and from how long an allocation lived.")
    share = share_text(evidence["module_bytes"], timeline.peak_bytes)
    lines.append(f"{share} of the peak was allocated in the forward pass of an nn.Module, named by file and line.")
    if evidence["before_trace_bytes"] and has_history(timeline):
        older = evidence["before_trace_bytes"]
        lines.append(f"{share_text(older, timeline.peak_bytes)} of it was allocated before recording started.")
    return lines


def _confidence(timeline: DeviceTimeline) -> Confidence:
    """The bytes are as recorded; whether the recording covers the peak of the whole run is another matter. A final
    state claims no more than it shows.
    """
    if not has_history(timeline):
        return "sure"
    return "likely" if timeline.recording_gaps else "sure"
