"""Leaks of one device: growth repetition after repetition, and whether a recording can show it at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import polars as pl
from msgspec import Struct

from snapreport.contracts.finding import Link
from snapreport.findings.allocation_growth import GrowingStack, LoopMemory, single_growths
from snapreport.findings.basis import basis_of
from snapreport.findings.common_caller import common_caller
from snapreport.findings.failed_requests import ends_in_failure, failures, with_failed_requests
from snapreport.findings.joined_results import joined_results
from snapreport.findings.leak_sentences import ONE_CAUSE, LeakEvidence, LeakStackRow, leak_detail, leak_title
from snapreport.findings.live import Names, by_category, live_at
from snapreport.findings.loop_lines import outside_modules
from snapreport.findings.lowest_live import lowest_live
from snapreport.findings.model import Finding, FindingKind
from snapreport.findings.reference_cycles import CycleEvidence
from snapreport.findings.repetition import FEWEST, Repetitions
from snapreport.findings.saving import SavingRow, bytes_over_time, peak_without, peak_without_spans
from snapreport.findings.selection import any_of, select, stack_term
from snapreport.number_format import count_text, plural
from snapreport.sentence import bytes_part, sentence
from snapreport.timeline.build import DeviceTimeline
from snapreport.timeline.lifetimes import IS_TRACED
from snapreport.timeline.own_code import python_calls
from snapreport.timeline.phases import FORWARD, stack_phases

MOST = 10
TOO_FEW_STEPS = "Too few steps to detect a leak: record at least four."
START_IS_END = "As much is allocated at the end as at the start, but too few steps are recorded to rule out a leak."


class LeakVerdict(Struct, frozen=True):
    """Whether a device leaks. ``status``: "unknown" where the recording cannot show it; ``reason``: a sentence."""

    status: Literal["leak", "none", "unknown"]
    reason: str


def leak_verdict(
    timeline: DeviceTimeline,
    names: Names,
    repetitions: Repetitions | None,
    loop: LoopMemory | None,
    leaks: Sequence[Finding],
) -> LeakVerdict:
    """``leaks``: of :func:`leak_findings`. "none" only where nothing grew over enough repetitions."""
    if any(leak.severity != "info" for leak in leaks):
        return LeakVerdict("leak", leaks[0].title)
    if not len(timeline.events):
        return LeakVerdict("unknown", "No trace: a leak shows only over several steps.")
    if repetitions is None or loop is None or repetitions.finished < FEWEST:
        if timeline.allocated[0] == timeline.allocated[-1] != 0:
            return LeakVerdict("unknown", START_IS_END)
        return LeakVerdict("unknown", TOO_FEW_STEPS)
    suspects = [growth for growth in loop.growing if growth.is_suspect]
    over = plural(repetitions.finished, repetitions.unit)
    if suspects:
        most = max(suspects, key=lambda growth: growth.bytes)
        return LeakVerdict(
            "unknown",
            sentence(
                "{} grew {} times in {over}, to {}: a leak, or a cache that fills. Record more steps.",
                names.subject(most.stack),
                most.growths,
                bytes_part(most.bytes),
                over=over,
            ),
        )
    none = sentence("No leak found over {over}.", over=over)
    if not (single := single_growths(loop)):
        return LeakVerdict("none", none)
    stack, growth = single[0]
    once = sentence(
        "{} grew once, by {}, in the {} {unit} of {}",
        names.subject(stack),
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


def leak_findings(loop: LoopMemory | None, names: Names) -> list[Finding]:
    """The leaks of one device and the growth of KV caches, most bytes a repetition first."""
    growths = [growth for growth in loop.growing if not growth.is_suspect] if loop else []
    if loop is None or not growths:
        return []
    piled = [growth for growth in growths if not growth.replaced]
    kv_caches: dict[int, list[GrowingStack]] = {}
    others = []
    for growth in growths:
        if growth.replaced and _is_kv_cache(loop, growth):
            kv_caches.setdefault(growth.every, []).append(growth)
        elif growth.replaced:
            others.append(growth)
    groups = [*_by_cause(piled, names), *_by_copy(loop, _by_cause(others, names)), *kv_caches.values()]
    groups.sort(key=lambda group: -_per_repetition(group))
    total = sum(_per_repetition(group) for group in groups)
    return [_leak(loop, names, group, total) for group in groups[:MOST]]


def _by_cause(growths: Sequence[GrowingStack], names: Names) -> list[Sequence[GrowingStack]]:
    """Growths that are one leak: all where they are many, or one has no stack trace, as gradients of models that leak;
    else those of one line of the program.
    """
    is_nameless = [bool(names.frames[growth.stack] < 0) for growth in growths]
    if len(growths) >= ONE_CAUSE or any(is_nameless):
        # Of a model and its gradients, which are as large, the model's line is named.
        order = sorted(range(len(growths)), key=lambda i: (-growths[i].per_repetition, is_nameless[i]))
        return [[growths[i] for i in order]]
    groups: dict[tuple[str, int], list[GrowingStack]] = {}
    for growth in growths:
        groups.setdefault((names.place(growth.stack), growth.every), []).append(growth)
    return list(groups.values())


def _by_copy(loop: LoopMemory, groups: Sequence[Sequence[GrowingStack]]) -> list[Sequence[GrowingStack]]:
    """Groups of replaced stacks. Tensors that are computed anew, larger each time, join the group of the tensor that is
    copied, from which they are computed; a cache attracts none.
    """
    copied = [group for group in groups if group[0].copied and not _is_cache(loop, group[0])]
    if not copied:
        return list(groups)
    most = max(copied, key=_per_repetition)
    computed = [growth for group in groups if not group[0].copied for growth in group]
    return [[*group, *computed] if group is most else group for group in groups if group[0].copied]


def _per_repetition(group: Sequence[GrowingStack]) -> int:
    return sum(round(growth.per_repetition) for growth in group)


def _leak(loop: LoopMemory, names: Names, group: Sequence[GrowingStack], all_leaks: int) -> Finding:
    """``group``: stacks of one leak, the fastest first. ``all_leaks``: bytes a repetition of all leaks together."""
    timeline, repetitions = loop.timeline, loop.repetitions
    stacks = np.array(sorted(growth.stack for growth in group))
    remaining = loop.remaining.filter(_is_one_of(stacks))
    end = int(repetitions.bounds[-1]) - 2  # the loop's last event
    freed = timeline.allocations["free_event"].gather(remaining["id"]) >= 0
    size = int(remaining["size"].sum())
    is_cache = _is_cache(loop, group[0])
    moment = str(end) if freed.any() else "end"
    of_stacks = sentence("{} origin:traced", any_of([stack_term(stack) for stack in stacks.tolist()]))
    query = sentence("{} live:{}", of_stacks, moment)
    replaced = group[0].replaced
    # Without a tensor that is replaced, its earlier copies are not allocated either.
    counted = with_failed_requests(timeline)
    leaked = _traced(counted, stacks) if replaced else remaining
    joined = counted.allocations[[] if replaced else _joined(counted, remaining)]
    of_leaked: str = of_stacks if replaced else query
    if len(joined):
        leaked = pl.concat([remaining.select("id", "size", "alloc_event"), joined.select("id", "size", "alloc_event")])
        count = len(timeline.allocations)  # before those of requests that failed
        of_leaked, mask = select(timeline, _marked(counted, leaked)[:count])
        leaked = leaked.filter((pl.col("id") >= count) | pl.col("id").is_in(pl.Series(np.flatnonzero(mask)).implode()))
    limit = device_limit(timeline)
    stairs = _staircase(timeline, stacks, repetitions)
    evidence = LeakEvidence(
        bytes_per_step=_per_repetition(group),
        live_bytes=size,
        live_count=len(remaining),
        joined_bytes=int(live_at(joined, counted.peak_event)["size"].sum()),
        every=group[0].every,
        unit=repetitions.unit,
        freed_bytes=int(remaining["size"].filter(freed).sum()),
        steps=repetitions.finished,
        staircase=stairs.tolist(),
        bounds=(repetitions.bounds - 1).tolist(),  # events: each repetition begins at one; the last ends before one
        device_limit=limit,
        replaced=replaced,
        category=by_category(remaining)[0]["category"],
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
        saving=_saving(counted, leaked, of_leaked),
        needed_peak_bytes=_peak_of_added(counted, leaked, repetitions)
        if replaced
        else _peak_with_one_each(counted, remaining, repetitions, joined, _per_repetition(group) * group[0].every),
        preallocated_peak_bytes=_peak_preallocated(counted, remaining, group) if group[0].copied else 0,
    )
    return Finding(
        kind="leak",
        device=timeline.device,
        severity="info" if is_cache else "warning",
        title=leak_title(evidence, is_cache=is_cache),
        detail=leak_detail(timeline, remaining, evidence, all_leaks, is_cache=is_cache),
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


def _is_kv_cache(loop: LoopMemory, growth: GrowingStack) -> bool:
    return bool(by_category(loop.remaining.filter(pl.col("stack") == growth.stack))[0]["category"] == "kv cache")


def _is_cache(loop: LoopMemory, growth: GrowingStack) -> bool:
    """Whether growth is the purpose of a cache in an inference loop: a KV cache, or a buffer that a module extends
    while nothing trains.
    """
    if _is_kv_cache(loop, growth):
        return True
    trains = loop.timeline.allocations["category"].is_in(["gradient", "optimizer state"]).any()
    return growth.replaced and not trains and not outside_modules(loop.timeline.recording)[growth.stack]


def _staircase(timeline: DeviceTimeline, stacks: np.ndarray, repetitions: Repetitions) -> np.ndarray:
    """Int64 by repetition: the lowest live bytes of these stacks together."""
    together = timeline.allocations.filter(_is_one_of(stacks)).with_columns(stack=pl.lit(0, pl.Int32))
    lowest: np.ndarray = lowest_live(together, np.zeros(1, np.int32), repetitions.bounds)[0]
    return lowest


def _saving(timeline: DeviceTimeline, leaked: pl.DataFrame, query: str) -> SavingRow:
    """The peak without ``leaked``, rows of the timeline's allocations, which ``query`` selects, and of failed requests.
    timeline: of :func:`with_failed_requests`.
    """
    peak, event, _ = peak_without(timeline, leaked["id"].to_numpy(), leaked["size"].to_numpy())
    failed = leaked.filter(pl.col("alloc_event").is_in(failures(timeline.events)))
    return SavingRow(
        query=query,
        fraction=1.0,
        peak_bytes=peak,
        peak_event=event,
        saves_bytes=timeline.peak_bytes - peak,
        is_lower_bound=ends_in_failure(timeline.recording),
        failed_events=failed["alloc_event"].to_list(),
    )


def _marked(timeline: DeviceTimeline, rows: pl.DataFrame) -> np.ndarray:
    """Bool per allocation: one of ``rows``."""
    found = np.zeros(len(timeline.allocations), bool)
    found[rows["id"].to_numpy()] = True
    return found


def _joined(timeline: DeviceTimeline, leaked: pl.DataFrame) -> np.ndarray:
    """Int64 rows of what is computed from all of ``leaked`` so far, in no module's forward pass."""
    recording, stack = timeline.recording, timeline.allocations["stack"].to_numpy()
    calls = python_calls(recording)
    computes = (calls != calls[0]) & (stack_phases(recording).innermost != FORWARD)
    results = _marked(timeline, leaked)
    return joined_results(timeline, results, computes[stack] & ~results)


def _peak_with_one_each(
    timeline: DeviceTimeline, leaked: pl.DataFrame, repetitions: Repetitions, joined: pl.DataFrame, size: int
) -> int:
    """The peak where each of ``leaked`` goes when its repetition has ended and its stack has allocated again, as a
    tensor does whose variable is bound anew. ``joined``, what is computed from all of them, shrinks to the share that
    one repetition's ``size`` bytes are of these.
    """
    births = leaked["alloc_event"].to_numpy().astype(np.int64)
    number = repetitions.of(births)
    ends = np.append(repetitions.bounds, len(timeline.events) + 1)[number + 1] - 1
    generations = leaked.select("stack", "alloc_event", number=pl.Series(number))
    first = generations.group_by("stack", "number").agg(pl.col("alloc_event").min()).sort("stack", "number")
    following = first.with_columns(pl.col("alloc_event").shift(-1).over("stack").alias("next"))
    again = generations.join(following, on=["stack", "number"], how="left", maintain_order="left")["next"]
    ends = np.maximum(ends, again.fill_null(len(timeline.events)).to_numpy() + 1)
    alive = ends < len(timeline.events)
    never = np.full(int(alive.sum()), -1)
    born = joined["alloc_event"].to_numpy()
    of_all = bytes_over_time(timeline, leaked["id"].to_numpy())[born + 1]
    # Sorted when what leaked is gone already, it stays as it is.
    more = joined["size"].to_numpy() * (1 - size / np.maximum(of_all, size))
    return peak_without_spans(
        timeline,
        np.append(ends[alive], born),
        np.append(never, joined["free_event"].to_numpy()),
        np.append(leaked["size"].to_numpy()[alive], more.astype(np.int64)),
    )[0]


def _traced(timeline: DeviceTimeline, stacks: np.ndarray) -> pl.DataFrame:
    """The allocations of the trace with one of ``stacks``."""
    return timeline.allocations.filter(_is_one_of(stacks) & IS_TRACED)


def _is_one_of(stacks: np.ndarray) -> pl.Expr:
    return pl.col("stack").is_in(pl.Series(stacks).implode())


def _peak_of_added(timeline: DeviceTimeline, leaked: pl.DataFrame, repetitions: Repetitions) -> int:
    """The peak where each of ``leaked`` has only the bytes that it adds to its predecessor: the allocation of the same
    stack, in the same order, in the repetition before.
    """
    number = repetitions.of(leaked["alloc_event"].to_numpy())
    ordered = leaked.with_columns(number=pl.Series(number)).sort("alloc_event")
    place = pl.col("id").cum_count().over("stack", "number")
    before = pl.col("size").shift(1).over("stack", "place").fill_null(0)
    rows = ordered.with_columns(place=place).select("id", out=pl.min_horizontal(before, "size"))
    return peak_without(timeline, rows["id"].to_numpy(), rows["out"].to_numpy())[0]


def _peak_preallocated(timeline: DeviceTimeline, remaining: pl.DataFrame, group: Sequence[GrowingStack]) -> int:
    """The peak where the tensor that is copied has its last size from the start, and is never copied."""
    copied = np.array(sorted(growth.stack for growth in group if growth.copied))
    last = remaining.filter(_is_one_of(copied))["size"].sum()
    rows = _traced(timeline, copied)
    return peak_without(timeline, rows["id"].to_numpy(), rows["size"].to_numpy())[0] + int(last)


def device_limit(timeline: DeviceTimeline) -> int:
    """Bytes that the device can allocate: reserved plus free at an out-of-memory error; 0 where none was recorded."""
    best = 0
    for event in timeline.oom_events:
        free = timeline.events["device_free"][event]
        if free is not None:
            best = max(best, int(timeline.reserved[event + 1]) + int(free))
    return best


LEAK = FindingKind("leak", "Leak", (LeakEvidence, CycleEvidence))
