"""What settings of the allocator could help: each rule looks at a device and gives one piece of advice, or none."""

from __future__ import annotations

from collections.abc import Callable

from snapreport.findings.seen import Advice, Seen
from snapreport.number_format import bytes_text, share_text
from snapreport.timeline.own_code import own_functions

_CONF = "https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-alloc-conf"

PINNED_SHARE = 0.2
"""Of what pinned blocks take: less rounding is not worth an advice."""


def _expandable(seen: Seen) -> Advice | None:
    finding = next(
        (
            f
            for f in seen.findings
            if f.kind in ("oom", "fragmentation")
            and f.evidence.get("verdict", "fragmentation") in ("fragmentation", "mixed")
            and f.severity != "info"
        ),
        None,
    )
    if finding is None or seen.snapshot.recording.settings.get("expandable_segments") is True:
        return None
    size = int(finding.evidence.get("own_hole_bytes") or finding.evidence.get("usable_hole_bytes") or 0)
    return Advice(
        "expandable-segments",
        "Let segments grow instead of standing beside each other",
        f"{finding.title.rstrip('.')}. Expandable segments were not on.",
        size,
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        _CONF,
        memory="reserved",
        link=finding.link,
    )


def _split_size(seen: Seen) -> Advice | None:
    finding = seen.finding("fragmentation")
    settings = seen.snapshot.recording.settings
    if finding is None or settings.get("expandable_segments") is True or (settings.get("max_split_size") or -1) > 0:
        return None
    size = int(finding.evidence.get("inactive_split_bytes") or 0)
    if not seen.is_much(size):
        return None
    return Advice(
        "max-split-size",
        "Keep large blocks whole, where expandable segments cannot be used",
        f"{bytes_text(size)} lay in remainders of split blocks at the worst moment.",
        size,
        "PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:512",
        _CONF,
        "guess",
        memory="reserved",
        link=finding.link,
    )


def _collect(seen: Seen) -> Advice | None:
    finding = seen.finding("churn")
    if finding is None or not finding.evidence.get("retries"):
        return None
    if (seen.snapshot.recording.settings.get("garbage_collection_threshold") or 0) > 0:
        return None
    return Advice(
        "garbage-collection-threshold",
        "Free cached blocks before memory is full, instead of all of them when it is",
        f"{finding.title.rstrip('.')}; {finding.evidence['retries']} of these were retries, which first give back "
        "everything cached.",
        finding.bytes,
        "PYTORCH_CUDA_ALLOC_CONF=garbage_collection_threshold:0.8",
        _CONF,
        "guess",
        memory="",
        link=finding.link,
    )


def _empty_cache(seen: Seen) -> Advice | None:
    finding = seen.finding("churn")
    if finding is None or finding.stack is None or not seen.frames_match(r"(?i)empty_?cache")[finding.stack]:
        return None
    where = own_functions(seen.snapshot.recording)[finding.stack]
    return Advice(
        "empty-cache",
        "Do not empty the cache within the loop",
        f"empty_cache() in {where or 'a recorded stack'} gives segments back that are asked for again.",
        finding.bytes,
        "torch.cuda.memory.empty_cache",
        "https://docs.pytorch.org/docs/stable/generated/torch.cuda.memory.empty_cache.html",
        memory="",
        link=finding.link,
    )


def _pinned(seen: Seen) -> Advice | None:
    """Pinned buffers take a power of two each, whatever their size: ATen/core/CachingHostAllocator.h of PyTorch
    2.13.
    """
    timeline = seen.timeline
    blocks = int(timeline.blocks_at(timeline.peak_event).size.sum())
    size = blocks - timeline.peak_bytes
    if size < PINNED_SHARE * blocks:
        return None
    return Advice(
        "pinned-rounding",
        "Pin large buffers at their own size",
        f"Pinned buffers of {bytes_text(timeline.peak_bytes)} took {bytes_text(blocks)}, {share_text(size, blocks)} "
        "of it rounding: each is rounded up to a power of two.",
        size,
        "PYTORCH_ALLOC_CONF=pinned_max_round_threshold_mb:64, in PyTorch 2.13",
        _CONF,
        memory="reserved",
        link={"view": "reserved", "at": timeline.peak_event},
    )


ALLOCATOR_RULES: tuple[Callable[[Seen], Advice | None], ...] = (_expandable, _split_size, _collect, _empty_cache)
HOST_RULES: tuple[Callable[[Seen], Advice | None], ...] = (_pinned,)
"""Of pinned host memory, which has an allocator of its own."""
