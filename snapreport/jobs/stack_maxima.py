"""The most that each stack of a rank has allocated at once, whenever that was: two ranks whose peaks are at different
moments of a step can be compared stack by stack.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from snapreport.timeline.workspaces import CUBLAS_WORKSPACE


def stack_maxima(allocations: pl.DataFrame, events: int) -> pl.DataFrame:
    """``stack`` Int32, ``most`` Int64 (bytes), ``most_count`` Int64 (allocations at that moment), in order of stacks.

    ``allocations``: as of a timeline of so many ``events``; those without a free stay until the end. Workspaces are
    left out, whose sizes do not depend on the program: cuBLAS allocates one in whatever line calls it first.
    """
    is_workspace = (pl.col("size") == CUBLAS_WORKSPACE) | (pl.col("category") == "workspace").fill_null(value=False)
    table = allocations.filter(~is_workspace).select("stack", "size", "alloc_event", "free_event")
    begin = table["alloc_event"].to_numpy().astype(np.int64)
    end = table["free_event"].to_numpy().astype(np.int64)
    stack, size = table["stack"].to_numpy(), table["size"].to_numpy()
    is_freed = end >= 0
    at = np.concatenate((begin, end[is_freed]))
    changes = pl.DataFrame({
        "stack": np.concatenate((stack, stack[is_freed])),
        "key": np.concatenate((stack, stack[is_freed])).astype(np.int64) * (events + 2) + at + 1,
        "bytes": np.concatenate((size, -size[is_freed])),
        "count": np.concatenate((np.ones(len(size), np.int64), -np.ones(int(is_freed.sum()), np.int64))),
    })  # fmt: skip
    # What lives before the trace shares one position, the start: allocations come before frees there.
    order = changes.sort("key", maintain_order=True)
    sums = order.select("stack", pl.col("bytes", "count").cum_sum().over("stack"))
    return (
        sums.group_by("stack", maintain_order=True)
        .agg(most=pl.col("bytes").max(), most_count=pl.col("count").gather(pl.col("bytes").arg_max()).first())
        .cast({"stack": pl.Int32})
    )
