"""What the memory that a program reserves for serving a model is for: weights, KV cache, CUDA graphs, activations."""

from __future__ import annotations

import polars as pl

from snapreport.contracts.stats import ServingMemory
from snapreport.timeline.build import DeviceTimeline
from snapreport.timeline.curves import allocated_curve
from snapreport.timeline.lifetimes import IS_FREED
from snapreport.timeline.segments import is_private

MIN_CACHE_SHARE = 0.05
"""Of the reserved memory at the end: a smaller cache is one request's, and not what a server sets aside."""
MIN_CACHE_ALONE = 0.5
"""The same of a final state without a trace."""
_PASSING = ("activation", "temporary", "input")


def serving_memory(timeline: DeviceTimeline) -> ServingMemory | None:
    """The parts of what is reserved at the end of a trace, which together are all of it; None unless the program infers
    and has a KV cache then. Without a trace, one that has half of the memory shows that.

    Weights and the cache count in whatever pool they are; the rest of a private pool that mostly has these is other
    memory, and that of all others CUDA graphs'. Elsewhere, what is cached or holds activations is kept for forward
    passes.
    """
    has_events = len(timeline.events) > 0
    if has_events and timeline.activity.kind != "inference":
        return None
    segments = timeline.recording.devices[timeline.device].segments
    reserved = int(segments["total_size"].sum())
    allocations = timeline.allocations.select(
        "alloc_event",
        "free_event",
        "size",
        "pool",
        pl.col("category").cast(pl.String),
        private=is_private(pl.col("pool")),
    )
    live = allocations.filter(~IS_FREED)
    lasting = ("parameter", "kv cache")
    sizes = live.group_by("category").agg(pl.col("size").sum())
    weights, cache = (int(sizes.filter(pl.col("category") == name)["size"].sum()) for name in lasting)
    if cache < (MIN_CACHE_SHARE if has_events else MIN_CACHE_ALONE) * reserved or not reserved:
        return None
    pools = segments.filter(is_private(pl.col("pool"))).group_by("pool").agg(reserved=pl.col("total_size").sum())
    held = live.group_by("pool").agg(
        lasting=pl.col("size").filter(pl.col("category").is_in(lasting)).sum(), live=pl.col("size").sum()
    )
    pools = pools.join(held, on="pool", how="left").fill_null(0).with_columns(rest=pl.col("reserved") - "lasting")
    is_lasting = 2 * pl.col("lasting") > pl.col("live")
    graphs = int(pools.filter(~is_lasting)["rest"].sum())
    others = live.filter(~pl.col("private"), ~pl.col("category").is_in((*lasting, *_PASSING)))
    other = int(others["size"].sum()) + int(pools.filter(is_lasting)["rest"].sum())
    is_freed = IS_FREED & ~pl.col("category").is_in(lasting)
    passing = allocations.filter(~pl.col("private"), is_freed | pl.col("category").is_in(_PASSING))
    born, freed, size = (passing[name].to_numpy() for name in ("alloc_event", "free_event", "size"))
    curve = allocated_curve(born, freed, size, len(timeline.events))
    return ServingMemory(
        reserved_bytes=reserved,
        weight_bytes=weights,
        kv_cache_bytes=cache,
        cuda_graph_bytes=graphs,
        activation_reserve_bytes=reserved - weights - cache - graphs - other,
        other_bytes=other,
        peak_activation_bytes=int(curve.max()) if has_events else None,
    )
