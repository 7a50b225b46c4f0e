"""Additional data of a report that compares snapshots: which stacks are the same, which moments correspond."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import UNSET, Struct, field
from msgspec.structs import replace

from snapreport.contracts import plain
from snapreport.findings.diff import DeviceDiff, SnapshotDiff
from snapreport.findings.diff_cause import cause_of
from snapreport.findings.snapshot_series import DeviceSeries, SnapshotSeries, series_rows
from snapreport.number_format import bytes_text
from snapreport.packing.columns import Column
from snapreport.report.diff_text import device_names, leak_sentences, series_order, signed
from snapreport.sentence import bytes_part, code_part, sentence
from snapreport.snapshot import Snapshot

ROWS = 12


class DiffTable(Struct, frozen=True):
    """A table of the static summary. ``rows``: before, after, change, how, name; ``links``: addresses of lines."""

    title: str
    rows: list[tuple[str, str, str, str, str]]
    links: Mapping[str, str] = field(default_factory=dict)


class Comparison(Struct, frozen=True):
    """``result``: the first snapshot compared with the last; ``series``: all in order, if there are more than two."""

    result: SnapshotDiff
    series: SnapshotSeries | None = None

    @property
    def snapshots(self) -> list[Snapshot]:
        """The snapshots in report order."""
        return self.series.snapshots if self.series else [self.result.before, self.result.after]

    @property
    def title(self) -> str:
        return f"{self.result.before.recording.name} → {self.result.after.recording.name}"

    def columns(self, base: Sequence[int], stacks: int) -> list[Column]:
        """``identity`` u32 per stack of the report plus one: equal for stacks of the same code; 0 for other snapshots'
        stacks.

        ``base``: number of each snapshot's first stack; ``stacks``: of all snapshots together.
        """
        identity = np.zeros(stacks, np.int64)
        matching = self.result.matching
        last = len(self.snapshots) - 1
        identity[base[0] : base[0] + len(matching.before)] = matching.before + 1
        identity[base[last] : base[last] + len(matching.after)] = matching.after + 1
        return [Column("identity", identity, "u32")]

    @property
    def manifest(self) -> dict[str, object]:
        """``devices``: [number, index of before, index of after, [[name, event before, event after], …]]; indices are
        the page's. ``series``: from ``series_rows``, without frames and with the page's stack numbers.
        """
        result = self.result
        first = sum(len(snapshot.devices) for snapshot in self.snapshots[:-1])
        here, there = result.before.devices, result.after.devices
        return {
            "before": 0,
            "after": len(self.snapshots) - 1,
            "devices": [
                [
                    device.before.device,
                    here.index(device.before.device),
                    first + there.index(device.after.device),
                    [[moment.name, moment.before_event, moment.after_event] for moment in device.moments],
                ]
                for device in result.devices
            ],
            "only_before": result.only_before,
            "only_after": result.only_after,
            "series": self._series,
        }

    @property
    def _series(self) -> list[object]:
        if self.series is None:
            return []
        base = sum(len(snapshot.recording.stack_offsets) - 1 for snapshot in self.snapshots[:-1])
        rows = series_rows(self.series)
        for row in rows:
            row.stacks = [replace(stack, stack=base + stack.stack, frames=UNSET) for stack in row.stacks]
        return [plain(row) for row in rows]

    @property
    def headline(self) -> list[str]:
        """Leaks over a series; then a sentence per device with its peaks and largest growth; unpaired devices."""
        result = self.result
        lines = self._growth
        lines += [] if result.devices else ["The two snapshots have no device in common."]
        for side, devices in (("earlier", result.only_before), ("later", result.only_after)):
            if devices:
                lines.append(f"Only the {side} snapshot has device {', '.join(map(str, devices))}.")
        for device in result.devices:
            peak, functions = device.moments[0], device.functions[0]
            cause = cause_of(result, device)
            text = sentence(
                "{}: {} peak went from {} to {} ({}).",
                _name(device),
                f"{cause} The" if cause else "the",
                bytes_part(peak.before_bytes),
                bytes_part(peak.after_bytes),
                signed(peak.after_bytes - peak.before_bytes),
            )
            top = next((row for row in functions.head(1).rows(named=True) if row["delta"]), None)
            if top:
                where = code_part(top["name"]) if top["name"] else "allocations without a stack trace"
                text = sentence("{} Largest change: {} in {}.", text, signed(top["delta"]), where)
            lines.append(text)
        return lines + [
            sentence("{} was moved or renamed to {}.", *map(code_part, names))
            for names in sorted(result.matching.renamed.items())
        ]

    @property
    def _growth(self) -> list[str]:
        if self.series is None:
            return []
        lines = [f"{series_order(self.series)}."]
        for device in self.series.devices:
            name = device_names(device.kind, device.devices)
            lines += [sentence("{}: {}", name, line) for line in leak_sentences(self.series, device)[:ROWS]]
            lines.append(
                sentence(
                    "{}: {} from one of the {} snapshots to the next (median slope, allocated at the end).",
                    name,
                    signed(device.slope),
                    len(self.series.files),
                )
            )
        return lines

    @property
    def tables(self) -> list[DiffTable]:
        """For the static summary: per device the changes at the peaks by category and function, and the segments."""
        tables = [_leak_table(self.series, device) for device in self.series.devices] if self.series else []
        for device in self.result.devices:
            name = _name(device)
            for what, frame in (("category", device.categories[0]), ("function", device.functions[0])):
                rows = [
                    (
                        bytes_text(r["bytes_before"]),
                        bytes_text(r["bytes_after"]),
                        signed(r["delta"]),
                        r["change"],
                        r["name"] or "no stack trace",
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


def _name(device: DeviceDiff) -> str:
    return device_names(device.before.kind, (device.before.device, device.after.device))


def _leak_table(series: SnapshotSeries, device: DeviceSeries) -> DiffTable:
    rows = [
        (bytes_text(row.bytes[0]), bytes_text(row.bytes[-1]), f"{signed(row.slope)} a snapshot", "grows", row.place)
        for row in device.leaks
    ]
    name = device_names(device.kind, device.devices)
    return DiffTable(f"{name}, stacks that grow over {len(series.files)} snapshots", rows[:ROWS])
