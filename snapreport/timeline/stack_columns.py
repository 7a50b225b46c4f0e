"""What stack traces say of allocations, as columns beside theirs."""

from __future__ import annotations

import numpy as np
import polars as pl

from snapreport.timeline.build import DeviceTimeline
from snapreport.timeline.modules import module_paths
from snapreport.timeline.own_code import own_frames


def with_stacks(timeline: DeviceTimeline) -> pl.DataFrame:
    """The device's allocations with ``function`` String, ``file`` String and ``line`` Int64 of the frame that names the
    stack (the program's own innermost line, see ``timeline/own_code.py``), ``forward_stack`` Int32 (0: none), and
    ``forward_lines`` String, the chain of ``forward`` lines, outermost first; null where there is none.

    ``forward_source`` Enum says whose chain it is: ``stack``, the allocation's own; ``forward``, that of the forward
    operator which PyTorch recorded beside the allocation (``forward_frames``), where the own stack shows no module, as
    on the threads of the backward pass; ``none``.
    """
    recording, table = timeline.recording, timeline.allocations
    stack, born = table["stack"].to_numpy(), table["alloc_event"].to_numpy()
    frame = own_frames(recording)[stack]
    named = recording.frames.select(
        pl.col("name").alias("function"), pl.col("filename").alias("file"), pl.col("line").cast(pl.Int64)
    )
    columns = named[np.maximum(frame, 0)] if len(named) else pl.DataFrame(schema=named.schema).clear(len(table))
    columns = columns.select(pl.when(pl.Series(frame >= 0)).then(pl.all()))
    recorded = timeline.events["forward_stack"].to_numpy()
    forward = np.zeros(len(table), np.int32)
    forward[born >= 0] = recorded[born[born >= 0]]
    paths = module_paths(recording)
    path_of = pl.Series(paths.of(range(len(recording.stack_offsets) - 1)), dtype=pl.String)
    own, other = path_of.gather(stack), path_of.gather(forward)
    source = (
        pl.when(own != "").then(pl.lit("stack")).when(other != "").then(pl.lit("forward")).otherwise(pl.lit("none"))
    )
    lines = pl.when(own != "").then(own).when(other != "").then(other)
    return table.with_columns(
        *columns,
        forward_stack=pl.Series(forward),
        forward_lines=lines,
        forward_source=source.cast(pl.Enum(["stack", "forward", "none"])),
    )
