"""The document of ``snapreport diff --json``."""

from __future__ import annotations

from typing import Any

import polars as pl
from msgspec import UNSET, UnsetType, convert

from snapreport.contracts.diff import (
    DiffDevice,
    DiffDocument,
    DiffFile,
    DiffTotals,
    MomentDiff,
    NamedChange,
    RenamedFile,
    SegmentChange,
    SeriesDevice,
    StackChange,
)
from snapreport.findings.diff import DeviceDiff, SnapshotDiff
from snapreport.findings.diff_cause import cause_of
from snapreport.timeline.build import DeviceTimeline
from snapreport.timeline.stats import frames_of

_MOST = 50  # changes of a kind


def diff_document(result: SnapshotDiff, series: list[SeriesDevice] | UnsetType = UNSET) -> DiffDocument:
    """The document of ``snapreport diff --json``: totals of every moment, and the first 50 changes of each kind."""
    before, after = (DiffFile(one.recording.name, one.recording.file_bytes) for one in (result.before, result.after))
    devices = [_document_device(result, device) for device in result.devices]
    renamed = [RenamedFile(*names) for names in sorted(result.matching.renamed.items())]
    return DiffDocument(before, after, result.only_before, result.only_after, devices, renamed, series)


def _document_device(result: SnapshotDiff, device: DeviceDiff) -> DiffDevice:
    moments = []
    for moment, stacks, categories, functions, modules in zip(
        device.moments, device.stacks, device.categories, device.functions, device.modules, strict=True
    ):
        moments.append(
            MomentDiff(
                name=moment.name,
                before_event=moment.before_event,
                after_event=moment.after_event,
                before_bytes=moment.before_bytes,
                after_bytes=moment.after_bytes,
                delta=moment.after_bytes - moment.before_bytes,
                categories=convert(categories.rows(named=True), list[NamedChange]),
                functions=convert(_changed(functions), list[NamedChange]),
                modules=convert(_changed(modules), list[NamedChange]) or UNSET,
                stacks=[_stack_change(result, row) for row in _changed(stacks)],
            )
        )
    differs = (pl.col("before") != pl.col("after")) | (pl.col("only_before") + pl.col("only_after") > 0)
    return DiffDevice(
        device=device.before.device,
        device_after=device.after.device,
        kind=device.before.kind,
        cause=cause_of(result, device),
        before=_totals(device.before),
        after=_totals(device.after),
        moments=moments,
        segments=convert(device.segments.filter(differs).head(_MOST).rows(named=True), list[SegmentChange]),
    )


def _changed(rows: pl.DataFrame) -> list[dict[str, Any]]:
    return rows.filter(pl.col("change") != "same").head(_MOST).rows(named=True)


def _stack_change(result: SnapshotDiff, row: dict[str, Any]) -> StackChange:
    is_after = row["stack_after"] is not None
    recording = (result.after if is_after else result.before).recording
    frames = frames_of(recording, row["stack_after"] if is_after else row["stack_before"])
    return convert({**row, "frames": frames}, StackChange)


def _totals(timeline: DeviceTimeline) -> DiffTotals:
    return convert(timeline.stats, DiffTotals, from_attributes=True)
