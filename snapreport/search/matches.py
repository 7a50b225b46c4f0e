"""The matches of a query, as numbers and as a table: for ``snapreport stats --query``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from snapreport import terminal
from snapreport.contracts.stats import MatchedStack, Matches
from snapreport.search.evaluate import Searcher
from snapreport.timeline.allocation_groups import sums_by
from snapreport.timeline.operators import stack_labels

TOP = 10
_SUMMED_COLUMNS = ("bytes_at_peak", "count_at_peak", "bytes", "count")


def device_matches(searcher: Searcher, query: str) -> Matches:
    """The matches on one device: their number, bytes, those live at the peak, and the stacks with the most bytes.

    The entry ``matches`` of a device in ``snapreport stats --query TEXT --json``.
    """
    timeline, found = searcher.timeline, searcher.find(query)
    rows = timeline.allocations.filter(found.mask)
    stacks = sums_by(timeline, rows, "stack")
    names = stack_labels(timeline.recording)
    return Matches(
        count=len(rows),
        bytes=int(rows["size"].sum()),
        count_at_peak=int(stacks["count_at_peak"].sum()),
        bytes_at_peak=int(stacks["bytes_at_peak"].sum()),
        top_stacks=[
            MatchedStack(row["stack"], names[row["stack"]], *(row[key] for key in _SUMMED_COLUMNS))
            for row in stacks.head(TOP).rows(named=True)
        ],
        notes=found.notes,
    )


def matches_table(query: str, files: list[dict[str, Any]], bytes_text: Callable[[int], str]) -> str:
    """The matches of each file; ``files``: ``Snapshot.stats(query)`` each. ``bytes_text``: formats a size."""
    return "\n\n".join([terminal.lines([f"query: {query}"]), *(_file_table(file, bytes_text) for file in files)])


def _file_table(file: dict[str, Any], bytes_text: Callable[[int], str]) -> str:
    devices = [d for d in file["devices"] if d["allocations"]]
    lines = [f"{file['file']}  ({bytes_text(file['bytes'])})"]
    if not devices:
        return terminal.lines([*lines, "no allocations"])
    rows = [["", "matches", "of", "bytes", "at the peak", "of"]]
    rows += [
        [
            _name(d), f"{d['matches']['count']:,}", f"{d['allocations']:,}", bytes_text(d["matches"]["bytes"]),
            bytes_text(d["matches"]["bytes_at_peak"]),
            bytes_text(d.get("trace_peak_allocated_bytes", d["peak_allocated_bytes"])),
        ]
        for d in devices
    ]  # fmt: skip
    lines += terminal.aligned(rows)
    for d in devices:
        lines += [f"{_name(d)}: {note}" for note in d["matches"]["notes"]]
    for d in devices:
        if d["matches"]["top_stacks"]:
            lines += ["", f"stacks of the matches on {_name(d)}, most bytes at the peak first"]
            lines.append(f"{'at the peak':>11}  {'in all':>10}  {'count':>8}")
        for top in d["matches"]["top_stacks"]:
            lines.append(
                f"{bytes_text(top['bytes_at_peak']):>11}  {bytes_text(top['bytes']):>10}  {top['count']:>7,}×  "
                f"{top['name'] or 'no stack trace'}"
            )
    return terminal.lines(lines)


def _name(device: dict[str, Any]) -> str:
    return "host" if device["kind"] == "host" else f"{device['kind']}:{device['device']}"
