"""What is live at the end of a trace and was not before it: the leaks in it, then all of it as the fact that it is.

What a trace leaves behind is no leak by itself: parameters and optimizer state of a run that was recorded from its
start, caches, and what a step in progress needs are live at its end, too. Only growth step by step says more, see
``leaks.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from snapreport.findings.basis import basis_of
from snapreport.findings.leaks import leak_findings, least_bytes
from snapreport.findings.live import Names, by_category, by_place, by_stack, names_of, told
from snapreport.findings.model import Finding
from snapreport.findings.slices import Slices, repetitions
from snapreport.number_format import bytes_text, count_text, device_name, plural, share_text
from snapreport.timeline.build import DeviceTimeline, Snapshot

_TOLD = 3


def end_findings(snapshot: Snapshot, timeline: DeviceTimeline) -> list[Finding]:
    """The leaks of one device, greatest first, hints of reference cycles, and what is new at the end."""
    slices = repetitions(timeline)
    leaks = leak_findings(snapshot, timeline, slices) if slices else []
    return leaks + _kept(timeline, names_of(snapshot), slices, leaks)


def _kept(timeline: DeviceTimeline, names: Names, slices: Slices | None, leaks: Sequence[Finding]) -> list[Finding]:
    """None where less is new than a leak would have to be."""
    live = timeline.allocations.filter(pl.col("free_event") < 0)
    new = live.filter(pl.col("alloc_event") >= 0)
    size, older = int(new["size"].sum()), int(live["size"].sum())
    older -= size
    if size < least_bytes(timeline):
        return []
    start, end = int(timeline.allocated[0]), int(timeline.allocated[-1])
    last = len(timeline.events) - 1
    growing = [leak for leak in leaks if leak.severity != "info"]
    stacks = by_stack(new, names)
    categories = by_category(new)
    evidence = {
        "start_bytes": start,
        "end_bytes": end,
        "new_bytes": size,
        "new_count": len(new),
        "first_half_bytes": int(new.filter(pl.col("alloc_event") < len(timeline.events) // 2)["size"].sum()),
        "older_bytes": older,
        "older_count": len(live) - len(new),
        "leak_bytes": sum(leak.bytes for leak in growing),
        "steps": slices.count if slices else None,
        "categories": categories,
        "stacks": stacks,
        "places": by_place(new, names),
    }
    shares = told([f"{share_text(row['bytes'], size)} {row['category']}" for row in categories[:_TOLD]])
    name = device_name(timeline.kind, timeline.device)
    return [
        Finding(
            kind="kept",
            device=timeline.device,
            severity="info",
            title=f"{bytes_text(size)} live at the end of {name} were allocated within the trace: {shares}",
            detail=[_when(evidence), _most(evidence), _growth(evidence, slices)],
            bytes=size,
            event=last,
            stack=stacks[0]["stack"],
            evidence=evidence,
            basis=basis_of(timeline),
            confidence="likely" if timeline.reconciliation_bytes else "sure",
            link={"view": "flame", "at": last, "query": "origin:traced live:end"},
        )
    ]


def _when(evidence: dict[str, Any]) -> str:
    early = evidence["first_half_bytes"]
    first = f"{bytes_text(early) if early else 'none'} of it from the first half of the trace"
    older = evidence["older_bytes"]
    text = f"{plural(evidence['new_count'], 'allocation')}, {first}; "
    return text + (
        f"another {bytes_text(older)} were live before it and still are." if older else "nothing else was live then."
    )


def _most(evidence: dict[str, Any]) -> str:
    top = [
        f"{row['place']} ({bytes_text(row['bytes'])}, {count_text(row['count'])}×)"
        for row in evidence["places"][:_TOLD]
    ]
    return f"Most by {told(top)}."


def _growth(evidence: dict[str, Any], slices: Slices | None) -> str:
    if slices is None:
        return "Whether it grows cannot be told: nothing in the trace repeats often enough."
    if evidence["leak_bytes"]:
        return (
            f"{bytes_text(evidence['leak_bytes'])} of it grow {slices.unit} by {slices.unit}, which is told as a leak."
        )
    return f"No stack of it grows {slices.unit} by {slices.unit}, so that none is called a leak."
