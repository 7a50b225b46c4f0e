"""A comparison of two snapshots or of a series as text for a terminal."""

from __future__ import annotations

import polars as pl

from snapreport import terminal
from snapreport.findings.diff import DeviceDiff, Moment, SnapshotDiff
from snapreport.findings.diff_cause import cause_of
from snapreport.findings.live import names_of
from snapreport.findings.snapshot_series import FEWEST, DeviceSeries, SnapshotSeries
from snapreport.number_format import bytes_text, plural, share_text
from snapreport.report.call_tree import Chains, call_tree, tree_lines
from snapreport.sentence import bytes_part, device_part, joined, sentence

ROWS = 10
_ORDERS = {"given": "in the order given", "time": "by recording time", "name": "by name"}


def diff_text(result: SnapshotDiff) -> str:
    """Peaks, ends, and what changed most at the peaks."""
    lines = [f"{result.before.recording.name} → {result.after.recording.name}"]
    for side, devices in (("before", result.only_before), ("after", result.only_after)):
        if devices:
            lines.append(f"only {side}: device {', '.join(map(str, devices))}")
    if not result.devices:
        lines.append("no device in common")
    lines += [f"moved or renamed: {old} → {new}" for old, new in sorted(result.matching.renamed.items())]
    for device in result.devices:
        lines += ["", device_names(device.before.kind, (device.before.device, device.after.device))]
        cause = cause_of(result, device)
        lines += [f"  {cause}"] * bool(cause)
        lines += [f"  {_moment(moment)}" for moment in device.moments[:2]]
        reserved = [int(timeline.reserved.max()) for timeline in (device.before, device.after)]
        lines += [f"  {_moment(Moment('peak reserved', -1, -1, *reserved))}"] * any(reserved)
        steps = device.moments[2:]
        if steps:
            most = max(steps, key=lambda moment: abs(moment.after_bytes - moment.before_bytes))
            which = "common step" if len(steps) == 1 else f"largest change of {len(steps)} common steps"
            if most.before_bytes == most.after_bytes:
                lines.append(f"  {plural(len(steps), 'common step')}: the peaks are equal")
            else:
                lines.append(f"  {which}: {_moment(most)}")
        lines += (
            _rows("category", device.categories[0])
            + _modules(device.modules[0])
            + _rows("function", device.functions[0])
            + _stacks(result, device)
        )
    return terminal.lines(lines)


def signed(value: int) -> str:
    """``+1.50 GiB``, ``-12 B``, ``±0 B``."""
    return f"{'+' if value > 0 else '±' if value == 0 else ''}{bytes_text(value)}"


def _moment(moment: Moment) -> str:
    change = moment.after_bytes - moment.before_bytes
    share = ""
    if change and moment.before_bytes:
        text = share_text(abs(change), moment.before_bytes)
        share = f", {text}" if text.startswith("<") else f", {'+' if change > 0 else '-'}{text}"
    return (
        f"{moment.name}: {bytes_text(moment.before_bytes)} → {bytes_text(moment.after_bytes)} ({signed(change)}{share})"
    )


def _rows(heading: str, table: pl.DataFrame) -> list[str]:
    changed = table.filter(pl.col("change") != "same").head(ROWS)
    if not len(changed):
        return [f"  at the peak no {heading} changed"]
    return [f"  at the peak, by {heading}:"] + [
        f"    {signed(row['delta']):>11}  {bytes_text(row['bytes_before']):>10} → "
        f"{bytes_text(row['bytes_after']):<10}  {row['change']:<8}  {row['name'] or 'no stack trace'}"
        for row in changed.rows(named=True)
    ]


def _modules(table: pl.DataFrame) -> list[str]:
    """Numbered modules at the same place are one row: what changes in one layer mostly changes in all."""
    if not len(table):
        return []
    part = pl.element()
    places = pl.when(part.str.contains(r"^\d+$")).then(pl.lit("*")).otherwise(part)
    place = pl.col("name").str.split(".").list.eval(places).list.join(".").alias("place")
    sums = pl.col("bytes_before", "bytes_after", "count_before", "count_after", "delta").sum()
    rows = table.filter(pl.col("change") != "same").sort(pl.col("delta").abs(), descending=True)
    named = rows.group_by(place, "change", maintain_order=True).agg(
        sums, modules=pl.len(), first=pl.col("name").first(), most=pl.col("delta").first()
    )
    many = pl.format("{} ({} modules", "place", "modules")
    is_one = pl.col("most").abs() * 2 > pl.col("delta").abs()
    many = pl.when(is_one).then(pl.format("{}, most in {})", many, "first")).otherwise(pl.format("{})", many))
    named = named.with_columns(name=pl.when(pl.col("modules") == 1).then("first").otherwise(many))
    return _rows("module", named.sort(pl.col("delta").abs(), descending=True, maintain_order=True))


def _stacks(result: SnapshotDiff, device: DeviceDiff) -> list[str]:
    """The stacks that changed, except of a line whose bytes are unchanged: only its callers differ."""
    changed = device.stacks[0].filter(pl.col("change") != "same")
    places = [
        names_of(result.after).place(after) if after is not None else names_of(result.before).place(before)
        for before, after in changed.select("stack_before", "stack_after").rows()
    ]
    changed = changed.with_columns(place=pl.Series(places, dtype=pl.String))
    changed = changed.filter(pl.col("delta").sum().over("place") != 0)
    changed = changed.group_by("place", "change", maintain_order=True).agg(pl.col("delta").sum(), stacks=pl.len())
    changed = changed.sort(pl.col("delta").abs(), descending=True, maintain_order=True).head(ROWS)
    if not len(changed):
        return []
    return ["  at the peak, by stack:"] + [
        f"    {signed(delta):>11}  {change:<8}  {place}{f' ({stacks} stacks)' if stacks > 1 else ''}"
        for delta, change, place, stacks in changed.select("delta", "change", "place", "stacks").rows()
    ]


def diff_tree_text(result: SnapshotDiff) -> str:
    """The stack traces whose bytes at the peaks differ, as a tree: the whole chain of calls. A stack of both sides has
    the lines of the later one.
    """
    before, after = Chains(result.before.recording), Chains(result.after.recording)
    lines = [f"{result.before.recording.name} → {result.after.recording.name}"]
    for device in result.devices:
        changed = device.stacks[0].filter(pl.col("delta") != 0)
        title = f"{device_names(device.before.kind, (device.before.device, device.after.device))} at the peaks"
        rows = changed.select("stack_before", "stack_after", "bytes_before", "bytes_after", "delta").rows()
        tree = call_tree(
            title,
            (
                (before.of(one) if two is None else after.of(two), (old, new), abs(delta))
                for one, two, old, new, delta in rows
            ),
        )
        lines += ["", *(tree_lines(tree, _change_cells) if tree.values else [f"{title}: no stack changed"])]
    return terminal.lines(lines)


def _change_cells(values: list[int]) -> str:
    old, new = values
    return f"{signed(new - old):>11}  {bytes_text(old):>10} → {bytes_text(new):<10}"


def device_names(kind: str, numbers: tuple[int, ...]) -> str:
    """``cuda:0``; if the files number it differently, ``cuda:0 → cuda:3``."""
    names = [device_part(kind, number) for number in numbers]
    return joined(names, " → ") if len(set(names)) > 1 else names[0]


def series_order(series: SnapshotSeries) -> str:
    """The files in order, and the sort key."""
    return f"{len(series.files)} snapshots {_ORDERS[series.order]}: {' → '.join(series.files)}"


def leak_sentences(series: SnapshotSeries, device: DeviceSeries) -> list[str]:
    """Stacks that grow from snapshot to snapshot on one device, the fastest first."""
    if not device.leaks:
        return [f"No stack grows from snapshot to snapshot over {plural(len(series.files), 'snapshot')}."]
    return [
        sentence(
            "{} leaks {} a snapshot, from {} to {}.",
            row.place,
            *map(bytes_part, (row.slope, row.bytes[0], row.bytes[-1])),
        )
        for row in device.leaks
    ]


def series_text(series: SnapshotSeries) -> str:
    """The order of the files; for each device its leaks, and a line per snapshot."""
    lines = [series_order(series)]
    if len(series.files) < FEWEST:
        return terminal.lines(lines)
    width = max(map(len, series.files))
    for device in series.devices:
        lines += ["", device_names(device.kind, device.devices)]
        lines += [f"  {sentence}" for sentence in leak_sentences(series, device)]
        lines.append(f"  {signed(device.slope)} from one snapshot to the next, allocated at the end (median slope)")
        lines += [
            f"  {name:<{width}}  peak {bytes_text(peak):>9}  end {bytes_text(end):>9}  reserved {bytes_text(held):>9}"
            for name, peak, end, held in zip(
                series.files,
                device.totals["peak_allocated_bytes"],
                device.totals["end_allocated_bytes"],
                device.totals["end_reserved_bytes"],
                strict=True,
            )
        ]
    return terminal.lines(lines)
