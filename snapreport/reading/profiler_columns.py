"""The events of a ``torch.profiler`` trace that matter for memory, as columns.

A trace of 200 MB has half a million events; each is read into two small structs, then all at once into columns.
"""

from __future__ import annotations

import re
import sys
from typing import Any

import msgspec
import numpy as np
import polars as pl
from msgspec import Struct

from snapreport.errors import SnapshotError
from snapreport.reading.fields import MAX_SIZE, clean

MEMORY = "[memory]"
# Category names in releases of libkineto since PyTorch 1.8.
OPERATORS = {"cpu_op", "operator"}
PYTHON = "python_function"
ANNOTATION = "user_annotation"
FLOW = "fwdbwd"
_KINDS = {*OPERATORS, PYTHON, ANNOTATION}

_Number = int | float | str | None


class _Arguments(msgspec.Struct, gc=False):
    size: _Number = msgspec.field(name="Bytes", default=None)
    address: _Number = msgspec.field(name="Addr", default=None)
    device_type: _Number = msgspec.field(name="Device Type", default=None)
    device: _Number = msgspec.field(name="Device Id", default=None)
    allocated: _Number = msgspec.field(name="Total Allocated", default=None)
    reserved: _Number = msgspec.field(name="Total Reserved", default=None)
    sequence: _Number = msgspec.field(name="Sequence number", default=None)
    forward_thread: _Number = msgspec.field(name="Fwd thread id", default=None)
    correlation: _Number = None
    ordinal: _Number = msgspec.field(name="device", default=None)
    stream: _Number = None
    copied: _Number = msgspec.field(name="bytes", default=None)


class Event(msgspec.Struct, gc=False):
    """One entry of ``traceEvents``, with the keys of the Chrome trace format that are used; others are skipped."""

    ph: str = ""
    cat: str | None = None
    name: _Number = ""
    pid: _Number = 0
    tid: _Number = 0
    ts: _Number = 0
    dur: _Number = 0
    id: _Number = None
    args: _Arguments | None = None


class Intervals(Struct):
    """Activities of threads, in file order: begin, end Int64 ns; thread Int32; label Int32 index into ``labels``.

    sequence Int64 (-1: none), is_forward Bool (has a sequence number and created its node), is_region Bool: an
    annotation of the program, not a function or operator.
    """

    begin: np.ndarray
    end: np.ndarray
    thread: np.ndarray
    label: np.ndarray
    sequence: np.ndarray
    is_forward: np.ndarray
    is_region: np.ndarray
    labels: list[str]


class Instants(Struct):
    """The memory events in time order. time Int64 ns, thread Int32, size Int64 bytes (negative: freed), address
    UInt64, device_type and device Int64, allocated and reserved Int64: the profiler's totals after it, -1 if absent.
    """

    time: np.ndarray
    thread: np.ndarray
    size: np.ndarray
    address: np.ndarray
    device_type: np.ndarray
    device: np.ndarray
    allocated: np.ndarray
    reserved: np.ndarray


class ProfilerColumns(Struct):
    """flows: rows (thread, ns of a forward operator, thread, ns of the backward one) Int64."""

    intervals: Intervals
    instants: Instants
    flows: np.ndarray


def columns_of(events: list[Event], base_ns: int) -> ProfilerColumns:
    """The columns of a trace. ``base_ns``: the base of its times. Raises :class:`SnapshotError`."""
    memory = [e for e in events if e.name == MEMORY and e.args is not None and e.args.size is not None]
    if not memory:
        raise SnapshotError(
            "a profiler trace without memory events: record it with "
            "torch.profiler.profile(profile_memory=True, with_stack=True)"
        )
    if len({e.pid for e in memory}) > 1:
        raise SnapshotError("memory events of several processes in one trace: export each process by itself")
    threads: dict[tuple[Any, Any], int] = {}
    return ProfilerColumns(
        _intervals(events, threads, base_ns), _instants(memory, threads, base_ns), _flows(events, threads, base_ns)
    )


def _thread(event: Event, threads: dict[tuple[Any, Any], int]) -> int:
    return threads.setdefault((event.pid, event.tid), len(threads))


def _intervals(events: list[Event], threads: dict[tuple[Any, Any], int], base_ns: int) -> Intervals:
    kept: list[Event] = []
    regions: list[bool] = []
    for e in events:
        kind = (e.cat or "").lower()
        if e.ph == "X" and kind in _KINDS:
            kept.append(e)
            regions.append(kind == ANNOTATION)
    labels: dict[str, int] = {}
    label = np.fromiter((labels.setdefault(str(e.name), len(labels)) for e in kept), np.int32, len(kept))
    begin = nanoseconds([e.ts for e in kept], base_ns)
    sequence = integers([e.args.sequence if e.args else None for e in kept], "Sequence number", -1)
    forward_thread = integers([e.args.forward_thread if e.args else None for e in kept], "Fwd thread id", 0)
    return Intervals(
        begin,
        begin + np.maximum(nanoseconds([e.dur for e in kept], 0), 1),
        np.fromiter((_thread(e, threads) for e in kept), np.int32, len(kept)),
        label,
        sequence,
        (sequence >= 0) & (forward_thread == 0),
        np.array(regions, bool),
        [clean(text) for text in labels],
    )


def _instants(memory: list[Event], threads: dict[tuple[Any, Any], int], base_ns: int) -> Instants:
    arguments = [e.args for e in memory if e.args is not None]
    time = nanoseconds([e.ts for e in memory], base_ns)
    order = np.argsort(time, kind="stable")
    size = integers([a.size for a in arguments], "Bytes")
    if len(size) and int(np.abs(size).max()) > MAX_SIZE:
        raise SnapshotError(f"a memory event of {int(np.abs(size).max())} bytes, more than any memory")
    address = integers([a.address for a in arguments], "Addr", 0, np.uint64)
    device = integers([a.device for a in arguments], "Device Id", -1)
    device_type = integers([a.device_type for a in arguments], "Device Type", 0)
    totals = [
        np.clip(integers(values, key, -1), -1, MAX_SIZE)
        for key, values in (
            ("Total Allocated", [a.allocated for a in arguments]),
            ("Total Reserved", [a.reserved for a in arguments]),
        )
    ]
    thread = np.fromiter((_thread(e, threads) for e in memory), np.int32, len(memory))
    columns = (time, thread, size, address, device_type, device, *totals)
    return Instants(*(column[order] for column in columns))


def _flows(events: list[Event], threads: dict[tuple[Any, Any], int], base_ns: int) -> np.ndarray:
    """Arrows from forward to backward operators, which the profiler draws from their sequence numbers."""
    forward: dict[Any, Event] = {}
    for e in events:
        if e.cat == FLOW and e.ph == "s":
            forward[e.id] = e
    rows = [(forward[e.id], e) for e in events if e.cat == FLOW and e.ph == "f" and e.id in forward]
    begin, end = ([pair[i] for pair in rows] for i in (0, 1))
    columns = [
        np.array([_thread(e, threads) for e in begin], np.int64), nanoseconds([e.ts for e in begin], base_ns),
        np.array([_thread(e, threads) for e in end], np.int64), nanoseconds([e.ts for e in end], base_ns),
    ]  # fmt: skip
    return np.stack(columns, axis=1) if rows else np.zeros((0, 4), np.int64)


def nanoseconds(values: list[Any], base_ns: int) -> np.ndarray:
    """Int64 ns of times in µs. Their fractions fit a float64 for some 50 days, so the base is added afterwards."""
    try:
        micro = np.array([0.0 if value is None else value for value in values], np.float64)
    except (ValueError, TypeError):
        raise SnapshotError("a time that is no number") from None
    if not np.isfinite(micro).all() or (len(micro) and np.abs(micro).max() > 2.0**53):
        raise SnapshotError("a time that is no number of microseconds")
    whole = np.floor(micro)
    return whole.astype(np.int64) * 1000 + np.rint((micro - whole) * 1000).astype(np.int64) + base_ns


def integers(values: list[Any], key: str, absent: int | None = None, dtype: Any = np.int64) -> np.ndarray:
    try:
        return np.fromiter((absent if value is None else int(value) for value in values), dtype, len(values))
    except (ValueError, TypeError, OverflowError):
        raise SnapshotError(f"{key!r} of an event is not a whole number of 64 bits") from None


_STANDARD = "lib/python3/"  # the profiler strips the sys.path entry; this stands for the standard library's
_INSTALLED = "site-packages/"
_LIBRARIES = {
    "accelerate", "datasets", "deepspeed", "diffusers", "lightning", "lightning_fabric", "numpy", "pandas", "peft",
    "PIL", "pytorch_lightning", "sklearn", "timm", "torchaudio", "torchvision", "tqdm", "transformers", "triton", "trl",
}  # fmt: skip
_CALL = re.compile(r"^(.*)\((\d{1,9})\): (.*)$", re.DOTALL)
_BUILT_IN = re.compile(r"^<built-in (?:method|function) (\w+)")
_AT = re.compile(r" at 0x[0-9a-f]+")


def frame_table(labels: list[str]) -> pl.DataFrame:
    """``filename``, ``line``, ``name`` of each label. A Python function has its file and the line where it begins; a C
    function has the file ``<built-in>``; operators and modules have only a name.
    """
    rows = []
    for label in labels:
        if call := _CALL.match(label):
            rows.append((_with_root(call[1], call[3]), int(call[2]), call[3]))
        elif built_in := _BUILT_IN.match(label):
            rows.append(("<built-in>", 0, built_in[1]))
        else:
            rows.append(("", 0, _AT.sub("", label)))
    return pl.DataFrame(rows, {"filename": pl.String, "line": pl.Int64, "name": pl.String}, orient="row")


def _with_root(file: str, function: str) -> str:
    """The profiler's path of a file, with the folder restored that it strips from libraries' paths, so that they do not
    count as the program's code.
    """
    root, slash, _ = file.replace("\\", "/").partition("/")
    if slash and root in _LIBRARIES:
        return f"{_INSTALLED}{file}"
    if root.removesuffix(".py") in sys.stdlib_module_names and function != "<module>":
        return f"{_STANDARD}{file}"
    return file
