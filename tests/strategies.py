"""Hypothesis strategies for snapshots that are valid but as unkind as a recorder can make them.

What is drawn is a list of small operations, so that a failing example shrinks to few of them; ``build`` turns it into
the raw object that would be pickled.
"""

from __future__ import annotations

import io
import pickle
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

ADDRESSES = [0x7F00_0000_0000, 0x7F00_0000_0200, 0x200, 2**32 - 512, 2**32, 2**63 + 512, 2**64 - 512]
SIZES = [0, 1, 4, 511, 512, 513, 2**20, 2**21 + 3, 2**31, 2**32 + 1, 2**40]
NASTY = [
    "</script><script>alert(1)</script>",
    "<!--",
    "-->",
    "\u2028\u2029",
    "\ud800",
    "a\x00b",
    "'\"&<>`",
    "\u202eabc",
    "é\xff",
    "\U0001f525",
    "",
    "x" * 300,
    "{{ 7 * 7 }}",
    "__proto__",
]
STACKS: list[list[dict[str, Any]] | None] = [
    None,
    [],
    [{"filename": "train.py", "line": 10, "name": "main"}],
    [{"filename": "model.py", "line": 42, "name": "forward"}, {"filename": "train.py", "line": 10, "name": "main"}],
    [{"filename": "model.py", "line": 43, "name": "forward"}, {"filename": "train.py", "line": 10, "name": "main"}],
    [{"filename": "??", "line": 0, "name": "torch::unwind::unwind()"}] * 3,
    [{"filename": text, "line": i, "name": text} for i, text in enumerate(NASTY)],
    [{"filename": "a.py", "line": -1, "name": f"frame{i % 7}"} for i in range(60)],
    [
        {
            "filename": "fx.py",
            "line": 3,
            "name": "call",
            "fx_node_op": "call_function",
            "fx_node_name": "relu",
            "fx_original_trace": "File x.py\n<b>",
        }
    ],
]
PAIRS = ["alloc", "alloc", "alloc", "free", "free", "free_requested", "free_completed"]
REST = [
    "segment_alloc",
    "segment_free",
    "segment_map",
    "segment_unmap",
    "oom",
    "snapshot",
    "workspace_snapshot",
    "from_the_future",
]
STATES = ["active_allocated", "active_pending_free", "active_awaiting_free", "inactive"]


@dataclass(frozen=True)
class Op:
    action: str
    address: int
    size: int
    stack: int
    stream: int
    gap: int


@dataclass(frozen=True)
class Plan:
    """A device's trace and what is unusual about it. ``times``: all, none or some; ``completes``: whether
    free_completed is recorded.
    """

    ops: list[Op]
    completes: bool
    times: str
    extras: bool
    faithful: bool
    final: list[tuple[int, str, int, int]] = field(default_factory=list)


def index(items: list[Any]) -> st.SearchStrategy[int]:
    return st.integers(0, len(items) - 1)


ops = st.builds(
    Op,
    st.sampled_from(PAIRS * 3 + REST),
    index(ADDRESSES),
    index(SIZES),
    index(STACKS),
    st.integers(0, 2),
    st.sampled_from([0, 1, 7, 1_000_000]),
)
finals = st.lists(
    st.tuples(index(ADDRESSES), st.sampled_from(STATES), index(SIZES), index(STACKS)),
    max_size=5,
    unique_by=lambda row: row[0],
)
plans = st.builds(
    Plan,
    st.lists(ops, max_size=60),
    st.booleans(),
    st.sampled_from(["all", "all", "none", "some"]),
    st.booleans(),
    st.booleans(),
    finals,
)


def event(action: str, op: Op, size: int, clock: int, plan: Plan, n: int) -> dict[str, Any]:
    made: dict[str, Any] = {"action": action, "addr": ADDRESSES[op.address], "size": size, "stream": op.stream}
    if action == "oom":
        made["device_free"] = made.pop("addr") % 2**40
    if plan.times == "all" or (plan.times == "some" and n % 3):
        made["time_us"] = clock
    if STACKS[op.stack] is not None:
        made["frames"] = STACKS[op.stack]
    if plan.extras and n % 2:
        made["compile_context"] = ["N/A", "0/0", "1/2 </script>", ""][n % 4]
        made["user_metadata"] = ["", "step 3"][n // 2 % 2]
        made["a_key_of_tomorrow"] = {"deep": [1]}
    return made


def trace(plan: Plan) -> tuple[list[dict[str, Any]], dict[int, tuple[int, int, int]]]:
    """(events, {address: (size, stack, stream)} of what a recorder would still call active)."""
    events: list[dict[str, Any]] = []
    live: dict[int, tuple[int, int, int]] = {}
    clock = 1_700_000_000_000_000
    for op in plan.ops:
        clock += op.gap
        kinds = {"free": ["free_requested", "free_completed"]}.get(op.action, [op.action])
        for kind in kinds:
            if kind == "free_completed" and not plan.completes:
                continue
            size = SIZES[op.size]
            if kind == "alloc":
                live[op.address] = (size, op.stack, op.stream)
            elif kind.startswith("free"):
                size = live.get(op.address, (size,))[0]
                if kind == "free_completed" or not plan.completes:
                    live.pop(op.address, None)
            events.append(event(kind, op, size, clock, plan, len(events)))
    return events, live


def segments(plan: Plan, device: int, live: dict[int, tuple[int, int, int]]) -> list[dict[str, Any]]:
    """Final segments, a block each: the live allocations in a faithful plan, and what the plan adds or falsifies."""
    rows = {address: ("active_allocated", *what) for address, what in live.items()} if plan.faithful else {}
    for address, state, size, stack in plan.final:
        if address in rows and rows[address][0] == "active_allocated":
            rows[address] = (state if state != "inactive" else "active_pending_free", *rows[address][1:])
        else:
            rows.setdefault(address, (state, SIZES[size], stack, 0))
    made = []
    for n, (address, (state, size, stack, stream)) in enumerate(rows.items()):
        rounded = max(512, -(-size // 512) * 512)
        block = {"address": ADDRESSES[address], "size": rounded, "requested_size": size, "state": state}
        if STACKS[stack] is not None:
            block["frames"] = STACKS[stack]
        segment = {
            "device": device,
            "address": ADDRESSES[address],
            "total_size": rounded,
            "allocated_size": size,
            "active_size": size,
            "stream": stream,
            "segment_type": "large" if size > 2**20 else "small",
            "blocks": [block],
        }
        if plan.extras:
            segment |= {
                "requested_size": size,
                "segment_pool_id": (0, n % 3),
                "is_expandable": bool(n % 2),
                "frames": [],
            }
        made.append(segment)
    return made


def build(devices: list[Plan], annotations: list[dict[str, Any]], settings: dict[str, Any] | None) -> dict[str, Any]:
    traces, all_segments = [], []
    for device, plan in enumerate(devices):
        events, live = trace(plan)
        traces.append(events)
        all_segments += segments(plan, device, live)
    snapshot: dict[str, Any] = {"segments": all_segments, "device_traces": traces}
    if settings is not None:
        snapshot |= {"allocator_settings": settings, "external_annotations": annotations}
    return snapshot


annotations = st.lists(
    st.builds(
        lambda name, stage, device, time: {"name": name, "stage": stage, "device": device, "time_us": time},
        st.sampled_from(["step", *NASTY]),
        st.sampled_from(["START", "END"]),
        st.integers(0, 1),
        st.integers(1_700_000_000_000_000, 1_700_000_100_000_000),
    ),
    max_size=4,
)
settings = st.none() | st.builds(
    lambda text, over: {"PYTORCH_CUDA_ALLOC_CONF": text, "expandable_segments": False, **over},
    st.sampled_from(NASTY),
    st.sampled_from([{}, {"trace_alloc_overflowed": True}, {"trace_alloc_overflowed": False}]),
)

snapshots = st.builds(build, st.lists(plans, min_size=1, max_size=3), annotations, settings)
one_device = st.builds(build, st.lists(plans, min_size=1, max_size=1), st.just([]), st.none())
protocols = st.integers(2, 5)


def pickled(snapshot: Any, protocol: int) -> bytes:
    """Pickles as the C pickler would, including strings with lone surrogates."""
    out = io.BytesIO()
    pickle.Pickler(out, protocol).dump(snapshot)
    return out.getvalue()
