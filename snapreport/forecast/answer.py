"""The answer to "will it fit?": the document of ``snapreport fit``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from snapreport.allocator.cards import CARDS
from snapreport.allocator.whatif import WhatIf
from snapreport.contracts import plain
from snapreport.contracts.fit import (
    AlignedRecordings,
    CategoryGrowth,
    FitDevice,
    FitDocument,
    FitPrediction,
    FitRecording,
    LargestValue,
)
from snapreport.errors import SnapshotError
from snapreport.forecast.largest_value import largest_value
from snapreport.forecast.prediction import DeviceFit
from snapreport.snapshot import Snapshot, load


@dataclass(frozen=True)
class Question:
    """at: the value of each recording. to: values to foretell, beside those of the recordings. name: of the number.
    memory: bytes for the allocator, None for the cards alone. settings: in PYTORCH_CUDA_ALLOC_CONF's syntax.
    """

    at: Sequence[float]
    to: Sequence[float] = ()
    name: str = "batch"
    memory: int | None = None
    settings: Sequence[str] = ()


def fit(
    recordings: Sequence[Snapshot | str | os.PathLike[str]],
    at: Sequence[float],
    *,
    to: Sequence[float] = (),
    name: str = "batch",
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
    if len(snapshots) != len(question.at):
        raise SnapshotError(f"{len(snapshots)} recordings and {len(question.at)} values: give one value for each")
    if len(set(question.at)) < len(question.at):
        raise SnapshotError("two recordings at the same value: give recordings at different values")
    if min(*question.at, *question.to, 1.0) <= 0:
        raise SnapshotError("a value is not above 0")
    pairs = sorted(zip(question.at, snapshots, strict=True), key=lambda pair: pair[0])
    files = [FitRecording(snapshot.recording.path, value) for value, snapshot in pairs]
    devices = [
        device
        for device in pairs[-1][1].devices
        if all(device in snapshot.devices and len(snapshot.timeline(device).events) for _, snapshot in pairs)
    ]
    if not devices:
        raise SnapshotError("no device has events in all recordings: nothing to foretell")
    fits = [
        DeviceFit(
            [value for value, _ in pairs],
            [WhatIf(snapshot.timeline(device)) for _, snapshot in pairs],
            question.settings,
        )
        for device in devices
    ]
    return FitDocument(
        question.name,
        fits[0].settings.text(),
        files,
        [_device(device, fit, question) for device, fit in zip(devices, fits, strict=True)],
    )


def _device(device: int, fit: DeviceFit, question: Question) -> FitDevice:
    events = len(fit.whatifs[-1].trace.kind)
    if reason := fit.reason():
        return FitDevice(device, AlignedRecordings(False, events, 0, reason), 0, [], [], [])
    growth = fit.growth()
    sizes = [(None, question.memory)] if question.memory else [(card.name, card.usable) for card in CARDS]
    return FitDevice(
        device,
        AlignedRecordings(fit.is_exact, events, fit.unmatched_bytes(), None),
        sum(growth.values()),
        [CategoryGrowth(category, count) for category, count in growth.items()],
        [_prediction(fit, value, question.memory) for value in sorted({*question.at, *question.to})],
        [_largest(fit, name, memory) for name, memory in sizes],
    )


def _prediction(fit: DeviceFit, value: float, memory: int | None) -> FitPrediction:
    found = fit.predict(value, memory)
    return FitPrediction(
        value,
        found.peak_allocated,
        found.peak_reserved,
        found.low,
        found.high,
        found.retries,
        None if memory is None else found.peak_reserved is not None,
        found.is_recorded,
    )


def _largest(fit: DeviceFit, card: str | None, memory: int) -> LargestValue:
    found = largest_value(fit, memory)
    if not found.value:
        return LargestValue(card, memory, None, False, None, None, None)
    reserved = fit.predict(found.value, memory).peak_reserved
    spare = None if reserved is None else max(0, memory - reserved)
    return LargestValue(card, memory, float(found.value), found.is_limit, reserved, spare, found.retries)
