"""Which module allocated, the shape and dtype of what it returned, and what autograd saved, as noted by a recorder."""

from __future__ import annotations

import numpy as np
import polars as pl

from snapreport.reading.recorder_metadata import RecorderMetadata
from snapreport.timeline.annotations import clock_of
from snapreport.timeline.recorded_tensors import live_at, of_rows, positions
from snapreport.timeline.repeated_steps import noted_before

MODULE_SOURCES = ("recorded", "inferred")
NO_MODULES = [pl.lit(None, pl.String).alias(name) for name in ("module", "shape", "dtype", "saved_by")]


def recorded_modules(
    metadata: RecorderMetadata, device: int, events: pl.DataFrame, allocations: pl.DataFrame, tensors: pl.DataFrame
) -> pl.DataFrame:
    """``module``, ``shape``, ``dtype``, ``saved_by`` String of each allocation, null if unknown.

    allocations: with ``addr``, ``size``, ``stack``, ``alloc_event``, ``free_event``. tensors: ``name``
    ("layers.0.up.weight.grad"), ``shape``, ``dtype`` of those that the recorder named. A named tensor belongs to the
    module that its name begins with; anything else to the module that ran when it was allocated. A shape is that of
    what a module returned in the allocation, or autograd saved, if it fills it. ``saved_by`` are the ``grad_fn`` that
    saved any part of it: "MulBackward0 AddmmBackward0".
    """
    module = pl.Series("module", [None], pl.String).new_from_index(0, len(allocations))
    shapes = pl.DataFrame({"shape": module, "dtype": module, "saved_by": module})
    clock = clock_of(events)
    if clock is not None and len(metadata.running):
        module = _running(metadata, clock, allocations["alloc_event"].to_numpy())
        shapes = _shapes(_live_at(metadata.outputs, device, events, allocations), len(allocations))
        saved = _saved(metadata, device, clock, events, allocations)
        module, shapes = _with_unnoted(metadata, clock, allocations, module, shapes)
        # What is saved may be a view: the shape of what a module returned comes first, that of another step, too.
        shapes = shapes.with_columns(saved.select(shapes[name].fill_null(saved[name]) for name in shapes.columns))
        shapes = shapes.with_columns(saved["saved_by"])
    if len(metadata.modules):
        module = _owners(tensors["name"], metadata.modules["module"]).fill_null(module)
    named = (tensors[key].fill_null(shapes[key]) for key in ("shape", "dtype"))
    return shapes.select(module.alias("module"), *named, "saved_by")


def _running(metadata: RecorderMetadata, clock: np.ndarray, born: np.ndarray) -> pl.Series:
    running = metadata.running
    if len(metadata.pauses):  # nothing runs in a pause, as far as is known
        silent = metadata.pauses.select(time_us="begin_us", code=pl.lit(0, pl.Int32))
        running = pl.concat([running, silent]).sort("time_us", maintain_order=True)
    times, codes = (running[name].to_numpy() for name in ("time_us", "code"))
    # A mark has the time before anything that follows it, so an allocation in the same microsecond comes after it.
    mark = np.searchsorted(times, clock[born], "right") - 1
    code = np.where((born >= 0) & (mark >= 0), codes[mark], 0)
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
    return filled, _filled(shapes, same, at)


def _filled(table: pl.DataFrame, same: pl.Series, at: np.ndarray) -> pl.DataFrame:
    """``table`` with the values of rows ``at`` where they are the ``same`` and it has none of its own."""
    return table.select(
        pl.when(pl.lit(same)).then(pl.col(name).fill_null(table[name].gather(at))).otherwise(name).alias(name)
        for name in table.columns
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


def _saved(
    metadata: RecorderMetadata, device: int, clock: np.ndarray, events: pl.DataFrame, allocations: pl.DataFrame
) -> pl.DataFrame:
    """``shape``, ``dtype``, ``saved_by`` of each allocation that autograd saved; of steps whose graph was not read,
    those of one that was.
    """
    count = len(allocations)
    found = _live_at(metadata.saved, device, events, allocations)
    names = found.group_by("row").agg(pl.col("saved_by").unique(maintain_order=True).str.join(" "))
    table = _shapes(found, count).hstack(of_rows(names, count, "saved_by"))
    if not len(found):
        return table
    times = clock[np.maximum(allocations["alloc_event"].to_numpy(), 0)]
    source = noted_before(
        metadata,
        times,
        allocations.with_columns(table["saved_by"]),
        column="saved_by",
        noted_us=found["time_us"].unique().to_numpy(),
    )
    known, at = pl.Series(source >= 0), np.maximum(source, 0)
    same = known & (allocations["size"] == allocations["size"].gather(at))
    return _filled(table.drop("saved_by"), same, at).hstack(_filled(table.select("saved_by"), known, at))


def _live_at(noted: pl.DataFrame, device: int, events: pl.DataFrame, allocations: pl.DataFrame) -> pl.DataFrame:
    """The rows of ``noted`` with those of the allocations that were live then."""
    mine = noted.filter(pl.col("device") == device)
    mine = mine.with_columns(position=pl.Series(positions(mine["time_us"].to_numpy(), events), dtype=pl.Int64))
    return live_at(mine, allocations.select("addr", "size", "alloc_event", "free_event"))


def _shapes(found: pl.DataFrame, count: int) -> pl.DataFrame:
    return of_rows(found.filter(pl.col("bytes") == pl.col("size")), count, "shape", "dtype")
