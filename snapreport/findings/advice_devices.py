"""Advice about programs on several GPUs, one of which has far more allocated than the others."""

from __future__ import annotations

import numpy as np
from msgspec import UNSET, UnsetType

from snapreport.findings.advice_context import Advice, AdviceContext, AdviceEvidence
from snapreport.findings.failed_requests import with_failed_requests
from snapreport.findings.saving import bytes_over_time, share_with_cost
from snapreport.memoize import memoize
from snapreport.sentence import bytes_part, device_part, joined, sentence
from snapreport.snapshot import Snapshot

FAR_ABOVE = 2.0
"""Times the mean of the other devices' peaks, from which on a device is out of balance."""


_DDP = "torch.nn.parallel.DistributedDataParallel", "https://docs.pytorch.org/docs/stable/notes/ddp.html"


class DevicesEvidence(AdviceEvidence, kw_only=True):
    peaks: list[int]
    mean_bytes: int | UnsetType = UNSET


@memoize
def _peaks(snapshot: Snapshot) -> dict[int, int]:
    """Of each GPU with a trace: its peak in bytes, with a request that failed."""
    devices = [device for device in snapshot.devices if device >= 0 and len(snapshot.events(device)) > 1]
    return {device: with_failed_requests(snapshot.timeline(device)).peak_bytes for device in devices}


def device_imbalance(context: AdviceContext) -> Advice | None:
    timeline, peaks = context.timeline, _peaks(context.snapshot)
    others = [size for device, size in peaks.items() if device != timeline.device and size > 0]
    if timeline.device not in peaks or not others:
        return None
    mean = sum(others) / len(others)
    if timeline.peak_bytes < FAR_ABOVE * mean:
        return None
    each = [sentence("{} {}", device_part(timeline.kind, device), bytes_part(size)) for device, size in peaks.items()]
    what = "Peaks with the request that failed" if context.is_cut_off else "Peaks"
    listed = sentence("{what}: {each}.", what=what, each=joined(each, ", "))
    gathers = context.frames(r"torch/nn/parallel/(scatter_gather|comm|_functions)\.py \w*gather\w*$")
    parallel = context.occurs(context.frames(r"torch/nn/parallel/(parallel_apply|data_parallel|replicate)\.py"))
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
    even = sum(peaks.values()) / len(peaks)
    why: list[str] = [
        listed,
        sentence("Spread evenly, each would have {}.", bytes_part(int(even))),
    ]
    if parallel:
        why.append(
            "DataParallel splits a batch by its first dimension, whatever each sample costs: give every GPU the same "
            "amount of work."
        )
    return Advice(
        "device-imbalance",
        "Balance memory between the GPUs",
        why,
        *_DDP,
        np.ones(len(context.size), bool),
        1 - even / timeline.peak_bytes,
        confidence="estimate",
        evidence=DevicesEvidence(peaks=list(peaks.values()), mean_bytes=int(even)),
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
