"""What a report says of an out-of-memory error: its numbers and its sentences."""

from __future__ import annotations

from snapreport.contracts.finding import Evidence
from snapreport.findings.basis import basis_of, block_doubts
from snapreport.findings.fragmentation import PinningRow
from snapreport.findings.live import CategoryRow, Names, StackRow, category_text, main_parts
from snapreport.findings.shortage import Shortage, Verdict, is_full, message_size, segment_of
from snapreport.number_format import plural, share_text, upper_first
from snapreport.sentence import bytes_part, bytes_share, bytes_with_article, device_part, event_part, listed, sentence
from snapreport.timeline.build import DeviceTimeline
from snapreport.timeline.device_use import other_processes_at, outside_by_cause
from snapreport.timeline.phases import OPTIMIZER_STEP, PHASES
from snapreport.timeline.rounding import SMALL_SIZE
from snapreport.vocabulary import DEFAULT_POOL

MIN_SHARE = 0.01
"""Of the request: less cached memory out of its reach is left out."""
PIN_SHARE = 0.1
"""Of the request: less in segments that one line keeps from being released is left out."""
OTHERS_SHARE = 0.1
"""Of the device: where other processes hold less, only the details say so. A context takes 0.5 GiB of 16 to 140."""
OUTSIDE = "the CUDA context, NCCL, cudaMallocAsync and pluggable allocators, other processes"
"""Users of device memory that no trace shows."""
_REASON = {
    "fragmentation": "fragmentation",
    "pool-locked": "free memory is in other pools or streams",
    "mixed": "free memory is fragmented and in other pools or streams",
}
_SCATTERED = {
    "fragmentation": "fragmented",
    "pool-locked": "in other pools or streams",
    "mixed": "fragmented or in other pools and streams",
}


class OomEvidence(Evidence):
    """One failure, or several at nearly the same moment.

    ``requested``: of each failure; ``requested_bytes``: of the first. ``new_segment_bytes``: what the allocator would
    have had to take from the device. ``usable_free_bytes``: free memory that the request could use, the largest block
    of it ``largest_usable_free_bytes``; ``free_segment_bytes``: of segments that are free as a whole. ``phase``: of
    ``PHASES``, that of the request. ``layer``: of ``layers``, the one that made it, from 1; both 0 where they are
    unknown. ``missing_bytes``: how much more than the program could have it needs at least to get to the end of the
    pass that failed. ``outside_bytes``: of the device's ``device_bytes``, in use outside PyTorch's caching allocator,
    those of other processes among them; None where the recorder did not note it.
    """

    verdict: str
    events: list[int]
    requested: list[int]
    requested_bytes: int
    device_free_bytes: int | None
    new_segment_bytes: int | None
    reserved_bytes: int
    allocated_bytes: int
    unused_bytes: int
    rounding_bytes: int
    usable_free_bytes: int
    other_stream_bytes: int
    other_pool_bytes: int
    other_size_bytes: int
    free_segment_bytes: int
    pending_free_bytes: int
    largest_usable_free_bytes: int
    largest_free_bytes: int
    expandable_segments: bool | None
    stack: int
    function: str
    line: str
    in_math_kernel: bool
    segment_bytes: int
    device_full: bool
    categories: list[CategoryRow]
    stacks: list[StackRow]
    pinning_stacks: list[PinningRow]
    phase: str
    layer: int
    layers: int
    missing_bytes: int
    device_bytes: int | None
    outside_bytes: int | None
    other_processes_bytes: int | None


def oom_title(timeline: DeviceTimeline, s: Shortage, why: Verdict) -> str:
    """The failure in one sentence, without a period."""
    request = bytes_with_article(s.requested)
    text = sentence("Out of memory on {}: ", device_part(timeline.kind, timeline.device))
    if why == "limit":
        return sentence(
            "Out of memory on {} at a limit of this process: {request} request failed with {} free on the device",
            device_part(timeline.kind, timeline.device),
            bytes_part(s.device_free or 0),
            request=request,
        )
    if why == "unclear":
        return sentence(
            "{text}{request} request failed although a free block was large enough", text=text, request=request
        )
    if why != "demand" and is_full(s):
        return sentence("{text}the device is full, and what is free is {}", _SCATTERED[why], text=text)
    if why != "demand":
        return sentence("{text}{}", _REASON[why], text=text)
    short = s.requested - (s.device_free or 0) - s.free_memory.usable - s.free_memory.locked - s.pending
    if short > 0:
        return sentence("{text}{request} request was {} too large", bytes_part(short), text=text, request=request)
    return sentence(
        "{text}{request} request needed {} segment",
        bytes_with_article(s.segment_size or 0),
        text=text,
        request=request,
    )


def oom_detail(
    s: Shortage, why: Verdict, evidence: OomEvidence, names: Names, longer: str | None, first_step: int
) -> list[str]:
    """The cause, what was free, what was allocated, and where it failed. longer: :func:`longer_step`; first_step:
    bytes of optimizer state, if it is the first step that failed, else 0.
    """
    lines = [*_others(evidence), *([longer] if longer else []), *_missing(s, why, evidence), _available(s, why)]
    if s.unused:
        lines += _cached(s)
    if why == "limit":
        lines.append("A limit of the process was reached (set_per_process_memory_fraction), or the driver refused.")
    if why == "unclear":
        lines.append("The record does not say why it was not used.")
    message = message_size(segment_of(s.requested))
    if message != message_size(s.requested):
        lines.append(
            sentence(
                'PyTorch\'s message names the segment for the request: "Tried to allocate {message}".', message=message
            )
        )
    if s.pending:
        lines.append(sentence("{} were pending free: another stream still used them.", bytes_part(s.pending)))
    event = sentence("{}", event_part(evidence["events"][0]))
    where: str = (
        sentence("The request ({event}) was made in {}.", evidence["line"], event=event)
        if evidence["stack"]
        else sentence("It failed at {event}.", event=event)
    )
    lines.append(where)
    if evidence["in_math_kernel"]:
        lines.append("It is for attention scores of SDPA's math kernel, which a fused kernel does not allocate.")
    lines += _allocated(s, evidence)
    if why == "demand" and s.device_free is not None:
        lines.append(_rest(s, evidence))
    if first_step:
        lines.append(
            sentence(
                "It is the first optimizer step, which allocates the optimizer's state: {} so far.",
                bytes_part(first_step),
            )
        )
    pin = next((row for row in evidence["pinning_stacks"] if row["stack"]), None)
    if pin and pin["free_bytes"] >= PIN_SHARE * s.requested:
        where, line = plural(pin["segments"], "segment"), names.place(pin["stack"])
        lines.append(
            sentence(
                "{} are cached in {where} that only {line} occupies.",
                bytes_part(pin["free_bytes"]),
                where=where,
                line=line,
            )
        )
    if len(evidence["events"]) > 1:
        least, most = bytes_part(min(evidence["requested"])), bytes_part(max(evidence["requested"]))
        sizes = least if least == most else sentence("{least} to {most}", least=least, most=most)
        lines.append(
            sentence("It failed {} times at nearly the same moment, for {sizes}.", len(evidence["events"]), sizes=sizes)
        )
    return lines


def _others(evidence: OomEvidence) -> list[str]:
    """What other processes hold, where it is much: no change of this program frees so much."""
    others, total = evidence.other_processes_bytes, evidence.device_bytes
    if not others or not total or others < OTHERS_SHARE * total:
        return []
    return [sentence("Other processes hold {} of the device.", bytes_share(others, total))]


def _rest(s: Shortage, evidence: OomEvidence) -> str:
    """What was reserved, and who had the rest of the device."""
    reserved = sentence("{} were reserved", bytes_part(s.reserved))
    if evidence.outside_bytes is None or evidence.device_bytes is None:
        return sentence("{reserved}; CUDA contexts and other processes used the rest of the device.", reserved=reserved)
    return sentence(
        "{reserved}; {share} of the device were in use outside PyTorch's caching allocator.",
        reserved=reserved,
        share=bytes_share(evidence.outside_bytes, evidence.device_bytes),
    )


def _missing(s: Shortage, why: Verdict, evidence: OomEvidence) -> list[str]:
    """How far a pass got, and how much more it needs at least; nothing where the title has said it."""
    missing = evidence.missing_bytes
    if why in ("limit", "unclear") or s.device_free is None:
        return []
    layer = sentence(" in layer {} of {}", evidence.layer, evidence.layers) if evidence.layers else ""
    more = sentence("at least {} more is needed", bytes_part(missing)) if missing >= MIN_SHARE * s.requested else ""
    if layer:
        more = sentence(": {more}", more=more) if more else ""
        what = "The device is full" if why == "demand" or evidence.device_full else "It failed"
        return [sentence("{what}{layer}{more}.", what=what, layer=layer, more=more)]
    short = s.requested - s.device_free - s.free_memory.usable - s.free_memory.locked
    end = "step" if evidence.phase == PHASES[OPTIMIZER_STEP] else "pass"
    return [sentence("To the end of this {end}, {more}.", more=more, end=end)] if missing > short and more else []


def _available(s: Shortage, why: Verdict) -> str:
    """The state at the request: free on the device, cached, allocated; without what the title has said."""
    free = s.free_memory.usable + s.free_memory.locked
    if why in ("fragmentation", "mixed", "pool-locked"):
        text = sentence(
            "{} request failed with {} cached", upper_first(bytes_with_article(s.requested)), bytes_part(free)
        )
        text += "" if s.device_free is None else sentence(" and {} free on the device", bytes_part(s.device_free))
        if why != "pool-locked":
            text += sentence(
                ": the largest free block that it could use was {}", bytes_part(s.free_memory.largest_usable)
            )
        return sentence("{text}.", text=text)
    cached = sentence("{} cached; {} were allocated.", bytes_part(free), bytes_part(s.allocated))
    if s.device_free is None or why == "limit":
        return cached.replace(" cached;", " were cached;")
    return sentence("{} were free on the device and {cached}", bytes_part(s.device_free), cached=cached)


def _cached(s: Shortage) -> list[str]:
    """Where the cached bytes are, but for those that the request could use, which were named before."""
    parts = [
        sentence("{} {where}", bytes_part(value), where=where)
        for value, where in (
            (s.free_memory.other_stream, "belong to other streams"),
            (s.free_memory.other_pool, "are in private pools"),
            (
                s.free_memory.other_size,
                sentence("are in the pool for {} blocks", "small" if s.requested > SMALL_SIZE else "large"),
            ),
        )
        if value >= MIN_SHARE * s.requested
    ]
    return [sentence("Of the cached memory, {}.", listed(parts))] if parts else []


def _allocated(s: Shortage, evidence: OomEvidence) -> list[str]:
    """The largest users of the device's memory, in one sentence."""
    if not evidence["stacks"]:
        return []
    parts = main_parts(evidence["categories"])
    shares = [sentence("{} {what}", share_text(size, s.allocated), what=what) for what, size in parts]
    top = next((row for row in evidence["stacks"] if row["stack"]), None)
    if top and all(what == category_text("unknown") for what, _ in parts):
        return [sentence("The largest stack was {} with {}.", top["line"], bytes_part(top["bytes"]))]
    text = sentence("The allocated memory was {}", listed(shares))
    return [
        sentence("{text}; the largest stack was {} with {}.", top["line"], bytes_part(top["bytes"]), text=text)
        if top
        else sentence("{text}.", text=text)
    ]


def oom_basis(timeline: DeviceTimeline, event: int, s: Shortage) -> list[str]:
    """What the finding relies on, and what the recording does not say."""
    lines = basis_of(timeline) + block_doubts(timeline, event)
    if s.device_free is None:
        lines.append("Free memory on the device was not recorded and is counted as zero.")
    lines.append(_outside(timeline, event, s))
    if timeline.events["pool"][event] is None:
        lines.append(
            sentence(
                "The pool of the request was not recorded; it is taken for the default one {DEFAULT_POOL}.",
                DEFAULT_POOL=DEFAULT_POOL,
            )
        )
    return lines


def outside_at(timeline: DeviceTimeline, event: int, s: Shortage) -> tuple[int, int, int | None] | None:
    """Bytes outside PyTorch's caching allocator at a failure, bytes of the device, and bytes of other processes, which
    only samples by NVML tell apart; None where the recorder did not note the device's.
    """
    recorder = timeline.recording.recorder
    total = recorder.memory_at_dump.get(timeline.device, (0, 0))[1] if recorder else 0
    outside = total - s.reserved - s.device_free if total and s.device_free is not None else -1
    return None if outside < 0 else (outside, total, other_processes_at(timeline, event))


def _outside(timeline: DeviceTimeline, event: int, s: Shortage) -> str:
    """Memory that no trace shows, with its size where the recorder noted the device's."""
    found = outside_at(timeline, event, s)
    if found is None:
        return sentence("Memory outside PyTorch's caching allocator is not recorded: {OUTSIDE}.", OUTSIDE=OUTSIDE)
    outside, total, _ = found
    share = sentence("{} of the device's {}", bytes_part(outside), bytes_part(total))
    if causes := outside_by_cause(timeline, event):
        parts = [sentence("{cause} {}", bytes_part(size), cause=cause) for cause, size in causes]
        return sentence("{share} were outside PyTorch's caching allocator: {parts}.", share=share, parts=listed(parts))
    return sentence("{share} were outside PyTorch's caching allocator: {OUTSIDE}.", share=share, OUTSIDE=OUTSIDE)
