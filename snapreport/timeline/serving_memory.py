"""What the memory that a program reserves for serving a model is for: weights, KV cache, CUDA graphs, activations."""

from __future__ import annotations

import polars as pl

from snapreport.contracts.stats import ServingMemory
from snapreport.timeline.build import DeviceTimeline
from snapreport.timeline.curves import allocated_curve
from snapreport.timeline.segments import is_private

MIN_CACHE_SHARE = 0.05
"""Of the reserved memory at the end: a smaller cache is one request's, and not what a server sets aside."""
_PASSING = ("activation", "temporary", "input")


def serving_memory(timeline: DeviceTimeline) -> ServingMemory | None:
    """The parts of what is reserved at the end of a trace, which together are all of it; None unless the program infers
    and has a KV cache then.

    Weights and the cache count in whatever pool they are. Of private pools the rest is CUDA graphs'; elsewhere, what is
    cached or holds activations is kept for forward passes.
    """
    if timeline.activity.kind != "inference":
        return None
    segments = timeline.recording.devices[timeline.device].segments
    reserved = int(segments["total_size"].sum())
    private = int(segments.filter(is_private(pl.col("pool")))["total_size"].sum())
    allocations = timeline.allocations.select(
        "alloc_event", "free_event", "size", pl.col("category").cast(pl.String), private=is_private(pl.col("pool"))
    )
    live = allocations.filter(pl.col("free_event") < 0)
    lasting = ("parameter", "kv cache")
    sizes = live.group_by("category").agg(pl.col("size").sum())
    weights, cache = (int(sizes.filter(pl.col("category") == name)["size"].sum()) for name in lasting)
    if cache < MIN_CACHE_SHARE * reserved or not reserved:
        return None
    graphs = private - int(live.filter("private", pl.col("category").is_in(lasting))["size"].sum())
    others = live.filter(~pl.col("private"), ~pl.col("category").is_in((*lasting, *_PASSING)))
    other = int(others["size"].sum())
    is_freed = (pl.col("free_event") >= 0) & ~pl.col("category").is_in(lasting)
    passing = allocations.filter(~pl.col("private"), is_freed | pl.col("category").is_in(_PASSING))
    born, freed, size = (passing[name].to_numpy() for name in ("alloc_event", "free_event", "size"))
    return ServingMemory(
        reserved_bytes=reserved,
        weight_bytes=weights,
        kv_cache_bytes=cache,
        cuda_graph_bytes=graphs,
        activation_reserve_bytes=reserved - weights - cache - graphs - other,
        other_bytes=other,
        peak_activation_bytes=int(allocated_curve(born, freed, size, len(timeline.events)).max()),
    )
