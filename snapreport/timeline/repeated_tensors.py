"""Tensors that a program allocates repeatedly in its own loop: input batches, and growing caches."""

from __future__ import annotations

import numpy as np
import polars as pl

from snapreport.integers import is_among
from snapreport.timeline.category_rules import PARAMETER
from snapreport.timeline.life_phases import Evidence
from snapreport.timeline.phases import FORWARD, NONE
from snapreport.timeline.workspaces import AT_ONCE

_MIN_CACHE_BYTES = 1 << 16  # bytes: lists of token numbers also grow
_MIN_PART = 1 << 12  # bytes of what one pass adds to a cache
_MIN_LAYERS, _MIN_WORK = 4, 32
_EARLY_SHARE = 0.25  # of the allocations of forward passes
_MAX_REPLACING = 4  # events between the birth of a larger block and the free of the one it was made from
_MIN_REPLACED = 0.8  # of a line's blocks: a request that has ended frees its last ones
_MAX_GROWING = 0.5
"""Of the lines of forward passes. Recorded: 0.08 to 0.25 grow with a cache, 0.67 to 0.8 where all words are read again.
"""
_MIN_GENERATIONS = 2


def input_batches(e: Evidence) -> np.ndarray:
    """Bool per allocation: whether it is a batch, allocated between a training step and the next forward pass.

    No phase is running then; it is live in the forward pass, no backward pass frees it, and the same line makes it in
    at least two steps. Older batches than two steps are freed: a line whose tensors live longer collects them.
    """
    after = e.lives.next_event[e.alloc]
    waits = e.end > after
    mine = (e.stack > 0) & (e.lives.born == NONE) & (e.lives.before != FORWARD) & waits
    mine &= (e.lives.after == FORWARD) & (np.isin(e.lives.freed, (NONE, FORWARD)) if e.lives.own_frees else True)
    rows = np.flatnonzero(mine)
    table = pl.DataFrame(
        {"row": rows, "stack": e.stack[rows], "alloc": e.alloc[rows], "free": e.free[rows], "next": after[rows]}
    )
    begins = table.group_by("stack", "next").agg(begin=pl.col("alloc").min()).sort("stack", "next")
    begins = begins.with_columns(limit=pl.col("begin").shift(-2).over("stack"), steps=pl.len().over("stack"))
    late = pl.col("limit").is_not_null() & ((pl.col("free") < 0) | (pl.col("free") > pl.col("limit")))
    table = table.join(begins, on=["stack", "next"]).with_columns(late=late.any().over("stack"))
    found = np.zeros(len(e.alloc), bool)
    found[table.filter(~pl.col("late") & (pl.col("steps") >= _MIN_GENERATIONS))["row"].to_numpy()] = True
    return found


def growing_caches(e: Evidence) -> np.ndarray:
    """Bool per allocation: whether it is keys or values that forward passes concatenate, token by token.

    One line allocates blocks of one size, larger by a constant number of bytes in each following pass; and blocks of
    one pass live until those of the next replace them. Scores also grow, but do not outlive a pass; so do logits of a
    text that is read again as a whole, of which a pass has one, not keys and values; and outputs of its layers, with
    which most other lines grow. Where requests with caches of their own take turns, see :func:`_replaced`.
    """
    found = np.zeros(len(e.size), bool)
    every = e.is_traced & (e.lives.born == FORWARD)
    every = np.flatnonzero(every & (e.end - e.alloc > AT_ONCE))  # no workspace beside a line's result
    rows = every[e.size[every] >= _MIN_CACHE_BYTES]
    if not len(rows):
        return found
    table = _growing(every, e)
    chosen = table["row"].to_numpy()
    table = table.with_columns(
        free=pl.Series(e.free[chosen]), size=pl.Series(e.size[chosen]), stack=pl.Series(e.stack[chosen]),
        outlives=pl.Series(e.lives.freed[chosen] != FORWARD),
    )  # fmt: skip
    if table["stack"].n_unique() > _MAX_GROWING * len(np.unique(e.stack[every])):
        return found
    table = table.filter(pl.col("size") >= _MIN_CACHE_BYTES)
    stays = (pl.col("free") < 0) | (pl.col("free") >= pl.col("limit"))
    stays = stays.fill_null(pl.col("outlives") & stays.any().over("stack"))
    several = (pl.len().over("stack", "limit") > 1) | (pl.col("stack").n_unique().over("size") > 1)
    found[table.filter(stays).filter(several)["row"].to_numpy()] = True
    found[_replaced(rows, e)] = True
    return found


def _replaced(rows: np.ndarray, e: Evidence) -> np.ndarray:
    """Those of ``rows`` whose line frees nearly every block just after it has made another, larger by a constant number
    of bytes, and has made blocks of other layers between the two.
    """
    table = pl.DataFrame({"row": rows, "stack": e.stack[rows], "size": e.size[rows], "alloc": e.alloc[rows]})
    table = table.with_columns(number=pl.col("row").cum_count().over("stack").cast(pl.Int64))
    freed = table.with_columns(free=pl.Series(e.free[table["row"].to_numpy()])).filter(pl.col("free") >= 0)
    later = table.select("stack", "alloc", size_after="size", number_after="number")
    pairs = freed.sort("free").join_asof(
        later, left_on="free", right_on="alloc", by="stack", suffix="_after", check_sortedness=False
    )
    pairs = pairs.with_columns(added=pl.col("size_after") - pl.col("size"))
    is_next = (pl.col("free") - pl.col("alloc_after") <= _MAX_REPLACING) & (
        pl.col("number_after") - pl.col("number") > _MIN_LAYERS
    )
    most = pl.col("added").mode().min()
    lines = pairs.group_by("stack").agg(n=pl.len(), added=most, alike=(is_next & (pl.col("added") == most)).sum())
    lines = lines.filter(
        (pl.col("alike") >= _MIN_WORK) & (pl.col("alike") >= _MIN_REPLACED * pl.col("n")) & (pl.col("added") > 0)
    )
    return rows[is_among(e.stack[rows], lines["stack"].to_numpy())]


def _growing(rows: np.ndarray, e: Evidence) -> pl.DataFrame:
    """Those of ``rows`` whose line allocates blocks of one size, larger by a constant number of bytes in each following
    run: ``row``, ``limit`` (the event at which the line's next run begins; null after the last).
    """
    table = pl.DataFrame({"row": rows, "stack": e.stack[rows], "size": e.size[rows], "alloc": e.alloc[rows]})
    table = table.sort("stack", "alloc").with_columns(run=pl.struct("stack", "size").rle_id())
    runs = table.group_by("run", maintain_order=True).agg(
        pl.col("stack").first(), pl.col("size").first(), begin=pl.col("alloc").first()
    )
    runs = runs.with_columns(
        step=(pl.col("size") - pl.col("size").shift(1)).over("stack"),
        limit=pl.col("begin").shift(-1).over("stack"),
    )
    steady = (pl.col("step") > 0) & (pl.col("step") == pl.col("step").shift(1))
    runs = runs.with_columns(steady=steady.over("stack").fill_null(value=False))
    grows = pl.any_horizontal(
        pl.col("steady").shift(-places).over("stack").fill_null(value=False) for places in range(3)
    )
    return table.join(runs.select("run", "limit", grows=grows), on="run").filter("grows").select("row", "limit")


def kept_caches(e: Evidence, weights: np.ndarray) -> np.ndarray:
    """Bool per allocation: whether it is keys or values that are kept as they are, not concatenated.

    Either a list grows by blocks that stay, while what is read from it grows by as much each pass (quantised, paged);
    or blocks of one size are made once, early, two or one for each layer, and stay to the end (static). weights: Int64
    bytes of the parameters, whose numbers show that of the layers.
    """
    found = np.zeros(len(e.size), bool)
    end = e.end
    inside = e.is_traced & (e.stack > 0) & (e.size >= _MIN_PART)
    in_pass = inside & (e.lives.born == FORWARD)
    births = e.alloc[in_pass]
    if len(births) < _MIN_WORK:
        return found
    counts = np.unique(weights, return_counts=True)[1]
    layers = {int(n) for n in counts if n >= _MIN_LAYERS}
    grows = len(_growing(np.flatnonzero(in_pass & (e.size >= _MIN_CACHE_BYTES)), e)) >= _MIN_WORK
    own = inside & (e.lives.born == NONE) & (e.lives.before != FORWARD)
    for one in np.unique(e.stack[in_pass | own]).tolist():
        every = np.flatnonzero((e.stack == one) & (in_pass | own))
        rows = every[end[every] >= births[-1] - (births[-1] - births[0]) // 8]
        if len(rows) < _MIN_LAYERS:
            continue
        begun = np.searchsorted(births, e.alloc[rows]) / len(births)
        alike = len(rows) == len(every) and len(np.unique(e.size[rows])) == 1
        of_layers = bool({len(rows), len(rows) // 2, len(rows) // 4} & layers)
        early = begun.max() <= _EARLY_SHARE and (alike or grows) and of_layers
        spread = begun.max() - begun.min() >= 0.5 and in_pass[rows].all() and len(rows) >= _MIN_WORK
        found[rows] = early or (grows and spread)
    return found


def built_caches(e: Evidence) -> np.ndarray:
    """Bool per allocation: keys and values that a constructor allocates before any request: blocks of one size directly
    after one another, two for each layer. Weights that a constructor allocates stand among those of other sizes.
    """
    rows = np.flatnonzero(e.is_traced)
    built = (e.probable[rows] > 0) & (e.size[rows] >= _MIN_CACHE_BYTES)
    run = np.cumsum((np.diff(e.size[rows], prepend=0) != 0) | (np.diff(built, prepend=False) != 0))
    counts = np.unique(e.size[e.codes == PARAMETER], return_counts=True)[1]
    layers = counts[counts >= _MIN_LAYERS]
    return is_among(np.arange(len(e.size)), rows[built & np.isin(np.bincount(run)[run], 2 * layers)])
