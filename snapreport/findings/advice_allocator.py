"""Advice about settings of the allocator, which change what is reserved, or save time, but not what is allocated."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from snapreport.contracts.finding import Finding
from snapreport.contracts.stats import TimeCause
from snapreport.findings.advice_context import MIN_SHARE, ONE_LINE, SETTING, Advice, AdviceContext, AdviceEvidence
from snapreport.findings.setting_replay import SettingReplay
from snapreport.findings.transfer_time import churn_time
from snapreport.number_format import duration_text, plural
from snapreport.sentence import bytes_change, bytes_part, sentence

_CONF = "https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-alloc-conf"

SPLIT_SIZES = (128, 256, 512, 1024)
"""Limits to try, in MiB."""
OVERSIZED_SHARE = 0.1
"""Of what is reserved: a setting that saves less is not worth it where memory is only cached and nothing failed."""


class ChurnTimeEvidence(AdviceEvidence, kw_only=True):
    """``taken_us``: of a step of ``step_us``, what the calls take by a profiler's trace, on the host."""

    taken_us: int | UnsetType = UNSET
    step_us: int | UnsetType = UNSET


class SettingEvidence(AdviceEvidence, kw_only=True):
    """``avoids_failure``: the request that failed fits, replayed, and no later one is known to fail."""

    reserved_bytes: int | UnsetType = UNSET
    replayed_bytes: int | UnsetType = UNSET
    avoids_failure: bool | UnsetType = UNSET


def _expandable(context: AdviceContext) -> Advice | None:
    """Where the allocator, replayed, reserves less with expandable segments, or where a request would fit."""
    finding = _fragmented(context) or _oversized(context)
    if finding is None or context.recording.settings.get("expandable_segments") is True:
        return None
    replayed = context.settings.replay(expandable_segments=True)
    return _setting_advice(
        context,
        "expandable-segments",
        "Enable expandable segments",
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        finding,
        replayed,
    )


def _split_size(context: AdviceContext) -> Advice | None:
    """The limit on splitting blocks that reserves least, where expandable segments do not do as much."""
    finding = _fragmented(context)
    settings = context.recording.settings
    if finding is None or settings.get("expandable_segments") is True or (settings.get("max_split_size") or -1) > 0:
        return None
    tried = [(limit, context.settings.replay(max_split_size=limit << 20)) for limit in SPLIT_SIZES]
    known = [(limit, replayed) for limit, replayed in tried if replayed is not None]
    if not known:
        return None
    limit, replayed = min(known, key=lambda pair: (-len(pair[1].avoided), pair[1].after, -pair[0]))
    expandable = context.settings.replay(expandable_segments=True)
    if expandable is not None and (len(expandable.avoided), -expandable.after) >= (
        len(replayed.avoided),
        -replayed.after,
    ):
        return None
    return _setting_advice(
        context,
        "max-split-size",
        sentence("Set `max_split_size_mb:{limit}`", limit=limit),
        f"PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:{limit}",
        finding,
        replayed,
    )


def _unset_split_size(context: AdviceContext) -> Advice | None:
    """Where a limit on splitting blocks is set, and the allocator, replayed without it, reserves less."""
    settings = context.recording.settings
    limit = settings.get("max_split_size") or -1
    finding = _fragmented(context) or _oversized(context)
    if finding is None or limit <= 0 or settings.get("expandable_segments") is True:
        return None
    replayed = context.settings.replay(max_split_size=None)
    unused = sentence(
        "A block of {} or more is never split: what a request leaves of it stays unused.", bytes_part(limit)
    )
    return _setting_advice(
        context,
        "unset-max-split-size",
        "Unset max_split_size_mb",
        sentence("`PYTORCH_CUDA_ALLOC_CONF` without `max_split_size_mb`"),
        finding,
        replayed,
        first=unused,
    )


def _setting_advice(
    context: AdviceContext,
    rule: str,
    do: str,
    how: str,
    finding: Finding,
    replayed: SettingReplay | None,
    *,
    first: str = "",
) -> Advice | None:
    """Advice to change a setting that was replayed; ``first``: a sentence before those of the replay."""
    why, title = _gain(context, do, finding, replayed)
    if not title or replayed is None:
        return None
    # The device stays nearly full, or the pass needs more than it has.
    is_more_missing = finding.evidence.get("device_full") or finding.evidence.get("missing_bytes")
    return Advice(
        rule,
        title,
        [first, *why] if first else why,
        how,
        _CONF,
        link=finding.link,
        effort=SETTING,
        line=how if "=" in how else None,
        evidence=SettingEvidence(
            reserved_bytes=replayed.before,
            replayed_bytes=replayed.after,
            avoids_failure=(finding.kind == "oom" and not is_more_missing) or UNSET,
        ),
    )


def _oversized(context: AdviceContext) -> Finding | None:
    """The finding that much more was reserved than was ever allocated."""
    return next((f for f in context.findings if f.kind == "fragmentation" and f.severity == "info"), None)


def _fragmented(context: AdviceContext) -> Finding | None:
    """The finding of fragmentation on this device: of an out-of-memory error first."""
    for finding in context.findings:
        verdict = finding.evidence.get("verdict", "fragmentation")
        if (
            finding.kind in ("oom", "fragmentation")
            and verdict in ("fragmentation", "mixed")
            and finding.severity != "info"
        ):
            return finding
    return None


def _gain(context: AdviceContext, do: str, finding: Finding, replayed: SettingReplay | None) -> tuple[list[str], str]:
    """(sentences, title) of a setting that was replayed; the title is empty where it changes too little."""
    if replayed is None:
        return [], ""
    if finding.kind == "oom":
        failed = [event for event in context.timeline.oom_events if event in replayed.avoided]
        why: list[str] = [
            sentence("Peak reserved up to the failure: {}.", bytes_change(replayed.before, replayed.after))
        ]
        if missing := finding.evidence.get("missing_bytes"):
            why.append(sentence("A later request fails: {} more is needed.", bytes_part(missing)))
        elif finding.evidence.get("device_full"):
            why.append("The device stays nearly full: a later request may fail.")
        if len(failed) > 1:
            is_all = failed == context.timeline.oom_events
            why.insert(0, "All failed requests fit." if is_all else "Some of the failed requests fit, not all.")
        return why, sentence("{do}: the request fits (replayed)", do=do) if finding.event in failed else ""
    least = MIN_SHARE if finding.severity != "info" else OVERSIZED_SHARE
    if replayed.before - replayed.after < least * replayed.before:
        return [], ""
    why = (
        ["Both replays first allocate what was live when recording began, in order of address."]
        if replayed.fresh
        else []
    )
    return why, sentence("{do}: peak reserved {} (replayed)", bytes_change(replayed.before, replayed.after), do=do)


def _collect(context: AdviceContext) -> Advice | None:
    finding = context.churn
    if finding is None or not finding.evidence.get("retries"):
        return None
    if (context.recording.settings.get("garbage_collection_threshold") or 0) > 0:
        return None
    replayed = context.settings.replay(garbage_collection_threshold=0.8, memory_fraction=0.95)
    if replayed is not None and not replayed.retries_before:
        replayed = None  # the recording does not say how much memory there was
    if replayed is not None and replayed.retries_after >= replayed.retries_before:
        return None
    fewer = (
        ""
        if replayed is None
        else sentence(": retries {} → {} (replayed)", replayed.retries_before, replayed.retries_after)
    )
    # The title's number: the finding leaves out those of the warm-up.
    retries = finding.evidence["retries"] if replayed is None else replayed.retries_before
    times, takes = _churn_time(context, "retry", "Retries")
    return Advice(
        "garbage-collection-threshold",
        sentence("Set garbage_collection_threshold together with a memory fraction{fewer}", fewer=fewer),
        [
            sentence(
                "{} found no memory, released everything cached and tried again.",
                plural(retries, "request"),
            ),
            sentence(
                "garbage_collection_threshold:0.8 releases old cached blocks earlier. It works only after "
                "`torch.cuda.set_per_process_memory_fraction()`."
            ),
            *takes,
        ],
        sentence(
            "`PYTORCH_CUDA_ALLOC_CONF=garbage_collection_threshold:0.8` and "
            "`torch.cuda.set_per_process_memory_fraction(0.95)`"
        ),
        _CONF,
        confidence="estimate",
        link=finding.link,
        effort=SETTING,
        line="PYTORCH_CUDA_ALLOC_CONF=garbage_collection_threshold:0.8",
        evidence=times,
    )


def _empty_cache(context: AdviceContext) -> Advice | None:
    finding = context.churn
    if finding is None or not finding.evidence.get("emptied_in"):
        return None
    times, takes = _churn_time(context, "empty_cache", "`empty_cache()`")
    return Advice(
        "empty-cache",
        sentence("Remove `empty_cache()` from the loop"),
        [
            sentence(
                "`empty_cache()` in {} releases segments that the program soon allocates again. This costs time and "
                "does not lower the peak allocated; without it more may stay reserved.",
                finding.evidence["emptied_in"],
            ),
            *takes,
        ],
        "torch.cuda.memory.empty_cache",
        "https://docs.pytorch.org/docs/stable/generated/torch.cuda.memory.empty_cache.html",
        link=finding.link,
        effort=ONE_LINE,
        evidence=times,
    )


def _churn_time(context: AdviceContext, cause: TimeCause, name: str) -> tuple[ChurnTimeEvidence, list[str]]:
    """How long the calls of ``cause`` and of cudaMalloc take in a step; nothing without a profiler's trace of both."""
    taken = churn_time(context, cause)
    if taken is None:
        return ChurnTimeEvidence(), []
    took = sentence(
        f"{name} and cudaMalloc take {{taken}} of {{step}} a step by the profiler's trace.",
        taken=duration_text(taken[0]),
        step=duration_text(taken[1]),
    )
    return ChurnTimeEvidence(taken_us=taken[0], step_us=taken[1]), [took]


ALLOCATOR_RULES = (
    _expandable,
    _split_size,
    _unset_split_size,
    _collect,
    _empty_cache,
)
