"""The dicts that a snapshot is made of, as torch/csrc/cuda/Module.cpp writes them (`THCPModule_memorySnapshot`)."""

from __future__ import annotations

from typing import Any

from generator.allocator import Allocator
from generator.blocks import Block
from generator.options import MIB, Options
from generator.recorder import OOM, Recorder

_LEVELS = {"2.1": 0, "2.5": 1, "2.8": 2, "2.12": 3}
"""Level of an entry's keys by PyTorch version: 2.5 adds compile_context, 2.8 user_metadata, 2.12 pool_id."""


def entry_dicts(recorder: Recorder, layout: str, times: bool, frames: bool) -> list[dict[str, Any]]:
    """The ring's entries, oldest first, as the dicts of torch's snapshot.

    `layout` is a PyTorch version (see _LEVELS), `times` and `frames`: whether time_us and frames are written. An
    entry without a stack has no `frames` key at all, and an oom has `device_free` instead of `addr`, as in torch.
    """
    level = _LEVELS[layout]
    entries: list[dict[str, Any]] = []
    for action, addr, size, stream, time_us, compile_context, user_metadata, pool_id, stack in recorder.rows:
        entry = {"action": action, "device_free" if action is OOM else "addr": addr, "size": size, "stream": stream}
        if times:
            entry["time_us"] = time_us
        if level >= 1:
            entry["compile_context"] = compile_context
        if level >= 2:
            entry["user_metadata"] = user_metadata
        if level >= 3:
            entry["pool_id"] = pool_id
        if frames and stack is not None:
            entry["frames"] = stack
        entries.append(entry)
    return entries


def segment_dicts(allocator: Allocator) -> list[dict[str, Any]]:
    """The segments with their blocks as `snapshot` lists them, by address.

    A head block that was split has lost the stack of its segment in torch, so most segments have empty frames.
    """
    free = (block for pair in allocator.pools.values() for pool in pair for block in pool.in_order())
    blocks = [block for block in free if isinstance(block, Block)]
    blocks.extend(allocator.active.values())
    heads = [block for block in blocks if block.previous is None or not block.previous.mapped]
    return [_segment_dict(allocator.device, head) for head in sorted(heads, key=lambda head: head.address)]


def _segment_dict(device: int, head: Block) -> dict[str, Any]:
    total = allocated = active = requested = 0
    blocks = []
    block: Block | None = head
    while block is not None and block.mapped:
        state = "active_allocated" if block.allocated else "inactive" if block.free else "active_pending_free"
        total += block.size
        if block.allocated:
            allocated += block.size
        if state != "inactive":
            active += block.size
            requested += block.requested
        blocks.append(
            {
                "address": block.address,
                "size": block.size,
                "requested_size": block.requested,
                "state": state,
                "frames": block.frames if block.frames is not None else [],
            }
        )
        block = block.next
    return {
        "device": device,
        "address": head.address,
        "total_size": total,
        "allocated_size": allocated,
        "active_size": active,
        "requested_size": requested,
        "stream": head.stream,
        "segment_type": "small" if head.pool.small else "large",
        "segment_pool_id": head.pool.pool_id,
        "is_expandable": head.expandable is not None,
        "frames": head.segment_frames if head.segment_frames is not None else [],
        "blocks": blocks,
    }


def settings_dict(options: Options, overflowed: bool) -> dict[str, Any]:
    """allocator_settings as torch writes them; `overflowed`: whether a ring dropped entries."""
    conf = []
    if options.expandable:
        conf.append("expandable_segments:True")
    if options.max_split_size is not None:
        conf.append(f"max_split_size_mb:{options.max_split_size // MIB}")
    settings: dict[str, Any] = {
        "PYTORCH_CUDA_ALLOC_CONF": ",".join(conf),
        "max_split_size": -1 if options.max_split_size is None else options.max_split_size,
        "garbage_collection_threshold": 0.0,
        "expandable_segments": options.expandable,
        "pinned_num_register_threads": 1,
        "release_lock_on_cudamalloc": False,
        "pinned_use_cuda_host_register": False,
        "graph_capture_record_stream_reuse": False,
        "roundup_power2_divisions": {str(1 << bit): 0 for bit in range(16)},
    }
    if options.layout == "2.12":
        settings["trace_alloc_max_entries"] = options.max_entries or 2**63 - 1
        settings["trace_alloc_overflowed"] = overflowed
    return settings
