"""A comparison as text for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from snapreport.findings.diff import DeviceDiff, Moment, SnapshotDiff
from snapreport.number_format import bytes_text, device_name, share_text

ROWS = 10


def diff_text(result: SnapshotDiff) -> str:
    """Peaks, ends, and what changed most at the peaks."""
    lines = [f"{result.before.recording.name} → {result.after.recording.name}"]
    for side, devices in (("before", result.only_before), ("after", result.only_after)):
        if devices:
            lines.append(f"only {side}: device {', '.join(map(str, devices))}")
    if not result.devices:
        lines.append("no device in common")
    for device in result.devices:
        lines += ["", device_name(device.before.kind, device.before.device)]
        lines += [f"  {_moment(moment)}" for moment in device.moments[:2]]
        steps = device.moments[2:]
        if steps:
            most = max(steps, key=lambda moment: abs(moment.after_bytes - moment.before_bytes))
            lines.append(f"  of {len(steps)} common steps the most: {_moment(most)}")
        lines += (
            _rows("category", device.categories[0]) + _rows("function", device.functions[0]) + _stacks(result, device)
        )
    return "\n".join(lines)


def signed(value: int) -> str:
    """``+1.50 GiB``, ``-12 B``, ``±0 B``."""
    return f"{'+' if value > 0 else '±' if value == 0 else ''}{bytes_text(value)}"


def _moment(moment: Moment) -> str:
    change = moment.after_bytes - moment.before_bytes
    share = (
        f", {'+' if change > 0 else '-'}{share_text(abs(change), moment.before_bytes)}"
        if change and moment.before_bytes
        else ""
    )
    return (
        f"{moment.name}: {bytes_text(moment.before_bytes)} → {bytes_text(moment.after_bytes)} ({signed(change)}{share})"
    )


def _rows(heading: str, table: pl.DataFrame) -> list[str]:
    changed = table.filter(pl.col("change") != "same").head(ROWS)
    if not len(changed):
        return [f"  at the peak no {heading} changed"]
    return [f"  at the peak, by {heading}:"] + [
        f"    {signed(row['delta']):>11}  {bytes_text(row['bytes_before']):>10} → "
        f"{bytes_text(row['bytes_after']):<10}  {row['change']:<8}  {row['name'] or 'no frames'}"
        for row in changed.rows(named=True)
    ]


def _stacks(result: SnapshotDiff, device: DeviceDiff) -> list[str]:
    changed = device.stacks[0].filter(pl.col("change") != "same").head(ROWS)
    if not len(changed):
        return []
    lines = ["  at the peak, by stack (innermost frames first):"]
    for row in changed.rows(named=True):
        recording, stack = (
            (result.after.recording, row["stack_after"])
            if row["stack_after"] is not None
            else (result.before.recording, row["stack_before"])
        )
        frames = recording.frames[recording.stack(stack)].select("name", "filename", "line").rows()
        words = (
            " ← ".join(f"{name} {filename.rsplit('/', 1)[-1]}:{line}" for name, filename, line in frames[:3])
            or "no frames"
        )
        lines.append(f"    {signed(row['delta']):>11}  {row['change']:<8}  {words}")
    return lines


def series_text(rows: Sequence[dict[str, Any]]) -> str:
    """A line per snapshot of the series, and the growth from one to the next."""
    lines = []
    for row in rows:
        lines.append(
            f"{device_name(row['kind'], row['device'])}: {signed(row['growth'])} from one snapshot to the next "
            "(median, allocated at the end)"
        )
        width = max(map(len, row["files"]))
        lines += [
            f"  {name:<{width}}  peak {bytes_text(peak):>10}  end {bytes_text(end):>10}  reserved "
            f"{bytes_text(reserved):>10}"
            for name, peak, end, reserved in zip(
                row["files"],
                row["peak_allocated_bytes"],
                row["end_allocated_bytes"],
                row["end_reserved_bytes"],
                strict=True,
            )
        ]
    return "\n".join(lines)
