"""The composition of the peak: bytes by stack, the last stretch before it, and the peak without each of the largest
stacks.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import polars as pl
from msgspec.structs import asdict

from snapreport.contracts.finding import Confidence, Evidence, Link, Row
from snapreport.findings.basis import basis_of
from snapreport.findings.live import (
    MOST,
    CategoryRow,
    FunctionRow,
    Names,
    PlaceRow,
    StackRow,
    by_category,
    by_function,
    by_module,
    by_place,
    by_stack,
    category_text,
    has_recorded_modules,
    live_at,
    main_parts,
    names_of,
)
from snapreport.findings.longer_step import longer_step
from snapreport.findings.model import Finding, FindingKind
from snapreport.findings.saving import peak_without
from snapreport.number_format import bytes_text, plural, share_text, upper_first
from snapreport.sentence import bytes_part, device_part, event_part, joined, sentence
from snapreport.snapshot import Snapshot
from snapreport.timeline.build import DeviceTimeline
from snapreport.timeline.recorded_totals import recorded_peaks
from snapreport.timeline.recording_gaps import has_history, lost_peaks, recording_start

_LAST_LOW_SHARE = 0.75
"""The last stretch before the peak begins where allocated was last at most this share of the peak."""
_MAX_RISE_SHARE = 0.05
"""Of the trace's events: a longer stretch is the normal course of the program, and one line does not explain it."""
_SIMILAR_PEAK_SHARE = 0.9
"""Of the peak: a moment that high is almost as high."""


class PeakStackRow(StackRow):
    """And the peak had the stack's allocations not been there."""

    peak_without_bytes: int
    peak_without_event: int


class ModuleRow(Row):
    module: str
    bytes: int
    count: int


class LastStretch(Row):
    """The bytes added from ``from_event`` up to the peak that are still allocated."""

    from_event: int
    added_bytes: int
    count: int
    categories: list[CategoryRow]
    stacks: list[StackRow]


class PeakEvidence(Evidence):
    """``max_memory_allocated_bytes``: PyTorch's own statistic, None where it cannot be known. ``recorded_peak_bytes``,
    ``recorded_peak_reserved_bytes``: peaks of the process that our recorder noted; None where it did not. is_lost: the
    trace lost that peak; all else is about the peak of what is left of it.
    """

    peak_bytes: int
    peak_event: int
    recorded_peak_bytes: int | None
    recorded_peak_reserved_bytes: int | None
    is_lost: bool
    reserved_bytes: int
    max_memory_allocated_bytes: int | None
    count: int
    categories: list[CategoryRow]
    inferred_categories: list[str]
    unknown_bytes: int
    no_frames_bytes: int
    before_trace_bytes: int
    stacks: list[PeakStackRow]
    functions: list[FunctionRow]
    places: list[PlaceRow]
    modules: list[ModuleRow]
    modules_source: Literal["recorded", "inferred"]
    module_bytes: int
    last_stretch: LastStretch


def peak_findings(snapshot: Snapshot, timeline: DeviceTimeline) -> list[Finding]:
    """One for a device that has allocations."""
    peak, event = timeline.peak_bytes, timeline.peak_event
    if not peak:
        return []
    names = names_of(snapshot)
    live = live_at(timeline.allocations, event)
    categories = by_category(live)
    stacks = [PeakStackRow(**asdict(row), **without(timeline, row.stack)) for row in by_stack(live, names)]
    modules = by_module(live, names)
    stretch = last_stretch(timeline, live, names)
    in_modules = modules.filter(pl.col("module") != "")
    evidence = PeakEvidence(
        peak_bytes=peak,
        peak_event=event,
        recorded_peak_bytes=recorded.allocated if (recorded := recorded_peaks(timeline)) else None,
        recorded_peak_reserved_bytes=recorded.reserved if recorded else None,
        is_lost=lost_peaks(timeline) is not None,
        reserved_bytes=int(timeline.reserved[event + 1]),
        max_memory_allocated_bytes=counted_by_torch(timeline),
        count=len(live),
        categories=categories,
        inferred_categories=_inferred(live, categories),
        unknown_bytes=next((row["bytes"] for row in categories if row["category"] == "unknown"), 0),
        no_frames_bytes=timeline.peak_stackless_bytes,
        before_trace_bytes=int(live["size"].filter(live["alloc_event"] < 0).sum()),
        stacks=stacks,
        functions=by_function(live, names),
        places=by_place(live, names),
        modules=[ModuleRow(**row) for row in in_modules.head(MOST).rows(named=True)],
        modules_source="recorded" if has_recorded_modules(live) else "inferred",
        module_bytes=int(in_modules["bytes"].sum()),
        last_stretch=stretch,
    )
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
            link=Link(view="timeline", at=event, query="live:peak"),
        )
    ]


def without(timeline: DeviceTimeline, stack: int) -> dict[str, Any]:
    """``peak_without_bytes``, ``peak_without_event``: the peak had the stack's allocations not been there. Exact, by a
    new curve.
    """
    table = timeline.allocations
    rows = np.flatnonzero(table["stack"].to_numpy() == stack)
    peak, event, _ = peak_without(timeline, rows, table["size"].to_numpy()[rows])
    return {"peak_without_bytes": peak, "peak_without_event": event}


def last_stretch(timeline: DeviceTimeline, live: pl.DataFrame, names: Names) -> LastStretch:
    """From the last position at which allocated was at most 75% of the peak (-1: it never was)."""
    before = timeline.allocated[: timeline.peak_event + 1]
    low = np.flatnonzero(before <= _LAST_LOW_SHARE * timeline.peak_bytes)
    start = int(low.max(initial=0)) - 1
    added = live.filter(pl.col("alloc_event") > start)
    return LastStretch(
        from_event=start,
        added_bytes=int(added["size"].sum()),
        count=len(added),
        categories=by_category(added),
        stacks=by_stack(added, names, 5),
    )


def _title(timeline: DeviceTimeline, evidence: PeakEvidence) -> str:
    name = device_part(timeline.kind, timeline.device)
    recorded = lost_peaks(timeline)
    allocated, reserved = bytes_part(timeline.peak_bytes), bytes_part(evidence["reserved_bytes"])
    if recorded:
        return sentence(
            "Peak on {name}: {} allocated, {} reserved, counted by PyTorch before the first event",
            bytes_part(recorded.allocated),
            bytes_part(recorded.reserved),
            name=name,
        )
    has_reserved = timeline.kind != "host" and not (timeline.recording.is_profiled and not timeline.reserved.any())
    sizes = (
        sentence("{allocated} allocated, {reserved} reserved", allocated=allocated, reserved=reserved)
        if has_reserved
        else sentence("{allocated} allocated", allocated=allocated)
    )
    if not has_history(timeline):
        return sentence("Final state of {name}: {sizes}", name=name, sizes=sizes)
    when = "before the first event" if timeline.peak_event < 0 else sentence("{}", event_part(timeline.peak_event))
    least = "at least " if _may_miss_events(timeline) and not recorded_peaks(timeline) else ""
    return sentence("Peak on {name}: {least}{sizes} ({when})", name=name, least=least, sizes=sizes, when=when)


def composition(evidence: Row) -> str:
    """The main categories of the peak: ``Activations 26.2 GiB, gradients 12.7 GiB (inferred)``; where it was lost, of
    what is left.
    """
    inferred = evidence["inferred_categories"]
    parts = [
        sentence("{name} {}{}", bytes_part(size), " (inferred)" if name in inferred else "", name=name)
        for name, size in main_parts(evidence["categories"])
    ]
    text = joined(parts, ", ")
    if not evidence["is_lost"]:
        return sentence("{}.", upper_first(text))
    place = "its start" if evidence["peak_event"] < 0 else event_part(evidence["peak_event"])
    return sentence(
        "The trace lost its oldest events. What is left of it peaks at {}, at {place}: {text}.",
        bytes_part(evidence["peak_bytes"]),
        place=place,
        text=text,
    )


def _inferred(live: pl.DataFrame, categories: list[CategoryRow]) -> list[str]:
    """Names of the categories of which most bytes are inferred rather than recorded or seen in a stack."""
    guessed = live.filter(pl.col("category_source") == "inferred")
    of = {row["category"]: row["bytes"] for row in by_category(guessed)}
    return [category_text(row["category"]) for row in categories if 2 * of.get(row["category"], 0) > row["bytes"]]


def _detail(timeline: DeviceTimeline, evidence: PeakEvidence) -> list[str]:
    lines: list[str] = []
    counted = evidence["max_memory_allocated_bytes"]
    if counted is not None and bytes_text(counted) != bytes_text(timeline.counted_stats.peak_allocated_bytes):
        lines.append(
            sentence(
                "`torch.cuda.max_memory_allocated()` {reported} {}: it counts rounded blocks.",
                bytes_part(counted),
                reported="reported" if evidence["is_lost"] else "would report",
            )
        )
    # A failure says it of its own step.
    if not timeline.oom_events and (longer := longer_step(timeline, timeline.peak_event, "the peak's")):
        lines.append(longer)
    stretch = evidence["last_stretch"]
    single = stretch["from_event"] >= 0 and stretch["count"] == 1
    if single:
        most = stretch["stacks"][0]
        lines.append(
            sentence("One allocation set the peak: {} in {}.", bytes_part(stretch["added_bytes"]), most["line"])
            if most["stack"]
            else sentence("One allocation without a stack trace set the peak: {}.", bytes_part(stretch["added_bytes"]))
        )
    top = next((row for row in evidence["stacks"] if row["stack"]), None)
    if top:
        size = sentence("{} in {}", bytes_part(top["bytes"]), plural(top["count"], "allocation"))
        lines.append(sentence("The largest recorded stack is {}: {size}.", top["line"], size=size))
        if has_history(timeline):
            lines.append(_without_top(timeline, top))
    if stretch["from_event"] >= 0 and not single:
        most = stretch["stacks"][0]
        length = timeline.peak_event - stretch["from_event"]
        is_most = 2 * most["bytes"] > stretch["added_bytes"]
        if is_most or length <= _MAX_RISE_SHARE * len(timeline.events):
            where = sentence(", most of it in {} ({})", most["line"], bytes_part(most["bytes"])) if is_most else ""
            added = bytes_part(stretch["added_bytes"])
            lines.append(
                sentence(
                    "The last {} before the peak added {added}{where}.",
                    plural(length, "event"),
                    added=added,
                    where=where,
                )
            )
    return lines


def _without_top(timeline: DeviceTimeline, top: PeakStackRow) -> str:
    """The effect of removing the largest stack, and the second maximum that limits it."""
    peak, rest, event = timeline.peak_bytes, top["peak_without_bytes"], top["peak_without_event"]
    where = event_part(event)
    if rest == peak:
        return sentence("Removing it would not lower the peak: {where} is as high.", where=where)
    if event == timeline.peak_event:
        return sentence("Removing it lowers the peak to {}.", bytes_part(rest))
    if peak - rest < 0.8 * top["bytes"] and int(timeline.allocated[event + 1]) >= _SIMILAR_PEAK_SHARE * peak:
        return sentence(
            "Removing it lowers the peak only to {}, because {where} is almost as high.", bytes_part(rest), where=where
        )
    return sentence("Removing it lowers the peak to {}, at {where}.", bytes_part(rest), where=where)


def counted_by_torch(timeline: DeviceTimeline) -> int | None:
    """The value of ``torch.cuda.max_memory_allocated()``; None where the recording does not have it."""
    if lost := lost_peaks(timeline):
        return lost.blocks
    is_known = has_history(timeline) and timeline.kind == "cuda" and not timeline.recording_gaps
    is_known = is_known and not timeline.recording.is_profiled
    return timeline.max_memory_allocated if is_known else None


def _basis(timeline: DeviceTimeline, evidence: PeakEvidence) -> list[str]:
    lines = basis_of(timeline)
    lines.append("Categories follow from function and file names and from how long an allocation lived.")
    share = share_text(evidence["module_bytes"], timeline.peak_bytes)
    lines.append(
        sentence(
            "{share} of the peak was allocated in the forward pass of an nn.Module, named by file and line.",
            share=share,
        )
    )
    if evidence["before_trace_bytes"] and has_history(timeline):
        older = evidence["before_trace_bytes"]
        lines.append(
            sentence(
                "{} of it was allocated {start}.",
                share_text(older, timeline.peak_bytes),
                start=recording_start(timeline),
            )
        )
    return lines


def _confidence(timeline: DeviceTimeline) -> Confidence:
    """The bytes are as recorded; whether the recording covers the peak of the whole run is another matter. A final
    state claims no more than it shows.
    """
    if not has_history(timeline):
        return "measured"
    return "inferred" if _may_miss_events(timeline) else "measured"


def _may_miss_events(timeline: DeviceTimeline) -> bool:
    """Whether the recording shows gaps, or a single event: that shows no peak."""
    return bool(timeline.recording_gaps) or len(timeline.events) < 2


PEAK = FindingKind("peak", "Peak", (PeakEvidence,), peak_findings, of_profile=True)
