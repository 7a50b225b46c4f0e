"""What a report says of memory that grows: the numbers and sentences of a leak."""

from __future__ import annotations

import numpy as np
import polars as pl

from snapreport.contracts.finding import Evidence, Row
from snapreport.findings.live import NO_STACK_TRACE, live_at
from snapreport.findings.saving import SavingRow
from snapreport.number_format import count_text, plural
from snapreport.sentence import bytes_part, listed, sentence
from snapreport.timeline.build import DeviceTimeline
from snapreport.timeline.lifetimes import IS_TRACED, allocates
from snapreport.timeline.own_code import python_calls

ONE_CAUSE = 3
"""So many stacks that grow together are one leak: a list of outputs pins the activations of a whole forward pass."""
_MAX_DEVIATION = 0.1
"""Of what the repetitions kept by their number: where all of it is more or less, the title does not count them."""
_LISTED = 5


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
    repetition keeps its part until the next one allocates its own. ``replaced``: one tensor that becomes larger. The
    ``stacks`` of other places than its own are computed from it, ``saving`` leaves out earlier copies too, and a
    repetition's part is what it adds. ``joined_bytes``: at the peak, of what is computed from all of them, which
    ``saving`` leaves out as well. ``preallocated_peak_bytes``: the peak where that tensor has its last size from
    the start; 0 where it is not copied.
    """

    bytes_per_step: int
    live_bytes: int
    live_count: int
    joined_bytes: int
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
    preallocated_peak_bytes: int


def leak_title(evidence: LeakEvidence, *, is_cache: bool) -> str:
    """What grows by how much, in one sentence without a period."""
    unit, place = evidence["unit"], evidence["stacks"][0]["place"]
    per_step, live = evidence["bytes_per_step"], evidence["live_bytes"]
    if evidence["replaced"] and not is_cache:
        own = [row for row in evidence["stacks"] if row["place"] == place]
        per_step, live = sum(row["bytes_per_step"] for row in own), sum(row["bytes"] for row in own)
    amount, total = bytes_part(per_step * evidence["every"]), bytes_part(live)
    often = (
        sentence("every {unit}", unit=unit)
        if evidence["every"] == 1
        else sentence("every {} {unit}s", evidence["every"], unit=unit)
    )
    # The first repetition may hold several iterations, as before the loop's first step is seen.
    kept = evidence["bytes_per_step"] * evidence["steps"]
    in_all = not evidence["replaced"] and abs(evidence["live_bytes"] - kept) > _MAX_DEVIATION * kept
    after = sentence("{total} in all", total=total)
    if not in_all:
        after = sentence("{total} after {}", plural(evidence["steps"], unit), total=total)
    if is_cache:
        what = "The KV cache" if evidence["category"] == "kv cache" else "A cache"
        places = list(dict.fromkeys(row["place"] for row in evidence["stacks"]))
        where = sentence(" in {}", listed(places))
        if len(places) > 2:  # more than keys and values
            where = sentence(", most of it in {place}", place=place)
        return sentence(
            "{what} grows by {amount} {often}{where}, to {after}",
            what=what,
            amount=amount,
            often=often,
            where=where,
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
        keep = "keep" if place == NO_STACK_TRACE else "keeps"
        return sentence(
            "Leak: {place} {keep} {amount} {often}, {after}",
            place=place,
            keep=keep,
            amount=amount,
            often=often,
            after=after,
        )
    own, every = (
        sum(row["bytes_per_step"] for row in rows)
        for rows in ([row for row in evidence["stacks"] if row["place"] == place], evidence["stacks"])
    )
    where = (
        sentence("in calls from {caller}", caller=caller)
        if (caller := evidence["caller"]) and caller != place
        else sentence("{most} of it in {place}", most="most" if 2 * own > every else "part", place=place)
    )
    return sentence(
        "Leak: {amount} stay allocated {often}, {where}, {after}", amount=amount, often=often, where=where, after=after
    )


def leak_detail(
    timeline: DeviceTimeline, remaining: pl.DataFrame, evidence: LeakEvidence, all_leaks: int, *, is_cache: bool
) -> list[str]:
    """What keeps growing, when memory runs out, and the remedy. remaining: the leaked rows of the timeline's
    allocations; all_leaks: bytes a repetition of all leaks together.
    """
    unit, stairs, saving = evidence["unit"], evidence["staircase"], evidence["saving"]
    lines: list[str] = []
    if not evidence["replaced"]:
        fate = "none of them was freed"
        if evidence["freed_bytes"]:
            share = "all" if evidence["freed_bytes"] == evidence["live_bytes"] else "some"
            fate = sentence("{share} of them were freed only after the last {unit}", share=share, unit=unit)
        lines.append(sentence("It made {}; {fate}.", plural(evidence["live_count"], "allocation"), fate=fate))
    if evidence["joined_bytes"]:
        lines.append(
            sentence("What is computed from all of them takes {} at the peak.", bytes_part(evidence["joined_bytes"]))
        )
    places: dict[str, int] = {}
    for row in evidence["stacks"]:
        places[row["place"]] = places.get(row["place"], 0) + row["bytes_per_step"]
    if len(places) > 1 and evidence["replaced"] and not is_cache:
        del places[evidence["stacks"][0]["place"]]
        along = sorted(places, key=places.__getitem__, reverse=True)[:_LISTED]
        grown = bytes_part(sum(places.values()))
        lines.append(
            sentence(
                "The allocations of {along} grow with it, by {} every {unit}.", grown, along=listed(along), unit=unit
            )
        )
    elif len(places) > 1:
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
        more = int((evidence["device_limit"] - timeline.peak_bytes) // all_leaks)
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
        lines.append(_of_derivatives(timeline, remaining, unit) or _remedy(timeline, remaining, evidence))
    return lines


def _of_derivatives(timeline: DeviceTimeline, remaining: pl.DataFrame, unit: str) -> str:
    """The remedy for graphs of backward passes, which ``create_graph=True`` builds on those of forward passes: most of
    what leaked has no Python frames, as the engine's threads, beside activations that have some; else "".
    """
    calls = python_calls(timeline.recording)
    of_engine = pl.Series(calls == calls[0]).gather(remaining["stack"])
    forward = (remaining["category"] == "activation") & ~of_engine
    if not forward.any() or 2 * int(remaining["size"].filter(of_engine).sum()) < int(remaining["size"].sum()):
        return ""
    return sentence(
        "Graphs of backward passes hold most of it: `detach()` what the next {unit} starts with, and leave out "
        "`create_graph=True` where nothing differentiates its result.",
        unit=unit,
    )


def _of_attempts(timeline: DeviceTimeline, remaining: pl.DataFrame) -> str:
    """The remedy for forward passes that ended before their backward pass, as by an exception: most of what leaked is
    of stacks that allocated again before any backward pass, and of which other tensors were freed after one; else "".
    """
    events, calls = timeline.events, python_calls(timeline.recording)
    of_engine = allocates(events) & (calls == calls[0])[events["stack"].to_numpy()]
    begun = pl.Series(np.cumsum(of_engine))
    every = timeline.allocations.filter(IS_TRACED & pl.col("stack").is_in(remaining["stack"].implode()))
    every = every.sort("alloc_event").select(
        "stack", "size", leaks=pl.col("id").is_in(remaining["id"].implode()), born="alloc_event",
        again=pl.col("alloc_event").shift(-1, fill_value=len(events) - 1).over("stack"),
    )  # fmt: skip
    is_used = begun.gather(every["again"]) > begun.gather(every["born"])
    trained = every["stack"].filter(is_used & ~every["leaks"]).unique()
    given_up = every.filter(pl.col("leaks") & ~is_used & pl.col("stack").is_in(trained.implode()))
    if 2 * int(given_up["size"].sum()) < int(remaining["size"].sum()):
        return ""
    return (
        "Other forward passes of these lines reached their backward pass, these did not. An exception refers to every "
        "tensor of its frames: store its text, and outputs detached."
    )


def _preallocation(evidence: LeakEvidence) -> str:
    """The remedy for a tensor that grows, with its peak where the replay shows a lower one."""
    saving, peak = evidence["saving"], evidence["preallocated_peak_bytes"]
    if not 0 < peak < saving["peak_bytes"] + saving["saves_bytes"]:
        return "Preallocate the tensor, or move what is no longer needed to the CPU."
    then = "{} or more are needed" if saving["is_lower_bound"] else "peak {}"
    return sentence(
        "Preallocate the tensor: {then} (replayed). Or move what is no longer needed to the CPU.",
        then=sentence(then, bytes_part(peak)),
    )


def _remedy(timeline: DeviceTimeline, remaining: pl.DataFrame, evidence: LeakEvidence) -> str:
    if evidence["replaced"]:
        return _preallocation(evidence)
    if evidence["category"] == "activation" and len(evidence["stacks"]) >= ONE_CAUSE:
        return _of_attempts(timeline, remaining) or sentence(
            "Something still references these tensors, probably through an autograd graph: store `loss.item()` or "
            "`tensor.detach().clone()`."
        )
    if evidence["category"] == "activation" and evidence["live_count"] >= ONE_CAUSE * evidence["steps"]:
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
