"""Advice about programs on several GPUs, one of which has far more allocated than the others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import UNSET, UnsetType

from snapreport.findings.advice_context import Advice, AdviceContext, AdviceEvidence
from snapreport.findings.failed_requests import with_failed_requests
from snapreport.findings.live import live_at
from snapreport.findings.saving import bytes_over_time, share_with_cost
from snapreport.memoize import memoize
from snapreport.number_format import count_text
from snapreport.sentence import bytes_part, device_part, joined, sentence
from snapreport.snapshot import Snapshot
from snapreport.timeline.build import DeviceTimeline

FAR_ABOVE = 2.0
"""Times the mean of the other devices' peaks, from which on a device is out of balance."""
_MOST_AFTER, _LOW = 0.9, 0.8
"""Of the peak: with less to gain a model is as good as balanced; a device with so much is not lower."""
_FEWEST_LAYERS = 3
_MOST = 0.8
"""Of what a model's lines allocate those of its layers do."""
_PLACED = "torch.nn.Module.to", "https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html"
_DDP = "torch.nn.parallel.DistributedDataParallel", "https://docs.pytorch.org/docs/stable/notes/ddp.html"


class DevicesEvidence(AdviceEvidence, kw_only=True):
    """peaks: bytes of each GPU. mean_bytes: of activations, where each has a copy of the model. layers: on this GPU,
    where they are spread over several.
    """

    peaks: list[int]
    mean_bytes: int | UnsetType = UNSET
    layers: int | UnsetType = UNSET


@memoize
def _peaks(snapshot: Snapshot) -> dict[int, tuple[int, int]]:
    """Of each GPU with a trace: its peak in bytes, with a request that failed, and the activations at it."""
    devices = [device for device in snapshot.devices if device >= 0 and len(snapshot.events(device)) > 1]
    timelines = {device: with_failed_requests(snapshot.timeline(device)) for device in devices}
    return {device: (timeline.peak_bytes, _activations(timeline)) for device, timeline in timelines.items()}


def _activations(timeline: DeviceTimeline) -> int:
    return int(live_at(timeline.allocations, timeline.peak_event).filter(category="activation")["size"].sum())


def device_imbalance(context: AdviceContext) -> Advice | None:
    timeline = context.timeline
    peaks = {device: peak for device, (peak, _) in _peaks(context.snapshot).items()}
    others = [size for device, size in peaks.items() if device != timeline.device and size > 0]
    if timeline.device not in peaks or not others:
        return None
    is_far_above = timeline.peak_bytes >= FAR_ABOVE * sum(others) / len(others)
    each = [sentence("{} {}", device_part(timeline.kind, device), bytes_part(size)) for device, size in peaks.items()]
    what = "Peaks with the request that failed" if context.is_cut_off else "Peaks"
    listed = sentence("{what}: {each}.", what=what, each=joined(each, ", "))
    parallel = context.occurs(context.frames(r"torch/nn/parallel/(parallel_apply|data_parallel|replicate)\.py"))
    if not parallel:
        return _moved_layers(context, peaks, listed)
    if not is_far_above or context.infers:
        return None
    gathers = context.frames(r"torch/nn/parallel/(scatter_gather|comm|_functions)\.py \w*gather\w*$")
    gathered = gathers[context.stack]
    mask, share = _of_loss(context, gathered, len(peaks))
    if share and context.is_much(context.bytes_at_peak(mask)):
        outputs = int(bytes_over_time(context.timeline, np.flatnonzero(gathered)).max())
        return Advice(
            "device-imbalance",
            "Compute the loss inside the module that DataParallel wraps, or use DistributedDataParallel",
            [
                listed,
                sentence(
                    "DataParallel gathers {} of outputs on one device, and the loss of all of them is computed there.",
                    bytes_part(outputs),
                ),
                "Inside the module each GPU computes the loss of its part of the batch.",
            ],
            *_DDP,
            mask,
            share,
            evidence=DevicesEvidence(peaks=list(peaks.values())),
        )
    return _even_parts(context, peaks, listed)


def _even_parts(context: AdviceContext, peaks: dict[int, int], listed: str) -> Advice | None:
    """Of a model that each device has a copy of. Gradients and the optimizer's state are on one alone, and stay."""
    work = {device: activations for device, (_, activations) in _peaks(context.snapshot).items()}
    even = sum(work.values()) // len(work)
    peak = context.timeline.peak_bytes - work[context.timeline.device] + even
    if peak > _MOST_AFTER * context.timeline.peak_bytes:
        return None
    why = [
        listed,
        sentence("With as much work on each GPU, each needs {} for activations.", bytes_part(even)),
        "DataParallel splits a batch by its first dimension, whatever each sample costs: give every GPU the same "
        "amount of work.",
    ]
    evidence = DevicesEvidence(peaks=list(peaks.values()), mean_bytes=even)
    return _balanced(context, why, _DDP, peak, evidence)


def _moved_layers(context: AdviceContext, peaks: dict[int, int], listed: str) -> Advice | None:
    """Of a model whose layers are on several devices: with 958 and 469 MiB, of which 2 in 9 layers move, 758 MiB are
    promised, and 757 are taken.
    """
    own, highest, kind = context.timeline.device, context.timeline.peak_bytes, context.timeline.kind
    lower = {device: size for device, size in peaks.items() if size < _LOW * highest}
    of_pass = _passes(context) if lower else np.empty(0)
    now = {device: size for device, size in lower.items() if _is_continued(context.snapshot, of_pass, own, device)}
    layers, each = _layers(context, of_pass, list(now)) if now else (0, 0)
    if layers < _FEWEST_LAYERS or not each:
        return None
    now[own], moved = highest, dict.fromkeys(now, 0)
    while now[least := min(now, key=now.__getitem__)] + each < now[own] and sum(moved.values()) < layers:
        now[own], now[least], moved[least] = now[own] - each, now[least] + each, moved[least] + 1
    peak = max(now.values())
    if peak > _MOST_AFTER * highest:
        return None
    to = [sentence("{n} on {}", device_part(kind, device), n=count_text(n)) for device, n in moved.items() if n]
    how = sentence(
        "The model has layers on each. The {n} here take about {} each: with {to}, the highest peak is {}.",
        bytes_part(each), bytes_part(peak), n=count_text(layers), to=joined(to, ", "),
    )  # fmt: skip
    return _balanced(context, [listed, how], _PLACED, peak, DevicesEvidence(peaks=list(peaks.values()), layers=layers))


def _layers(context: AdviceContext, of_pass: np.ndarray, others: list[int]) -> tuple[int, int]:
    """How many this device has of the model that goes on on ``others``, and the bytes of one: what they save at most,
    which a backward pass frees before the peak, and their weights, gradients and state at the peak.
    """
    called = np.concatenate([of_pass[_stacks(context.snapshot, device)] for device in others])
    mine = of_pass[context.stack]
    rows = np.flatnonzero((mine >= 0) & np.isin(mine, called))
    line, count = np.unique(context.lines[rows], return_counts=True)
    # From the first whole pass to the last: the line that allocates least begins them.
    begins = context.lines[rows] == line[np.argmin(count)]
    begins = np.flatnonzero(np.diff(begins, prepend=False) & begins)
    if len(begins) > 1:
        line, count = np.unique(context.lines[rows[begins[0] : begins[-1]]], return_counts=True)
    of_layers = _MOST * count.sum()
    often = max((n for n in count.tolist() if count[count % n == 0].sum() >= of_layers), default=1)
    layers = max(1, often // int(count.min()))
    saved = context.category("activation") & np.isin(context.lines, line[count % often == 0])
    size = int(bytes_over_time(context.timeline, np.flatnonzero(saved)).max())
    for category in ("parameter", "gradient", "optimizer state"):
        sizes, alike = np.unique(context.size[context.category(category) & context.at_peak], return_counts=True)
        size += int((sizes * alike)[alike >= layers].sum())
    return layers, size // layers


def _passes(context: AdviceContext) -> np.ndarray:
    """Int64 per stack of a forward pass: the frame that calls the outermost module; -1 for other stacks."""
    recording = context.recording
    at = np.flatnonzero(context.frames_called[recording.stack_frames])
    stack = np.searchsorted(recording.stack_offsets, at, "right") - 1
    outermost = np.flatnonzero(np.diff(stack, append=-1))
    stack, caller = stack[outermost], at[outermost] + 1
    found = np.full(len(context.forward), -1, np.int64)
    known = (caller < recording.stack_offsets[stack + 1]) & context.forward[stack]
    found[stack[known]] = recording.stack_frames[caller[known]]
    return found


def _is_continued(snapshot: Snapshot, of_pass: np.ndarray, one: int, other: int) -> bool:
    """Whether passes of one device go on on another: each runs lines that the other does not, as of the embedding and
    the last layer. Two copies of a model run the same ones.
    """
    stacks = [np.unique(_stacks(snapshot, device)) for device in (one, other)]
    mine, theirs = (stack[of_pass[stack] >= 0] for stack in stacks)
    one_only, other_only = np.setdiff1d(mine, theirs), np.setdiff1d(theirs, mine)
    return bool(np.isin(of_pass[one_only], of_pass[other_only]).any())


def _stacks(snapshot: Snapshot, device: int) -> np.ndarray:
    return snapshot.timeline(device).allocations["stack"].to_numpy()


def _balanced(
    context: AdviceContext, why: Sequence[str], remedy: tuple[str, str], peak: float, evidence: DevicesEvidence
) -> Advice:
    return Advice(
        "device-imbalance",
        "Balance memory between the GPUs",
        why,
        *remedy,
        np.ones(len(context.size), bool),
        1 - peak / context.timeline.peak_bytes,
        confidence="estimate",
        evidence=evidence,
    )


def _of_loss(context: AdviceContext, gathered: np.ndarray, devices: int) -> tuple[np.ndarray, float]:
    """(Bool per allocation, share of their bytes that goes): gathered outputs, none of which is needed, and what the
    loss and its backward pass make that is as large, of which each device has its part.

    gathered: Bool per allocation. Of 8,858 MiB 4,933 are promised, and 4,934 are taken. (none, 0.0) where nothing is.
    """
    if not gathered.any():
        return gathered, 0.0
    alike = context.category("activation", "temporary", "unknown") & np.isin(context.size, context.size[gathered])
    alike &= ~gathered
    gone = bytes_over_time(context.timeline, np.flatnonzero(gathered))
    gone += bytes_over_time(context.timeline, np.flatnonzero(alike)) * (devices - 1) // devices
    mask = np.asarray(gathered | alike)
    return mask, share_with_cost(context.timeline, np.flatnonzero(mask), 0.0, -gone)
