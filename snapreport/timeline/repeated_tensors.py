"""Tensors that a program allocates repeatedly in its own loop: input batches, and growing caches."""

from __future__ import annotations

import numpy as np
import polars as pl

from snapreport.timeline.life_phases import LifePhases
from snapreport.timeline.phases import FORWARD, NONE

_MIN_CACHE_BYTES = 1 << 16  # bytes: lists of token numbers also grow
_GENERATIONS = 2
_NEVER = 2**31 - 1


def input_batches(alloc: np.ndarray, free: np.ndarray, stack: np.ndarray, lives: LifePhases) -> np.ndarray:
    """Bool per allocation: whether it is a batch, allocated between a training step and the next forward pass.

    No phase is running then; it is live in the forward pass, no backward pass frees it, and the same line makes it in
    at least two steps. Older batches than two steps are freed: a line whose tensors live longer collects them.
    """
    after = lives.next_event[np.maximum(alloc, 0)]
    waits = (free < 0) | (free > after)
    mine = (alloc >= 0) & (stack > 0) & (lives.born == NONE) & (lives.before != FORWARD) & (lives.after == FORWARD)
    mine &= waits & (np.isin(lives.freed, (NONE, FORWARD)) if lives.own_frees else True)
    rows = np.flatnonzero(mine)
    table = pl.DataFrame(
        {"row": rows, "stack": stack[rows], "alloc": alloc[rows], "free": free[rows], "next": after[rows]}
    )
    begins = table.group_by("stack", "next").agg(begin=pl.col("alloc").min()).sort("stack", "next")
    begins = begins.with_columns(limit=pl.col("begin").shift(-2).over("stack"), steps=pl.len().over("stack"))
    late = pl.col("limit").is_not_null() & ((pl.col("free") < 0) | (pl.col("free") > pl.col("limit")))
    table = table.join(begins, on=["stack", "next"]).with_columns(late=late.any().over("stack"))
    found = np.zeros(len(alloc), bool)
    found[table.filter(~pl.col("late") & (pl.col("steps") >= _GENERATIONS))["row"].to_numpy()] = True
    return found


def growing_caches(
    size: np.ndarray, alloc: np.ndarray, free: np.ndarray, stack: np.ndarray, lives: LifePhases
) -> np.ndarray:
    """Bool per allocation: whether it is keys or values that forward passes concatenate, token by token.

    One line allocates blocks of one size, larger by a constant number of bytes in each following pass; and blocks of
    one pass live until those of the next replace them. Scores also grow, but do not outlive a pass.
    """
    found = np.zeros(len(size), bool)
    rows = np.flatnonzero((alloc >= 0) & (lives.born == FORWARD) & (stack > 0) & (size >= _MIN_CACHE_BYTES))
    if not len(rows):
        return found
    table = pl.DataFrame(
        {"row": rows, "stack": stack[rows], "size": size[rows], "alloc": alloc[rows], "free": free[rows]}
    )
    table = table.sort("stack", "alloc").with_columns(run=pl.struct("stack", "size").rle_id())
    runs = table.group_by("run", maintain_order=True).agg(
        pl.col("stack").first(), pl.col("size").first(), begin=pl.col("alloc").first()
    )
    runs = runs.with_columns(
        step=(pl.col("size") - pl.col("size").shift(1)).over("stack"),
        limit=pl.col("begin").shift(-1).over("stack").fill_null(_NEVER),
    )
    steady = (pl.col("step") > 0) & (pl.col("step") == pl.col("step").shift(1))
    steady = steady.over("stack").fill_null(value=False)
    runs = runs.with_columns(steady=steady)
    within = pl.any_horizontal(
        pl.col("steady").shift(-places).over("stack").fill_null(value=False) for places in range(3)
    )
    runs = runs.with_columns(grows=within)
    table = table.join(runs.select("run", "limit", "grows"), on="run")
    stays = (pl.col("free") < 0) | (pl.col("free") >= pl.col("limit"))
    table = table.filter(pl.col("grows") & stays)
    found[table["row"].to_numpy()] = True
    return found
