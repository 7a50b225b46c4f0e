"""What stands behind the peak: who held how much, what came last, and what the peak would be without each of the
greatest.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from snapreport.findings.basis import basis_of
from snapreport.findings.live import MOST, Names, by_category, by_function, by_module, by_stack, live_at, names_of, told
from snapreport.findings.model import Confidence, Finding
from snapreport.number_format import bytes_text, count_text, device_name, plural, share_text, size_text
from snapreport.timeline.build import DeviceTimeline, Snapshot
from snapreport.timeline.recording_gaps import contradicts, has_history

_LATE = 0.75
"""The last stretch before the peak begins where allocated was last at most this share of the peak."""


def peak_findings(snapshot: Snapshot, timeline: DeviceTimeline) -> list[Finding]:
    """One for a device that has allocations."""
    peak, event = timeline.peak_bytes, timeline.peak_event
    if not peak:
        return []
    names = names_of(snapshot)
    live = live_at(timeline.allocations, event)
    categories = by_category(live)
    stacks = [{**row, **without(timeline, row["stack"])} for row in by_stack(live, names)]
    modules = by_module(live, names)
    stretch = last_stretch(timeline, live, names)
    in_modules = modules.filter(pl.col("module") != "")
    evidence = {
        "peak_bytes": peak,
        "peak_event": event,
        "reserved_bytes": int(timeline.reserved[event + 1]),
        "count": len(live),
        "categories": categories,
        "unknown_bytes": next((row["bytes"] for row in categories if row["category"] == "unknown"), 0),
        "no_frames_bytes": timeline.peak_stackless_bytes,
        "before_trace_bytes": int(live.filter(pl.col("alloc_event") < 0)["size"].sum()),
        "stacks": stacks,
        "functions": by_function(live, names),
        "modules": in_modules.head(MOST).rows(named=True),
        "module_bytes": int(in_modules["bytes"].sum()),
        "last_stretch": stretch,
    }
    return [
        Finding(
            kind="peak",
            device=timeline.device,
            severity="info",
            title=_title(timeline, categories),
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
    rows = timeline.allocations.filter(pl.col("stack") == stack).select("alloc_event", "free_event", "size")
    born, freed, size = (rows[name].to_numpy() for name in rows.columns)
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


def last_stretch(timeline: DeviceTimeline, live: pl.DataFrame, names: Names) -> dict[str, Any]:
    """What was added on the way from 75 % of the peak up to it, and is still there.

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


def _title(timeline: DeviceTimeline, categories: list[dict[str, Any]]) -> str:
    name = device_name(timeline.kind, timeline.device)
    shares = [f"{share_text(row['bytes'], timeline.peak_bytes)} {row['category']}" for row in categories[:3]]
    when = "before the first event" if timeline.peak_event < 0 else f"at event {count_text(timeline.peak_event)}"
    if not has_history(timeline):
        return f"{name} held {size_text(timeline.peak_bytes)} when the snapshot was taken: {told(shares)}"
    return f"{name} peaked at {size_text(timeline.peak_bytes)} {when}: {told(shares)}"


def _detail(timeline: DeviceTimeline, evidence: dict[str, Any]) -> list[str]:
    peak = timeline.peak_bytes
    lines = []
    top = next((row for row in evidence["stacks"] if row["stack"]), None)
    if top:
        line = f"The greatest stack holds {bytes_text(top['bytes'])} ({share_text(top['bytes'], peak)}): "
        line += f"{top['function']}, {plural(top['count'], 'allocation')}."
        if has_history(timeline):
            line += f" Without it the peak would be {bytes_text(top['peak_without_bytes'])}"
            moved = top["peak_without_event"] != timeline.peak_event
            line += (
                f", at event {count_text(top['peak_without_event'])}."
                if moved and top["peak_without_event"] >= 0
                else "."
            )
        lines.append(line)
    stretch = evidence["last_stretch"]
    if stretch["from_event"] >= 0 and stretch["added_bytes"]:
        most = stretch["stacks"][0]
        span = timeline.peak_event - stretch["from_event"]
        lines.append(
            f"The last {plural(span, 'event') if span > 1 else 'event'} before it added "
            f"{bytes_text(stretch['added_bytes'])} that were still there, "
            f"{bytes_text(most['bytes'])} of it by {most['function']}."
        )
    if evidence["unknown_bytes"]:
        unknown = f"{share_text(evidence['unknown_bytes'], peak)} of it is of unknown category"
        bare = evidence["no_frames_bytes"]
        reasons = ["without frames"] * (bare > 0) + ["no rule knows its stacks"] * (evidence["unknown_bytes"] > bare)
        lines.append(f"{unknown}: {', or '.join(reasons)}.")
    return lines


def _basis(timeline: DeviceTimeline, evidence: dict[str, Any]) -> list[str]:
    lines = basis_of(timeline)
    lines.append("Categories are told by rules from function and file names, and by how long an allocation lived.")
    share = share_text(evidence["module_bytes"], timeline.peak_bytes)
    lines.append(
        f"{share} of the peak was allocated under the forward call of an nn.Module; frames do not hold the names of "
        "modules, "
        "which are told by file and line."
    )
    if evidence["before_trace_bytes"] and has_history(timeline):
        older = evidence["before_trace_bytes"]
        lines.append(f"{share_text(older, timeline.peak_bytes)} of it was allocated before the trace began.")
    if not has_history(timeline):
        lines.append("No allocation or free was recorded: an earlier peak would not be seen.")
    if contradicts(timeline):
        lines.append("More is allocated than reserved at some positions: the record contradicts itself.")
    return lines


def _confidence(timeline: DeviceTimeline) -> Confidence:
    """The bytes are what the record says; whether the record saw the peak of the whole run is another matter."""
    if not has_history(timeline):
        return "guess"
    return "likely" if timeline.recording_gaps else "sure"
