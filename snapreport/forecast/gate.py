"""The rule of ``snapreport check`` about values that were not recorded: whether they run in so much memory."""

from __future__ import annotations

from collections.abc import Sequence

from snapreport.allocator.whatif import WhatIf
from snapreport.contracts.check import Check
from snapreport.errors import SnapshotError
from snapreport.findings.gate import missing_history
from snapreport.forecast.answer import BATCH
from snapreport.forecast.prediction import DeviceFit
from snapreport.number_format import device_name
from snapreport.sentence import bytes_part, sentence
from snapreport.snapshot import Snapshot


def check_values(
    snapshots: Sequence[Snapshot], at: Sequence[float], to: Sequence[float], memory: int, name: str = BATCH
) -> list[Check]:
    """Whether the program runs at each value of ``to`` with ``memory`` bytes for the allocator.

    ``at``: a value for each recording, which are fitted together; or one for all, each of which is then an estimate of
    its own. Raises :class:`SnapshotError` where neither is given, or nothing can be foretold of any device.
    """
    if len(at) == 1:
        checks = [one for snapshot in snapshots for one in _checks([snapshot], at, to, memory, name)]
    elif len(at) == len(snapshots) == len(set(at)):
        pairs = sorted(zip(at, snapshots, strict=True), key=lambda pair: pair[0])
        checks = _checks([pair[1] for pair in pairs], [pair[0] for pair in pairs], to, memory, name)
    else:
        raise SnapshotError(f"{len(snapshots)} recordings and {len(at)} values: give one for all, or another for each")
    if not checks:
        raise SnapshotError("no CUDA device has events in all recordings: nothing to foretell")
    return checks


def _checks(
    snapshots: Sequence[Snapshot], at: Sequence[float], to: Sequence[float], memory: int, name: str
) -> list[Check]:
    checks = []
    last = snapshots[-1]
    for device in last.devices:
        has_all = all(device in one.devices and len(one.timeline(device).events) for one in snapshots)
        if has_all and last.timeline(device).kind == "cuda":
            fit = DeviceFit(at, [WhatIf(snapshot.timeline(device)) for snapshot in snapshots])
            checks += [_check(snapshots, fit, value, memory, name) for value in to]
    return checks


def _check(snapshots: Sequence[Snapshot], fit: DeviceFit, value: float, memory: int, name: str) -> Check:
    timeline = fit.whatifs[-1].timeline
    device = device_name(timeline.kind, timeline.device)
    file = ", ".join(snapshot.recording.name for snapshot in snapshots)
    head = sentence("{device}: {name} {value}", device=device, name=name, value=f"{value:g}")
    unknown = fit.reason()
    if fit.is_estimate and name != BATCH:
        unknown = unknown or f"one recording shows what grows with the batch only: give one at another {name}, too"
    if unknown:
        message = sentence("{head} cannot be foretold", head=head)
        return Check("fits", file, device, False, message, 0, memory, unknown=unknown)
    free = fit.predict(value)
    low, high, peak = free.low_bytes or 0, free.high_bytes or 0, free.peak_reserved_bytes or 0
    reserved = sentence("{} to {}", bytes_part(low), bytes_part(high)) if low < high else bytes_part(peak)
    compared = "within" if high <= memory else "over" if low > memory else "around"
    message = sentence(
        "{head} would reserve {reserved}, {compared} the limit of {} (foretold)",
        bytes_part(memory),
        head=head,
        reserved=reserved,
        compared=compared,
    )
    retries = None if fit.decides_by_range(value) and high > memory else fit.retries(value, memory)
    if retries is not None:
        gaps = [missing_history(one, one.timeline(timeline.device), earlier=True) for one in snapshots]
        unknown = next(filter(None, gaps), "")
        if retries:
            message = sentence("{message}; it runs with num_alloc_retries {}", f"{retries:,}", message=message)
    elif low < high and low <= memory:
        more = "a recording at another value" if fit.is_estimate else "a recording at a nearer value"
        unknown = sentence("the memory is within the range; {more} narrows it down", more=more)
    passed = retries is not None and not unknown
    return Check("fits", file, device, passed, message, max(peak, high), memory, unknown=unknown)
