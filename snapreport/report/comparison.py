"""What a report holds beside its snapshots where it compares them: which stacks are the same, which moments belong
together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from snapreport.findings.diff import SnapshotDiff
from snapreport.findings.snapshot_series import series
from snapreport.number_format import bytes_text, device_name
from snapreport.packing.columns import Column
from snapreport.report.diff_text import signed
from snapreport.timeline.build import Snapshot

ROWS = 12


@dataclass(frozen=True)
class DiffTable:
    """A table of the static summary. ``rows``: before, after, change, how, name."""

    title: str
    rows: list[tuple[str, str, str, str, str]]


@dataclass(frozen=True)
class Comparison:
    """``results``: the first snapshot against each of the others, in order; the last is the one that is shown."""

    results: Sequence[SnapshotDiff]

    @property
    def snapshots(self) -> list[Snapshot]:
        """In the order of the report."""
        return [self.results[0].before, *(result.after for result in self.results)]

    @property
    def title(self) -> str:
        return f"{self.results[-1].before.recording.name} → {self.results[-1].after.recording.name}"

    def columns(self, base: Sequence[int], stacks: int) -> list[Column]:
        """``identity`` u32 per stack of the report plus one: equal for stacks that are the same code; 0 for those of
        other snapshots.

        ``base``: number of each snapshot's first stack; ``stacks``: of all snapshots together.
        """
        identity = np.zeros(stacks, np.int64)
        matching = self.results[-1].matching
        last = len(self.results)
        identity[base[0] : base[0] + len(matching.before)] = matching.before + 1
        identity[base[last] : base[last] + len(matching.after)] = matching.after + 1
        return [Column("identity", identity, "u32")]

    @property
    def manifest(self) -> dict[str, object]:
        """``devices``: [number, index of before, index of after, [[name, event before, event after], …]]; indices are
        the page's.
        """
        result = self.results[-1]
        first = sum(len(snapshot.devices) for snapshot in self.snapshots[:-1])
        here, there = result.before.devices, result.after.devices
        return {
            "before": 0,
            "after": len(self.results),
            "devices": [
                [
                    device.before.device,
                    here.index(device.before.device),
                    first + there.index(device.before.device),
                    [[moment.name, moment.before_event, moment.after_event] for moment in device.moments],
                ]
                for device in result.devices
            ],
            "only_before": result.only_before,
            "only_after": result.only_after,
            "series": series(self.snapshots) if len(self.results) > 1 else [],
        }

    @property
    def headline(self) -> list[str]:
        """A sentence per device: its peaks, and what grew most; which devices are of one side alone; of a series also
        how much from one to the next.
        """
        result = self.results[-1]
        lines = [] if result.devices else ["The two snapshots have no device in common."]
        for side, devices in (("earlier", result.only_before), ("later", result.only_after)):
            if devices:
                lines.append(f"Only the {side} snapshot has device {', '.join(map(str, devices))}.")
        for device in result.devices:
            peak, functions = device.moments[0], device.functions[0]
            text = (
                f"{device_name(device.before.kind, device.before.device)}: the peak went from "
                f"{bytes_text(peak.before_bytes)} to "
            )
            text += f"{bytes_text(peak.after_bytes)} ({signed(peak.after_bytes - peak.before_bytes)})."
            top = next((row for row in functions.head(1).rows(named=True) if row["delta"]), None)
            if top:
                text += f" {signed(top['delta'])} of it in {top['name'] or 'allocations without frames'}."
            lines.append(text)
        if len(self.results) > 1:
            lines += [
                f"{device_name(row['kind'], row['device'])}: {signed(row['growth'])} from one of the "
                f"{len(row['files'])} snapshots to the next (median, allocated at the end)."
                for row in series(self.snapshots)
            ]
        return lines

    @property
    def tables(self) -> list[DiffTable]:
        """For the static summary: per device what changed at the peaks, by category and by function, and the
        segments.
        """
        tables = []
        for device in self.results[-1].devices:
            name = device_name(device.before.kind, device.before.device)
            for what, frame in (("category", device.categories[0]), ("function", device.functions[0])):
                rows = [
                    (
                        bytes_text(r["bytes_before"]),
                        bytes_text(r["bytes_after"]),
                        signed(r["delta"]),
                        r["change"],
                        r["name"] or "no frames",
                    )
                    for r in frame.rows(named=True)
                    if r["change"] != "same"
                ][:ROWS]
                tables.append(DiffTable(f"{name}, at the peaks, by {what}", rows))
            segments = [
                (
                    f"{r['before']:,}",
                    f"{r['after']:,}",
                    signed((r["after"] - r["before"]) * r["size"]),
                    "",
                    f"{bytes_text(r['size'])} {r['segment_type']} {r['pool']} stream {r['stream']}",
                )
                for r in device.segments.rows(named=True)
                if r["before"] != r["after"]
            ][:ROWS]
            tables.append(DiffTable(f"{name}, segments of the final states", segments))
        return tables
