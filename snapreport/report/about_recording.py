"""What the recording of a device shows and what it lacks, with how to record that next time."""

from __future__ import annotations

import polars as pl

from snapreport.number_format import count_text, plural, share_text
from snapreport.reading.recording import ACTIONS
from snapreport.report.activity_text import activity_text
from snapreport.report.device_use_lines import device_use_lines
from snapreport.report.span_columns import broken_sentence
from snapreport.sentence import bytes_part, code_part, joined, listed, sentence
from snapreport.timeline.build import DeviceTimeline
from snapreport.timeline.lifetimes import IS_FREED, IS_TRACED, action_codes, is_live_at
from snapreport.timeline.recording_gaps import START_EARLY, has_history, lost_events, recording_start
from snapreport.timeline.serving_memory import serving_memory
from snapreport.timeline.stats import private_pools
from snapreport.timeline.time_costs import run_costs

MIN_SHARE = 0.01
"""Share of the peak below which a line is omitted."""
MAX_POOLS = 4


def doubts(timeline: DeviceTimeline) -> list[str]:
    """What is missing from the record, each with its remedy; empty if nothing is."""
    gaps = timeline.recording_gaps
    lines = [joined(filter(None, (gap.sentence, gap.remedy))) for gap in gaps]
    is_said = any(gap.remedy == START_EARLY for gap in gaps)
    bare = [line.removesuffix(f" {START_EARLY}") if is_said else line for line in _without_stack_trace(timeline)]
    return [*lines, *bare, *_without_rule(timeline), *_unused_profile(timeline)]


def _unused_profile(timeline: DeviceTimeline) -> list[str]:
    profile = timeline.recording.profile
    if profile is None or run_costs(timeline.of_file) is not None:
        return []
    return [sentence("The profiler's trace beside the snapshot is not used: {}.", code_part(profile.problem))]


def assurances(timeline: DeviceTimeline) -> list[str]:
    """What the program does, what the record is based on, and what was checked."""
    lines = [line for line in (activity_text(timeline.activity),) if line]
    if not has_history(timeline):
        return [*lines, *_serving(timeline), *_pools(timeline)]
    lines.append(sentence("Based on {}.", plural(len(timeline.events), "event")))
    if timeline.recording.is_profiled:
        return [*lines, *_profile_lines(timeline)]
    if timeline.overflowed is False:
        lines.append("The trace did not overflow.")
    part = timeline.recording.devices[timeline.device].part
    if not timeline.reconciliation_bytes and (not part or part.end == part.whole):
        lines.append("The replay ends with exactly the blocks of the final state.")
    before = timeline.allocations["alloc_event"] < 0
    if before.any():
        size = bytes_part(int(timeline.allocated[0]))
        since = recording_start(timeline)
        lines.append(
            sentence("{} of {size} existed {since}.", plural(int(before.sum()), "allocation"), size=size, since=since)
        )
    lines += [*_serving(timeline), *_pools(timeline), *_readings(timeline)]
    lines += device_use_lines(timeline)
    if broken := broken_sentence(timeline.annotated.broken):
        lines.append(broken)
    return lines


def _serving(timeline: DeviceTimeline) -> list[str]:
    """What a server's memory is for."""
    memory = serving_memory(timeline)
    if memory is None:
        return []
    most = memory.peak_activation_bytes
    passes = "" if most is None else sentence(" Forward passes outside of graphs needed {} at most.", bytes_part(most))
    return [
        sentence(
            "At the end {} were reserved: weights {weights}, KV cache {cache}, CUDA graphs {graphs}, for activations "
            "{room}, other {other}.{passes}",
            bytes_part(memory.reserved_bytes),
            weights=bytes_part(memory.weight_bytes),
            cache=bytes_part(memory.kv_cache_bytes),
            graphs=bytes_part(memory.cuda_graph_bytes),
            room=bytes_part(memory.activation_reserve_bytes),
            other=bytes_part(memory.other_bytes),
            passes=passes,
        )
    ]


def _pools(timeline: DeviceTimeline) -> list[str]:
    """The largest private pools: a graph's activations live there, and no other request is served from them."""
    pools = private_pools(timeline)
    if not pools:
        return []
    each = [
        sentence("{} of {} in {pool}", bytes_part(one.allocated_bytes), bytes_part(one.reserved_bytes), pool=one.pool)
        for one in pools[:MAX_POOLS]
    ]
    more = [plural(len(pools) - MAX_POOLS, "other pool")] if len(pools) > MAX_POOLS else []
    whole = bytes_part(sum(pool.reserved_bytes for pool in pools))
    return [
        sentence(
            "At the end private pools, as of CUDA graphs or `torch.cuda.MemPool`, had reserved {}. Allocated: {each}.",
            whole,
            each=listed([*each, *more]),
        )
    ]


def _profile_lines(timeline: DeviceTimeline) -> list[str]:
    """What a profiler trace has, what was checked with it, and what it lacks."""
    lines: list[str] = []
    record = timeline.recording.devices[timeline.device]
    if record.counted_allocated is not None and "profiler total" not in {gap.key for gap in timeline.recording_gaps}:
        lines.append("At every event, allocated is what the profiler counted.")
    before = int(timeline.allocated[0])
    if before:
        lines.append(
            sentence("{} were allocated before profiling started; the trace does not say by what.", bytes_part(before))
        )
    lines.append(
        "This is a torch.profiler trace: it has no segments, streams, pools or settings of the allocator. The line of "
        "a Python function is where it begins, not the line that allocates."
    )
    if timeline.kind == "cpu":
        lines.append("Only tensors of PyTorch are counted: no memory of NumPy, of Python, or of libraries.")
    if broken := broken_sentence(timeline.annotated.broken):
        lines.append(broken)
    return lines


def _readings(timeline: DeviceTimeline) -> list[str]:
    """How entries that PyTorch does not document are interpreted, if the trace has any."""
    rows = timeline.allocations
    codes = action_codes(timeline.events)
    lines: list[str] = []
    orphans = rows.filter(pl.col("origin") == "freed")
    part = timeline.recording.devices[timeline.device].part
    if len(orphans) and not (part and part.first):
        size = bytes_part(int(orphans["size"].sum()))
        lines.append(
            sentence(
                "Frees without an allocation in the trace: {}, {size} in all. "
                "These blocks count as allocated from its beginning.",
                count_text(len(orphans)),
                size=size,
            )
        )
    if (codes == ACTIONS.index("free_requested")).any() and not (codes == ACTIONS.index("free_completed")).any():
        lines.append("The trace has no free_completed entries: an allocation ends when its free is requested.")
    waiting = rows.filter((pl.col("free_requested_event") >= 0) & ~IS_FREED)
    if len(waiting):
        size = bytes_part(int(waiting["size"].sum()))
        lines.append(
            sentence(
                "Frees that were requested and never completed: {}, {size} in all. "
                "These blocks count as allocated to the end (pending free).",
                count_text(len(waiting)),
                size=size,
            )
        )
    return lines


def _without_stack_trace(timeline: DeviceTimeline) -> list[str]:
    """The bytes at the peak without a stack trace, by reason."""
    peak, bare = timeline.peak_bytes, timeline.peak_stackless_bytes
    if timeline.recording.is_profiled:
        has_python = (timeline.recording.frames["line"] > 0).any()
        return [] if has_python else ["Stack traces have no Python functions. Profile with with_stack=True."]
    if not peak or bare < MIN_SHARE * peak or not has_history(timeline):
        return []
    if not len(timeline.recording.stack_frames):
        return ['No stack traces were recorded. Record with context="all" and stacks="python".']
    is_older = (pl.col("stack") == 0) & ~IS_TRACED & is_live_at(timeline.peak_event)
    older = int(timeline.allocations.filter(is_older)["size"].sum())
    lines: list[str] = []
    if older >= MIN_SHARE * peak:
        share = share_text(older, peak)
        start, remedy = recording_start(timeline), "" if lost_events(timeline) else f" {START_EARLY}"
        text = "{share} of the peak was allocated {start} and has no stack trace.{remedy}"
        lines.append(sentence(text, share=share, start=start, remedy=remedy))
    if bare - older >= MIN_SHARE * peak:
        share = share_text(bare - older, peak)
        text = sentence(
            "{share} of the peak was allocated during the trace without a Python stack, as the backward pass does.",
            share=share,
        )
        lines.append(sentence('{text} Record with stacks="all" to see its C++ frames.', text=text))
    return lines


def _without_rule(timeline: DeviceTimeline) -> list[str]:
    """The bytes at the peak that have a stack trace but no category."""
    is_unknown = (pl.col("stack") > 0) & (pl.col("category") == "unknown") & is_live_at(timeline.peak_event)
    unknown = int(timeline.allocations.filter(is_unknown)["size"].sum())
    if unknown < MIN_SHARE * max(timeline.peak_bytes, 1):
        return []
    share = share_text(unknown, timeline.peak_bytes)
    return [
        sentence(
            "{share} of the peak has a stack trace that no category rule matches. Add rules with --rules.", share=share
        )
    ]
