"""The answer to "will it fit?": the document of ``snapreport fit``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from snapreport.allocator.cards import CARDS
from snapreport.allocator.whatif import WhatIf
from snapreport.contracts import plain
from snapreport.contracts.fit import (
    AlignedRecordings,
    CategoryGrowth,
    FitCheapest,
    FitDevice,
    FitDocument,
    FitPrediction,
    FitRecording,
    LargestValue,
    OtherRequests,
)
from snapreport.errors import SnapshotError
from snapreport.forecast.bends import peak_bends
from snapreport.forecast.largest_value import largest_range, largest_value
from snapreport.forecast.prediction import DeviceFit
from snapreport.forecast.remedies import RemedySearch
from snapreport.snapshot import Snapshot, load

BATCH = "batch"
"""The name of the number whose growth one recording shows."""


class Question(Struct, frozen=True):
    """at: the value of each recording; may be empty for one recording. to: values to foretell, beside those of the
    recordings. name: of the number. memory: bytes for the allocator, None for the cards alone. settings: in
    PYTORCH_CUDA_ALLOC_CONF's syntax.
    """

    at: Sequence[float] = ()
    to: Sequence[float] = ()
    name: str = BATCH
    memory: int | None = None
    settings: Sequence[str] = ()

    @property
    def memories(self) -> list[tuple[str | None, int]]:
        """(card, bytes for the allocator), least first; the card is None for memory that was given."""
        return [(None, self.memory)] if self.memory else [(card.name, card.usable) for card in CARDS]

    @property
    def values(self) -> list[float]:
        return sorted({*self.at, *self.to})


def fit(
    recordings: Sequence[Snapshot | str | os.PathLike[str]],
    at: Sequence[float] = (),
    *,
    to: Sequence[float] = (),
    name: str = BATCH,
    memory: int | None = None,
    settings: Sequence[str] = (),
) -> dict[str, Any]:
    """The document of ``snapreport fit``, of snapshots or their files; see :class:`Question`. Raises
    :class:`SnapshotError` and :class:`SettingsError`.
    """
    snapshots = [one if isinstance(one, Snapshot) else load(one) for one in recordings]
    document: dict[str, Any] = plain(fit_document(snapshots, Question(at, to, name, memory, settings)))
    return document


def fit_document(snapshots: Sequence[Snapshot], question: Question) -> FitDocument:
    """Raises :class:`SnapshotError` where values and recordings do not match, or the recordings' devices differ."""
    fits = device_fits(snapshots, question)
    pairs = sorted(zip(question.at or [0.0], snapshots, strict=True), key=lambda pair: pair[0])
    return FitDocument(
        question.name,
        fits[0][1].settings.text(),
        [FitRecording(snapshot.recording.path, value or None) for value, snapshot in pairs],
        [_device(device, fit, snapshots[0], question) for device, fit in fits],
    )


def device_fits(snapshots: Sequence[Snapshot], question: Question) -> list[tuple[int, DeviceFit]]:
    """(device, its recordings) of each device that has events in all of them; raises as :func:`fit_document`."""
    check_question(len(snapshots), question)
    values = question.at or [1.0]
    pairs = sorted(zip(values, snapshots, strict=True), key=lambda pair: pair[0])
    devices = [
        device
        for device in pairs[-1][1].devices
        if all(device in snapshot.devices and len(snapshot.timeline(device).events) for _, snapshot in pairs)
    ]
    if not devices:
        raise SnapshotError("no device has events in all recordings: nothing to foretell")
    at = [value for value, _ in pairs]
    return [
        (device, DeviceFit(at, [WhatIf(snapshot.timeline(device)) for _, snapshot in pairs], question.settings))
        for device in devices
    ]


def check_question(count: int, question: Question) -> None:
    """Raises :class:`SnapshotError` for values that do not go with so many recordings."""
    if count == 1 and not question.at and question.memory is None:
        raise SnapshotError("one recording: give its value (--at), memory to run in (--memory), or a second recording")
    if not question.at and question.to:
        raise SnapshotError("values to foretell, and none of the recording: give --at")
    if count != len(question.at) and (question.at or count != 1):
        raise SnapshotError(f"{count} recordings and {len(question.at)} values: give one value for each")
    if len(set(question.at)) < len(question.at):
        raise SnapshotError("two recordings at the same value: give recordings at different values")
    if min(*question.at, *question.to, 1.0, 1.0) <= 0:
        raise SnapshotError("a value is not above 0")


def _device(device: int, fit: DeviceFit, snapshot: Snapshot, question: Question) -> FitDevice:
    events = len(fit.whatifs[-1].trace.kind)
    cheapest = _cheapest(snapshot, fit, question.memory)
    reason = refusal(fit, question)
    if reason is not None:
        return FitDevice(device, AlignedRecordings(False, events, 0, reason or None), 0, [], [], [], cheapest)
    growth = fit.growth()
    return FitDevice(
        device,
        AlignedRecordings(fit.is_exact, events, fit.unmatched_bytes(), None),
        sum(growth.values()),
        [CategoryGrowth(category, count) for category, count in growth.items()],
        [prediction(fit, value, question.memory) for value in question.values],
        [_largest(fit, name, memory) for name, memory in question.memories],
        cheapest,
        peak_bends(fit, question.values[0], question.values[-1]),
        _other_requests(fit),
        fit.left_out(),
        fit.workspace_bytes,
    )


def _other_requests(fit: DeviceFit) -> list[OtherRequests]:
    found = []
    for at in range(len(fit.values) - 1):
        fewer, more, most = fit.only_in_one(at, at + 1)
        if fewer or more:
            found.append(OtherRequests(float(fit.values[at]), float(fit.values[at + 1]), fewer, more, most))
    return found


def refusal(fit: DeviceFit, question: Question) -> str | None:
    """Why nothing is foretold, "" where no value was given, None where something is."""
    if not question.at:
        return ""
    if fit.is_estimate and question.name != BATCH:
        return f"one recording shows what grows with the batch only: record another {question.name}, too"
    return fit.reason() or None


def prediction(fit: DeviceFit, value: float, memory: int | None) -> FitPrediction:
    """One value; ``fits`` is decided outside the range only, see :meth:`DeviceFit.decides_by_range`."""
    found = fit.predict(value, memory)
    if memory is None:
        return found
    if not fit.decides_by_range(value) or found.confidence == "measured":
        return replace(found, fits=found.peak_reserved_bytes is not None)
    free = fit.predict(value)
    assert free.low_bytes is not None and free.high_bytes is not None
    fits = True if free.high_bytes <= memory else False if free.low_bytes > memory else None
    return replace(free, retries=found.retries, fits=fits)


def _largest(fit: DeviceFit, card: str | None, memory: int) -> LargestValue:
    found = largest_value(fit, memory)
    low, high = largest_range(fit, found)
    confidence = fit.confidence(found.value)
    if not found.value:
        return LargestValue(card, memory, None, low, high, False, None, None, None, confidence)
    reserved = fit.predict(found.value, memory).peak_reserved_bytes
    spare = None if reserved is None else max(0, memory - reserved)
    value = float(found.value)
    return LargestValue(card, memory, value, low, high, found.is_limit, reserved, spare, found.retries, confidence)


def _cheapest(snapshot: Snapshot, fit: DeviceFit, memory: int | None) -> FitCheapest | None:
    whatif = fit.whatifs[0]
    if not fit.is_estimate or memory is None or whatif.timeline.kind != "cuda" or not whatif.check.exact:
        return None
    return RemedySearch(snapshot, whatif, fit.settings).answer(memory)
