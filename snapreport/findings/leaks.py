"""Leaks of one device: growth repetition after repetition, and whether a recording can show it at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import polars as pl
from msgspec import Struct

from snapreport.contracts.finding import Evidence, Link, Row
from snapreport.findings.allocation_growth import GrowingStack, growing_stacks, loop_allocations, single_growths
from snapreport.findings.basis import basis_of
from snapreport.findings.common_caller import common_caller
from snapreport.findings.failed_requests import ends_in_failure, with_failed_requests
from snapreport.findings.live import Names, by_category, live_at
from snapreport.findings.loop_lines import outside_modules
from snapreport.findings.lowest_live import lowest_live
from snapreport.findings.model import Finding, FindingKind
from snapreport.findings.reference_cycles import CycleEvidence
from snapreport.findings.repetition import FEWEST, Repetitions
from snapreport.findings.saving import SavingRow, peak_without, peak_without_spans
from snapreport.findings.selection import any_of, stack_term
from snapreport.number_format import count_text, plural
from snapreport.sentence import bytes_part, listed, sentence
from snapreport.timeline.build import DeviceTimeline

MOST = 10
_ONE_CAUSE = 3
"""So many stacks that grow together are one leak: a list of outputs pins the activations of a whole forward pass."""
_OFF = 0.1
"""Of what the repetitions kept by their number: where all of it is more or less, the title does not count them."""
_LISTED = 5
TOO_FEW_STEPS = "Too few steps to detect a leak: record at least four."
START_IS_END = "As much is allocated at the end as at the start, but too few steps are recorded to rule out a leak."


class LeakStackRow(Row):
    stack: int
    place: str
    bytes: int
    count: int
    bytes_per_step: int


class LeakEvidence(Evidence):
    """Memory that grows. ``freed_bytes``: of ``live_bytes``, freed after the last repetition. ``every``: in so many
    repetitions once; ``bounds``: the events at which repetitions begin, and
    the end of the last; ``staircase``: the lowest live bytes of each. ``needed_peak_bytes``: the peak if each
    repetition keeps its part until the next one allocates its own.
    """

    bytes_per_step: int
    live_bytes: int
    live_count: int
    every: int
    unit: str
    freed_bytes: int
    steps: int
    staircase: list[int]
    bounds: list[int]
    device_limit: int
    replaced: bool
    category: str
    caller: str
    stacks: list[LeakStackRow]
    saving: SavingRow
    needed_peak_bytes: int


class LeakVerdict(Struct, frozen=True):
    """Whether a device leaks. ``status``: "unknown" where the recording cannot show it; ``reason``: a sentence."""

    status: Literal["leak", "none", "unknown"]
    reason: str


def leak_verdict(
    timeline: DeviceTimeline, names: Names, repetitions: Repetitions | None, leaks: Sequence[Finding]
) -> LeakVerdict:
    """``leaks``: of :func:`leak_findings`. "none" only where nothing grew over enough repetitions."""
    if any(leak.severity != "info" for leak in leaks):
        return LeakVerdict("leak", leaks[0].title)
    if not len(timeline.events):
        return LeakVerdict("unknown", "No trace: a leak shows only over several steps.")
    if repetitions is None or not repetitions.is_loop or repetitions.finished < FEWEST:
        if timeline.allocated[0] == timeline.allocated[-1] != 0:
            return LeakVerdict("unknown", START_IS_END)
        return LeakVerdict("unknown", TOO_FEW_STEPS)
    reported = {row["stack"] for leak in leaks for row in leak.evidence["stacks"]}
    suspects = [g for g in growing_stacks(timeline, repetitions) if g.is_suspect and g.stack not in reported]
    over = plural(repetitions.finished, repetitions.unit)
    if suspects:
        most = max(suspects, key=lambda growth: growth.bytes)
        return LeakVerdict(
            "unknown",
            sentence(
                "{} grew {} times in {over}, to {}: a leak, or a cache that fills. Record more steps.",
                names.place(most.stack),
                most.growths,
                bytes_part(most.bytes),
                over=over,
            ),
        )
    none = sentence("No leak found over {over}.", over=over)
    if not (single := single_growths(timeline, repetitions)):
        return LeakVerdict("none", none)
    stack, growth = single[0]
    once = sentence(
        "{} grew once, by {}, in the {} {unit} of {}",
        names.place(stack),
        bytes_part(growth.bytes),
        _ordinal(growth.at + 1),
        count_text(repetitions.finished),
        unit=repetitions.unit,
    )
    if growth.is_open:
        return LeakVerdict(
            "unknown", sentence("{once}: a leak, or a buffer that is made once. Record more steps.", once=once)
        )
    return LeakVerdict("none", sentence("{none} {once}.", none=none, once=once))


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def leak_findings(timeline: DeviceTimeline, names: Names, repetitions: Repetitions | None) -> list[Finding]:
    """The leaks of one device and the growth of KV caches, most bytes a repetition first."""
    if repetitions is None or not repetitions.is_loop:
        return []
    growths = [growth for growth in growing_stacks(timeline, repetitions) if not growth.is_suspect]
    piled = [growth for growth in growths if not growth.replaced]
    caches = [growth for growth in growths if growth.replaced]
    groups = _by_cause(piled, names) + _by_cause(caches, names)
    groups.sort(key=lambda group: -_per_repetition(group))
    total = sum(_per_repetition(group) for group in groups)
    return [_leak(timeline, names, repetitions, group, total) for group in groups[:MOST]]


def _by_cause(growths: Sequence[GrowingStack], names: Names) -> list[Sequence[GrowingStack]]:
    """Growths that are one leak: all where they are many, else those of one line of the program."""
    if len(growths) >= _ONE_CAUSE:
        return [growths]
    groups: dict[tuple[str, int], list[GrowingStack]] = {}
    for growth in growths:
        groups.setdefault((names.place(growth.stack), growth.every), []).append(growth)
    return list(groups.values())


def _per_repetition(group: Sequence[GrowingStack]) -> int:
    return sum(round(growth.per_repetition) for growth in group)


def _leak(
    timeline: DeviceTimeline, names: Names, repetitions: Repetitions, group: Sequence[GrowingStack], all_leaks: int
) -> Finding:
    """``group``: stacks of one leak, the fastest first. ``all_leaks``: bytes a repetition of all leaks together."""
    stacks = np.array(sorted(growth.stack for growth in group))
    remaining = loop_allocations(timeline, repetitions).filter(
        (pl.col("free_event") < 0) & (pl.col("alloc_event") >= 0) & pl.col("stack").is_in(pl.Series(stacks).implode())
    )
    end = int(repetitions.bounds[-1]) - 2  # the loop's last event
    freed = timeline.allocations["free_event"].gather(remaining["id"]) >= 0
    size = int(remaining["size"].sum())
    category = by_category(remaining)[0]["category"]
    is_cache = _is_cache(timeline, group[0], category)
    moment = str(end) if freed.any() else "end"
    query = sentence("{} origin:traced live:{}", any_of([stack_term(stack) for stack in stacks.tolist()]), moment)
    limit = device_limit(timeline)
    stairs = _staircase(timeline, stacks, repetitions)
    evidence = LeakEvidence(
        bytes_per_step=_per_repetition(group),
        live_bytes=size,
        live_count=len(remaining),
        every=group[0].every,
        unit=repetitions.unit,
        freed_bytes=int(remaining["size"].filter(freed).sum()),
        steps=repetitions.finished,
        staircase=stairs.tolist(),
        bounds=(repetitions.bounds - 1).tolist(),  # events: each repetition begins at one; the last ends before one
        device_limit=limit,
        replaced=group[0].replaced,
        category=category,
        caller=common_caller(timeline, {growth.stack: growth.bytes for growth in group}),
        stacks=[
            LeakStackRow(
                stack=growth.stack,
                place=names.place(growth.stack),
                bytes=growth.bytes,
                count=growth.count,
                bytes_per_step=round(growth.per_repetition),
            )
            for growth in group
        ],
        saving=_saving(timeline, remaining, query),
        needed_peak_bytes=_peak_with_one_each(timeline, remaining, repetitions),
    )
    return Finding(
        kind="leak",
        device=timeline.device,
        severity="info" if is_cache else "warning",
        title=_title(evidence, is_cache=is_cache),
        detail=_detail(timeline, remaining, evidence, all_leaks, is_cache=is_cache),
        bytes=size,
        event=end if freed.any() else len(timeline.events) - 1,
        stack=group[0].stack,
        evidence=evidence,
        basis=[
            sentence("{}: {}.", plural(repetitions.finished, repetitions.unit), repetitions.source),
            *basis_of(timeline),
        ],
        confidence="inferred" if repetitions.count >= 2 * FEWEST else "estimate",
        link=Link(view="timeline", query=query),
    )


def _title(evidence: LeakEvidence, *, is_cache: bool) -> str:
    unit, place = evidence["unit"], evidence["stacks"][0]["place"]
    amount, total = bytes_part(evidence["bytes_per_step"] * evidence["every"]), bytes_part(evidence["live_bytes"])
    often = (
        sentence("every {unit}", unit=unit)
        if evidence["every"] == 1
        else sentence("every {} {unit}s", evidence["every"], unit=unit)
    )
    # The first repetition may hold several iterations, as before the loop's first step is seen.
    kept = evidence["bytes_per_step"] * evidence["steps"]
    in_all = not is_cache and not evidence["replaced"] and abs(evidence["live_bytes"] - kept) > _OFF * kept
    after = sentence("{total} in all", total=total)
    if not in_all:
        after = sentence("{total} after {}", plural(evidence["steps"], unit), total=total)
    if is_cache:
        what = "The KV cache" if evidence["category"] == "kv cache" else "A cache"
        return sentence(
            "{what} grows by {amount} {often} in {place}, to {after}",
            what=what,
            amount=amount,
            often=often,
            place=place,
            after=after,
        )
    if evidence["replaced"]:
        return sentence(
            "Leak: {place} replaces its tensor by one {amount} larger {often}, {after}",
            place=place,
            amount=amount,
            often=often,
            after=after,
        )
    if len({row["place"] for row in evidence["stacks"]}) == 1:
        return sentence(
            "Leak: {place} keeps {amount} {often}, {after}", place=place, amount=amount, often=often, after=after
        )
    where = (
        sentence("in calls from {caller}", caller=caller)
        if (caller := evidence["caller"]) and caller != place
        else sentence("most of it in {place}", place=place)
    )
    return sentence(
        "Leak: {amount} stay allocated {often}, {where}, {after}", amount=amount, often=often, where=where, after=after
    )


def _detail(
    timeline: DeviceTimeline, remaining: pl.DataFrame, evidence: LeakEvidence, all_leaks: int, *, is_cache: bool
) -> list[str]:
    unit, stairs, saving = evidence["unit"], evidence["staircase"], evidence["saving"]
    lines: list[str] = []
    if not evidence["replaced"]:
        fate = "none of them was freed"
        if evidence["freed_bytes"]:
            share = "all" if evidence["freed_bytes"] == evidence["live_bytes"] else "some"
            fate = sentence("{share} of them were freed only after the last {unit}", share=share, unit=unit)
        lines.append(sentence("It made {}; {fate}.", plural(evidence["live_count"], "allocation"), fate=fate))
    places: dict[str, int] = {}
    for row in evidence["stacks"]:
        places[row["place"]] = places.get(row["place"], 0) + row["bytes_per_step"]
    if len(places) > 1:
        rows = sorted(places.items(), key=lambda item: -item[1])
        parts: list[str] = [sentence("{place} ({})", bytes_part(size), place=place) for place, size in rows[:_LISTED]]
        if len(rows) > _LISTED:
            parts.append(plural(len(rows) - _LISTED, "other line"))
        lines.append(sentence("Each {unit}: {}.", listed(parts), unit=unit))
    lines.append(
        sentence(
            "The lowest live bytes rose from {} in the second {unit} to {} in the last.",
            bytes_part(stairs[1]),
            bytes_part(stairs[-1]),
            unit=unit,
        )
    )
    failed = [event for event in timeline.oom_events if event >= evidence["bounds"][-3]]
    if failed:  # in one of the last two: the program has met the limit
        held = int(live_at(remaining, failed[-1])["size"].sum())
        total = int(timeline.allocated[failed[-1] + 1])
        lines.append(
            sentence("When memory ran out, {} of the {} allocated came from it.", bytes_part(held), bytes_part(total))
        )
    elif evidence["device_limit"] > timeline.peak_bytes and not is_cache:
        more = int((evidence["device_limit"] - timeline.peak_bytes) // max(1, all_leaks))
        lines.append(
            sentence(
                "Memory runs out after {} more {unit}s at {} each.", count_text(more), bytes_part(all_leaks), unit=unit
            )
        )
    if saving["saves_bytes"] and not is_cache:
        peak, needed = bytes_part(saving["peak_bytes"]), bytes_part(evidence["needed_peak_bytes"])
        or_needed = (
            sentence(", and {needed} if each {unit} needs its part", needed=needed, unit=unit) if needed != peak else ""
        )
        would = "at least {peak} would be needed" if saving["is_lower_bound"] else "the peak would be {peak}"
        would = sentence(would, peak=peak)
        lines.append(sentence("Without the leak {would}{or_needed} (replayed).", would=would, or_needed=or_needed))
    if not is_cache:
        lines.append(_remedy(evidence))
    return lines


def _remedy(evidence: LeakEvidence) -> str:
    if evidence["replaced"]:
        return "Preallocate the tensor, or move what is no longer needed to the CPU."
    if evidence["category"] == "activation" and len(evidence["stacks"]) >= _ONE_CAUSE:
        return sentence(
            "Something still references these tensors, probably through an autograd graph: store `loss.item()` or "
            "`tensor.detach().clone()`."
        )
    if evidence["category"] == "activation" and evidence["live_count"] >= _ONE_CAUSE * evidence["steps"]:
        return sentence(
            "Something still references these tensors, views of them, or a graph that saved them: store `.item()`, "
            "`.cpu()`, or `.detach().clone()` of the part that is needed, and `.detach()` what the next {} starts "
            "with.",
            evidence["unit"],
        )
    if evidence["category"] == "activation":
        # A graph would hold what other lines saved as well. A detached view holds all of the tensor that it is of.
        return sentence(
            "Something still references this tensor or a view of it: store `.item()`, `.cpu()`, or "
            "`.detach().clone()` of the part that is needed."
        )
    if evidence["category"] == "optimizer state":
        return (
            "An optimizer allocates its state once: something probably still references an optimizer or a model that "
            "was replaced. Drop it, or keep using the first one."
        )
    return sentence(
        "Something still references these tensors after the {}: drop it, or move them to the CPU. A buffer that is "
        "meant to fill looks the same until it is full.",
        evidence["unit"],
    )


def _is_cache(timeline: DeviceTimeline, growth: GrowingStack, category: str) -> bool:
    """Whether growth is the purpose of a cache in an inference loop: a KV cache, or a buffer that a module extends
    while nothing trains.
    """
    if category == "kv cache":
        return True
    trains = timeline.allocations["category"].cast(pl.String).is_in(["gradient", "optimizer state"]).any()
    return growth.replaced and not trains and not outside_modules(timeline.recording)[growth.stack]


def _staircase(timeline: DeviceTimeline, stacks: np.ndarray, repetitions: Repetitions) -> np.ndarray:
    """Int64 by repetition: the lowest live bytes of these stacks together."""
    together = timeline.allocations.filter(pl.col("stack").is_in(pl.Series(stacks).implode()))
    together = together.with_columns(stack=pl.lit(0, pl.Int32))
    lowest: np.ndarray = lowest_live(together, np.zeros(1, np.int32), repetitions.bounds)[0]
    return lowest


def _saving(timeline: DeviceTimeline, leaked: pl.DataFrame, query: str) -> SavingRow:
    """The peak without ``leaked``, rows of the timeline's allocations, which ``query`` selects."""
    timeline = with_failed_requests(timeline)
    peak, event, _ = peak_without(timeline, leaked["id"].to_numpy(), leaked["size"].to_numpy())
    return SavingRow(
        query=query,
        fraction=1.0,
        peak_bytes=peak,
        peak_event=event,
        saves_bytes=timeline.peak_bytes - peak,
        is_lower_bound=ends_in_failure(timeline.recording),
        failed_events=[],
    )


def _peak_with_one_each(timeline: DeviceTimeline, leaked: pl.DataFrame, repetitions: Repetitions) -> int:
    """The peak where each of ``leaked`` goes when its repetition has ended and its stack has allocated again, as a
    tensor does whose variable is bound anew.
    """
    births = leaked["alloc_event"].to_numpy().astype(np.int64)
    number = repetitions.of(births + 1)
    ends = np.append(repetitions.bounds, len(timeline.events) + 1)[number + 1] - 1
    generations = leaked.select("stack", "alloc_event", number=pl.Series(number))
    first = generations.group_by("stack", "number").agg(pl.col("alloc_event").min()).sort("stack", "number")
    following = first.with_columns(pl.col("alloc_event").shift(-1).over("stack").alias("next"))
    again = generations.join(following, on=["stack", "number"], how="left", maintain_order="left")["next"]
    ends = np.maximum(ends, again.fill_null(len(timeline.events)).to_numpy() + 1)
    never = np.full(len(leaked), -1)
    alive = ends < len(timeline.events)
    return peak_without_spans(
        with_failed_requests(timeline), ends[alive], never[alive], leaked["size"].to_numpy()[alive]
    )[0]


def device_limit(timeline: DeviceTimeline) -> int:
    """Bytes that the device can allocate: reserved plus free at an out-of-memory error; 0 where none was recorded."""
    best = 0
    for event in timeline.oom_events:
        free = timeline.events["device_free"][event]
        if free is not None:
            best = max(best, int(timeline.reserved[event + 1]) + int(free))
    return best


LEAK = FindingKind("leak", "Leak", (LeakEvidence, CycleEvidence))
