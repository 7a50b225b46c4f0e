"""Tables of a snapshot in the format of a data lake: many snapshots in many folders are one query.

Every table begins with ``snapshot`` String, the file's name; tables of a device go on with ``device`` Int64. What the
columns mean is in docs/python-api.md; docs/export.md lists the tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import polars as pl

from snapreport.reading.recording import Recording
from snapreport.snapshot import Snapshot
from snapreport.timeline.own_code import own_frames

_OF_A_DEVICE: dict[str, Callable[[Snapshot, int], pl.DataFrame]] = {
    "allocations": lambda snapshot, device: snapshot.allocations(device, with_stacks=True),
    "events": lambda snapshot, device: snapshot.events(device).with_row_index("event"),
    "curve": lambda snapshot, device: snapshot.curve(device),
    "category_curve": lambda snapshot, device: _category_changes(snapshot, device),
    "segments": lambda snapshot, device: snapshot.segments(device).with_row_index("segment"),
    "blocks": lambda snapshot, device: snapshot.recording.devices[device].blocks,
    "steps": lambda snapshot, device: snapshot.steps(device),
    "spans": lambda snapshot, device: snapshot.spans(device),
}
TABLES = (*_OF_A_DEVICE, "stacks", "stack_frames")
"""The names of the tables."""


def tables(snapshot: Snapshot) -> Iterator[tuple[str, pl.DataFrame]]:
    """Name and rows of each table. Plain types only: enumerations are String, since not every format has them."""
    name = pl.lit(snapshot.recording.name).alias("snapshot")
    for table, rows_of in _OF_A_DEVICE.items():
        parts = [
            _plain(rows_of(snapshot, device)).select(name, pl.lit(device, pl.Int64).alias("device"), pl.all())
            for device in snapshot.devices
        ]
        if parts:
            yield table, pl.concat(parts)
    yield "stacks", _stacks(snapshot.recording).select(name, pl.all())
    yield "stack_frames", _stack_frames(snapshot.recording).select(name, pl.all())


def _category_changes(snapshot: Snapshot, device: int) -> pl.DataFrame:
    """A row for each change: ``position`` Int32, ``time_us`` Int64 null, ``category`` String, ``allocated`` Int64 of it
    from then on.
    """
    position, time = pl.col("position"), pl.col("time_us")
    curve = snapshot.category_curve(device)
    names = curve.columns[1:]
    times = pl.concat([pl.Series("time_us", [None], pl.Int64), snapshot.events(device)["time_us"].cast(pl.Int64)])
    curve = curve.with_columns(times)
    changes = [
        curve.filter((position < 0) | (pl.col(name) != pl.col(name).shift())).select(
            position, time, category=pl.lit(name), allocated=pl.col(name)
        )
        for name in names
    ]
    schema = {"position": pl.Int32, "time_us": pl.Int64, "category": pl.String, "allocated": pl.Int64}
    return pl.concat(changes).sort("position", maintain_order=True) if changes else pl.DataFrame(schema=schema)


def _plain(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(pl.col(pl.Enum, pl.Categorical).cast(pl.String))


def _stacks(recording: Recording) -> pl.DataFrame:
    """``stack``, ``frames`` Int32 (how many), and the frame that names it: ``function``, ``file``, ``line``."""
    frame = own_frames(recording)
    columns = pl.DataFrame(
        {
            "stack": pl.Series(np.arange(len(frame)), dtype=pl.Int32),
            "frames": pl.Series(np.diff(recording.stack_offsets), dtype=pl.Int32),
            "row": pl.Series(frame, dtype=pl.Int64),
        }
    )
    return columns.join(_named_frames(recording), on="row", how="left", maintain_order="left").drop("row")


def _stack_frames(recording: Recording) -> pl.DataFrame:
    """A row per frame of each stack: ``stack`` and ``depth`` Int32 (0: innermost), ``function``, ``file``, ``line``."""
    lengths = np.diff(recording.stack_offsets)
    depth = np.arange(len(recording.stack_frames)) - np.repeat(recording.stack_offsets[:-1], lengths)
    columns = pl.DataFrame(
        {
            "stack": pl.Series(np.repeat(np.arange(len(lengths)), lengths), dtype=pl.Int32),
            "depth": pl.Series(depth, dtype=pl.Int32),
            "row": pl.Series(recording.stack_frames, dtype=pl.Int64),
        }
    )
    return columns.join(_named_frames(recording), on="row", how="left", maintain_order="left").drop("row")


def _named_frames(recording: Recording) -> pl.DataFrame:
    return recording.frames.select(
        pl.int_range(pl.len(), dtype=pl.Int64).alias("row"),
        pl.col("name").alias("function"),
        pl.col("filename").alias("file"),
        pl.col("line").cast(pl.Int64),
    )


def write_parquet(snapshot: Snapshot, folder: Path) -> None:
    """``allocations.parquet`` and its siblings."""
    for name, rows in tables(snapshot):
        rows.write_parquet(folder / f"{name}.parquet", compression="zstd")


def write_csv(snapshot: Snapshot, folder: Path) -> None:
    for name, rows in tables(snapshot):
        rows.write_csv(folder / f"{name}.csv")
