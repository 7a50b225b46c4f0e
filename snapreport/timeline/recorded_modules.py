"""Which module allocated, and the shape and dtype of what it returned, as noted by a recorder."""

from __future__ import annotations

import numpy as np
import polars as pl

from snapreport.reading.recorder_metadata import RecorderMetadata
from snapreport.timeline.annotations import clock_of
from snapreport.timeline.recorded_tensors import live_at, of_rows, positions
from snapreport.timeline.repeated_steps import noted_before

MODULE_SOURCES = ("recorded", "inferred")
NO_MODULES = [pl.lit(None, pl.String).alias(name) for name in ("module", "shape", "dtype")]


def recorded_modules(
    metadata: RecorderMetadata, device: int, events: pl.DataFrame, allocations: pl.DataFrame, tensors: pl.DataFrame
) -> pl.DataFrame:
    """``module``, ``shape``, ``dtype`` String of each allocation, null if unknown.

    allocations: with ``addr``, ``size``, ``stack``, ``alloc_event``, ``free_event``. tensors: ``name``
    ("layers.0.up.weight.grad"), ``shape``, ``dtype`` of those that the recorder named. A named tensor belongs to the
    module that its name begins with; anything else to the module that ran when it was allocated. A shape is that of
    what a module returned in the allocation, if it fills it.
    """
    module = pl.Series("module", [None], pl.String).new_from_index(0, len(allocations))
    shapes = pl.DataFrame({"shape": module, "dtype": module})
    clock = clock_of(events) if len(events) else None
    if clock is not None and len(metadata.running):
        module = _running(metadata, clock, allocations["alloc_event"].to_numpy())
        shapes = _shapes(metadata.outputs.filter(pl.col("device") == device), events, allocations)
        module, shapes = _with_unnoted(metadata, clock, allocations, module, shapes)
    if len(metadata.modules):
        module = _owners(tensors["name"], metadata.modules["module"]).fill_null(module)
    return shapes.select(module.alias("module"), *(tensors[key].fill_null(shapes[key]) for key in ("shape", "dtype")))


def _running(metadata: RecorderMetadata, clock: np.ndarray, born: np.ndarray) -> pl.Series:
    running = metadata.running
    if len(metadata.pauses):  # nothing runs in a pause, as far as is known
        silent = metadata.pauses.select(time_us="begin_us", code=pl.lit(0, pl.Int32))
        running = pl.concat([running, silent]).sort("time_us", maintain_order=True)
    times, codes = (running[name].to_numpy() for name in ("time_us", "code"))
    # A mark has the time before anything that follows it, so an allocation in the same microsecond comes after it.
    mark = np.searchsorted(times, clock[np.maximum(born, 0)], "right") - 1
    code = np.where((born >= 0) & (mark >= 0), codes[np.maximum(mark, 0)], 0)
    return metadata.modules["module"].gather(code).replace({"": None})


def _with_unnoted(
    metadata: RecorderMetadata, clock: np.ndarray, allocations: pl.DataFrame, module: pl.Series, shapes: pl.DataFrame
) -> tuple[pl.Series, pl.DataFrame]:
    """The same for the steps that were not noted, too."""
    times = clock[np.maximum(allocations["alloc_event"].to_numpy(), 0)]
    source = noted_before(metadata, times, allocations.with_columns(module=module))
    known, at = pl.Series(source >= 0), np.maximum(source, 0)
    same = known & (allocations["size"] == allocations["size"].gather(at))
    filled = module.zip_with(~known, module.gather(at))
    return filled, shapes.select(
        pl.when(same).then(pl.lit(shapes[name].gather(at))).otherwise(pl.col(name)).alias(name)
        for name in shapes.columns
    )


def _owners(names: pl.Series, modules: pl.Series) -> pl.Series:
    """The module of each named tensor: the longest path that its name begins with. Null for what several share."""
    unique = names.unique().drop_nulls()
    single = unique.filter(~unique.str.contains(r" and \d+ more$"))
    parts = pl.DataFrame({"name": single}).with_columns(
        path=pl.col("name").str.split(".").map_elements(_prefixes, pl.List(pl.String))
    )
    known = parts.explode("path").filter(pl.col("path").is_in(modules.unique().to_list()))
    longest = known.group_by("name").agg(pl.col("path").sort_by(pl.col("path").str.len_bytes()).last())
    return names.to_frame("name").join(longest, on="name", how="left", maintain_order="left")["path"]


def _prefixes(parts: pl.Series) -> list[str]:
    return [".".join(parts[:end]) for end in range(1, len(parts))]


def _shapes(outputs: pl.DataFrame, events: pl.DataFrame, allocations: pl.DataFrame) -> pl.DataFrame:
    noted = outputs.with_columns(position=pl.Series(positions(outputs["time_us"].to_numpy(), events), dtype=pl.Int64))
    found = live_at(noted, allocations.select("addr", "size", "alloc_event", "free_event"))
    return of_rows(found.filter(pl.col("bytes") == pl.col("size")), len(allocations), "shape", "dtype")
