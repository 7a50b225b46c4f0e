"""``stats --by`` and ``stats --tree``: a device's allocations by what made them, as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import polars as pl

from snapreport import terminal
from snapreport.number_format import bytes_text, count_text, device_name, plural, share_text
from snapreport.report.call_tree import NO_STACK, Chains, call_tree, tree_lines
from snapreport.report.summary import file_line
from snapreport.snapshot import Snapshot
from snapreport.timeline.allocation_groups import group_sums, sums_by
from snapreport.timeline.build import DeviceTimeline
from snapreport.timeline.module_tree import modules_source

ROWS = 30
_UNNAMED = {"module": "no module", "operator": "no operator", "shape": "no shape", "step": "outside of steps"}


def groups_text(snapshot: Snapshot, by: str, query: str | None) -> str:
    """A table of each device that has allocations: at the peak and over the whole trace."""
    lines = [file_line(snapshot.recording)]
    for timeline, mask in _devices(snapshot, query):
        table, title = group_sums(timeline, by, mask), f"by {by}"
        if by == "module" and modules_source(timeline) == "inferred":
            table, title = _layers_folded(table), "by line of forward, layers inferred"
        elif by == "module":
            like = {one.module: one.like for one in timeline.stats.modules or () if one.like}
            table = _alike_folded(table, like)
        if by == "shape" and table["name"].str.starts_with("*").any():
            title = "by shape, *x… inferred from sizes"
        lines += ["", _title(timeline, title, query)]
        rows = [["", "at the peak", "share", "count", "in all", "count"]]
        for name, at_peak, count_at_peak, total, count in table.head(ROWS).iter_rows():
            share = share_text(at_peak, timeline.peak_bytes) if timeline.peak_bytes else ""
            numbers = [bytes_text(at_peak), share, count_text(count_at_peak), bytes_text(total), count_text(count)]
            rows.append([name or _UNNAMED.get(by, NO_STACK), *numbers])
        lines += terminal.aligned(rows)
        rest = table.slice(ROWS)
        if len(rest):
            lines.append(
                f"and {plural(len(rest), 'other')}: {bytes_text(int(rest['bytes_at_peak'].sum()))} at the peak"
            )
    return terminal.lines(lines)


def _layers_folded(table: pl.DataFrame) -> pl.DataFrame:
    """Inferred layers of one place as one row: "dit:249.0–9.dit:125"."""
    layer = pl.col("name").str.extract(r"\.(\d+)(?:\.|$)").cast(pl.Int64)
    table = table.with_columns(layer=layer, name=pl.col("name").str.replace(r"\.\d+(\.|$)", ".*$1"))
    first, last = pl.col("layer").min(), pl.col("layer").max()
    layers = pl.when(first == last).then(pl.format("{}", first)).otherwise(pl.format("{}–{}", first, last))
    sums = pl.col("bytes_at_peak", "count_at_peak", "bytes", "count").sum()
    folded = table.group_by("name").agg(sums, layers=layers)
    folded = folded.with_columns(pl.col("name").str.replace("*", pl.col("layers").fill_null("*"), literal=True))
    return folded.drop("layers").sort(["bytes_at_peak", "bytes", "name"], descending=[True, True, False])


def _alike_folded(table: pl.DataFrame, like: dict[str, str]) -> pl.DataFrame:
    """Modules of layers that are built alike as one row: "layers.0–9.attn". like: of those, the first one."""
    members: dict[str, list[list[str]]] = {}
    first_of: dict[str | None, str | None] = {None: None, "": ""}
    for name in table["name"].drop_nulls():
        path = ""
        for part in name.split("."):
            path = f"{path}.{part}".lstrip(".")
            path = like.get(path, path)
        first_of[name] = path
        members.setdefault(path, []).append(name.split("."))
    named: dict[str | None, str | None] = {None: None, "": ""}
    for path, paths in members.items():
        numbers = [sorted(set(parts), key=lambda part: (len(part), part)) for parts in zip(*paths, strict=True)]
        named[path] = ".".join(own[0] if len(own) == 1 else f"{own[0]}–{own[-1]}" for own in numbers)
    names = [named[first_of[name]] for name in table["name"]]
    sums = pl.col("bytes_at_peak", "count_at_peak", "bytes", "count").sum()
    folded = table.with_columns(name=pl.Series(names, dtype=pl.String)).group_by("name").agg(sums)
    return folded.sort(["bytes_at_peak", "bytes", "name"], descending=[True, True, False])


def tree_text(snapshot: Snapshot, query: str | None) -> str:
    """The stack traces of what is live at the peak of each device, as a tree."""
    chains = Chains(snapshot.recording)
    lines = [file_line(snapshot.recording)]
    for timeline, mask in _devices(snapshot, query):
        rows = timeline.allocations if mask is None else timeline.allocations.filter(mask)
        sums = sums_by(timeline, rows, "stack").filter(pl.col("count_at_peak") > 0)
        total = int(sums["bytes_at_peak"].sum())
        title = _title(timeline, "at the peak", query)
        stacks = sums.select("stack", "bytes_at_peak", "count_at_peak").rows()
        tree = call_tree(title, ((chains.of(stack), (size, count), size) for stack, size, count in stacks))
        if tree.values:
            lines += ["", *tree_lines(tree, partial(_cells, total))]
        else:
            lines += ["", f"{title}: nothing"]
    return terminal.lines(lines)


def _cells(total: int, values: list[int]) -> str:
    size, count = values
    return f"{bytes_text(size):>10}  {share_text(size, total):>6}  {count_text(count):>7}×"


def _title(timeline: DeviceTimeline, what: str, query: str | None) -> str:
    return f"{device_name(timeline.kind, timeline.device)} {what}{f' of {query}' if query else ''}"


def _devices(snapshot: Snapshot, query: str | None) -> Iterator[tuple[DeviceTimeline, np.ndarray | None]]:
    """The devices with allocations, and which of those match."""
    for device in snapshot.devices:
        timeline = snapshot.timeline(device)
        if len(timeline.allocations):
            yield timeline, None if query is None else snapshot.searcher(device).find(query).mask
