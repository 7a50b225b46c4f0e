"""The metadata that ``snapreport record`` writes about the recorded process, under the key ``snapreport``.

Files are untrusted, so every value is checked and bounded. Malformed values are ignored, never an error: the snapshot
itself can still be read.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import polars as pl
from msgspec import Struct

from snapreport.reading.device_memory import device_memory
from snapreport.reading.fields import INT64, SIZE, UINT64, clean, plain, whole_numbers

KEY = "snapreport"
SCHEMA_PREFIX = "snapreport-recording/"
REASONS = ("oom", "every", "steps", "signal", "terminated", "exit", "call", "test", "running", "alarm")
TENSOR_CATEGORIES = ("parameter", "gradient", "optimizer state", "buffer")
STEPS_SCHEMA: dict[str, Any] = {"step": pl.Int64, "time_us": pl.Int64}
TENSORS_SCHEMA: dict[str, Any] = {
    "time_us": pl.Int64, "device": pl.Int64, "address": pl.UInt64, "category": pl.Enum(TENSOR_CATEGORIES),
    "name": pl.String, "shape": pl.String, "dtype": pl.String,
}  # fmt: skip
MODULES_SCHEMA: dict[str, Any] = {"module": pl.String, "class": pl.String}
RUNNING_SCHEMA: dict[str, Any] = {"time_us": pl.Int64, "code": pl.Int32}
PAUSES_SCHEMA: dict[str, Any] = {"begin_us": pl.Int64, "end_us": pl.Int64}
OUTPUTS_SCHEMA: dict[str, Any] = {
    "time_us": pl.Int64, "device": pl.Int64, "address": pl.UInt64, "bytes": pl.Int64, "shape": pl.String,
    "dtype": pl.String,
}  # fmt: skip
SAVED_SCHEMA = {**OUTPUTS_SCHEMA, "saved_by": pl.String}
MOST_DEVICES, MOST_STATS, MOST_STEPS, MOST_TENSORS, MOST_MARKS = 1024, 2000, 1_000_000, 1_000_000, 256
MOST_MODULES, MOST_MODULE_MARKS, MOST_DIMENSIONS = 100_000, 4_000_000, 16
_TEXT = 2000  # characters of a text that is shown
_NAME = 300  # of a tensor's name
_Memory = dict[int, tuple[int, int]]


class Device(Struct, frozen=True):
    """A device as its driver describes it. stats: ``torch.cuda.memory_stats`` when the snapshot was written.
    resident_threads: that run at once; 0 if unknown.
    """

    name: str
    uuid: str
    total_bytes: int
    stats: dict[str, int]
    resident_threads: int = 0


class Git(Struct, frozen=True):
    """The working tree that the program ran in; ``remote``, ``root`` and ``dirty`` are None if unknown."""

    commit: str
    remote: str | None
    root: str | None
    dirty: bool | None


class RecorderMetadata(Struct, frozen=True, eq=False):
    """A recording as described by its recorder.

    reason: why the snapshot was written, one of ``REASONS`` or empty. step: steps completed before that. oom:
      ``device``, ``tried_bytes`` (what "Tried to allocate" says), ``total_bytes``, ``free_bytes`` of the allocation
      that failed.
    started_us, dumped_us: by the recorder's clock, None if unknown.
    process, run, distributed, versions, allocator, options: texts by name. command: arguments of the program.
    memory_at_dump: (free, total) bytes of each device as reported by the driver.
    modules: ``module``, ``class`` String: paths by code, "" (no module) first. running: ``time_us`` Int64, ``code``
    Int32,
      ascending in time: which module runs from then on. pauses: ``begin_us``, ``end_us`` Int64, ascending: nothing was
      noted then. outputs: ``time_us``, ``device`` Int64, ``address`` UInt64,
      ``bytes`` Int64, ``shape`` ("4x128x32000"), ``dtype`` ("float32") String: what modules returned. saved: the same
      of what autograd saved, with ``saved_by`` String, the name of the ``grad_fn``; ``address`` is that of its storage.
    steps: ``step``, ``time_us`` Int64: the ends of steps. tensors: a row per tensor and moment: ``time_us``,
      ``device`` Int64, ``address`` UInt64 of its storage, ``category`` Enum, ``name`` String, ``shape``, ``dtype``
      String null.
      tensors_us: when those of the snapshot itself were noted.
    device_memory: see :func:`snapreport.reading.device_memory.device_memory`.
    writing: ``begin_us``, ``end_us`` Int64, ascending: the program waited for the recorder, which wrote files.
    profile: name of a ``torch.profiler`` trace of this process in the same folder; empty without one.
    """

    reason: str
    step: int | None
    oom: dict[str, int]
    started_us: int | None
    dumped_us: int | None
    process: dict[str, str]
    run: dict[str, str]
    command: list[str]
    distributed: dict[str, str]
    versions: dict[str, str]
    allocator: dict[str, str]
    options: dict[str, str]
    git: Git | None
    devices: dict[int, Device]
    memory_at_dump: _Memory
    steps: pl.DataFrame
    tensors: pl.DataFrame
    tensors_us: int | None
    modules: pl.DataFrame
    running: pl.DataFrame
    pauses: pl.DataFrame
    outputs: pl.DataFrame
    saved: pl.DataFrame
    device_memory: pl.DataFrame
    writing: pl.DataFrame
    profile: str


def read_metadata(raw: Any) -> RecorderMetadata | None:
    """The metadata in ``raw``, the value of ``KEY``; None if it is not ours."""
    if type(raw) is not dict or not _text(raw.get("schema")).startswith(SCHEMA_PREFIX):
        return None
    process, modules = _dict(raw.get("process")), _dict(raw.get("modules"))
    marks = _list(raw.get("marks"))
    named = _modules(_list(modules.get("paths")))
    return RecorderMetadata(
        reason=reason if (reason := _text(raw.get("reason"))) in REASONS else "",
        step=_int(raw.get("step"), INT64),
        oom=_ints(raw.get("oom"), 10),
        started_us=_int(raw.get("started_us"), INT64),
        dumped_us=_int(raw.get("dumped_us"), INT64),
        process=_texts(process),
        run=_texts(raw.get("run")),
        command=[_text(part) for part in _list(process.get("command"))[:1000]],
        distributed=_texts(raw.get("distributed")),
        versions=_texts(raw.get("versions")),
        allocator=_texts(raw.get("allocator")),
        options=_texts(raw.get("options")),
        git=_git(_dict(raw.get("git"))),
        devices=_devices(_dict(raw.get("devices"))),
        memory_at_dump=_memory(raw.get("memory_at_dump")),
        steps=_steps(_list(raw.get("steps"))),
        tensors=_tensors(marks),
        tensors_us=_int(_dict(marks[-1]).get("time_us"), INT64) if marks else None,
        modules=named,
        running=_running(modules, len(named)),
        pauses=_pauses(_list(modules.get("pauses"))),
        outputs=_outputs(_dict(modules.get("outputs")), OUTPUTS_SCHEMA),
        saved=_outputs(_dict(modules.get("saved")), SAVED_SCHEMA),
        device_memory=device_memory(raw.get("device_memory")),
        writing=_pauses(_list(raw.get("writing"))),
        profile=_text(raw.get("profile"), _NAME),
    )


def _dict(value: Any) -> dict[Any, Any]:
    return value if type(value) is dict else {}


def _list(value: Any) -> list[Any]:
    return value if type(value) is list else []


def _text(value: Any, limit: int = _TEXT) -> str:
    return clean(value[:limit]) if type(value) is str else ""


def _int(value: Any, bounds: tuple[int, int]) -> int | None:
    return value if type(value) is int and bounds[0] <= value <= bounds[1] else None


def _ints(value: Any, most: int) -> dict[str, int]:
    items = itertools.islice(_dict(value).items(), most)
    return {_text(k, _NAME): v for k, v in items if type(k) is str and _int(v, INT64) is not None}


def _texts(value: Any) -> dict[str, str]:
    """Texts and numbers as texts, a range of steps as ``3:6``; other values are ignored."""
    found = {}
    for key, item in itertools.islice(_dict(value).items(), 100):
        if type(key) is str and type(item) in (str, int, float, bool):
            found[_text(key, _NAME)] = _text(item if type(item) is str else str(plain(item)))
        elif type(key) is str and type(item) in (list, tuple) and len(item) == 2:
            found[_text(key, _NAME)] = ":".join(str(plain(part, depth=0)) for part in item)[:_NAME]
    return found


def _git(value: dict[Any, Any]) -> Git | None:
    commit = _text(value.get("commit"), 64)
    if not commit:
        return None
    dirty = value.get("dirty")
    remote, root = _text(value.get("remote")), _text(value.get("root"))
    return Git(commit, remote or None, root or None, dirty if type(dirty) is bool else None)


def _devices(value: dict[Any, Any]) -> dict[int, Device]:
    found = {}
    for number, facts in itertools.islice(value.items(), MOST_DEVICES):
        total = _int(_dict(facts).get("total_bytes"), SIZE)
        if _int(number, (0, 65_535)) is not None and total is not None:
            stats = _ints(facts.get("memory_stats"), MOST_STATS)
            name, uuid = _text(facts.get("name"), 200), _text(facts.get("uuid"), 64)
            found[number] = Device(name, uuid, total, stats, _int(facts.get("resident_threads"), SIZE) or 0)
    return found


def _memory(value: Any) -> _Memory:
    found = {}
    for number, facts in itertools.islice(_dict(value).items(), MOST_DEVICES):
        free, total = (_int(_dict(facts).get(key), SIZE) for key in ("free_bytes", "total_bytes"))
        if _int(number, (0, 65_535)) is not None and free is not None and total is not None and free <= total:
            found[number] = free, total
    return found


def _steps(rows: list[Any]) -> pl.DataFrame:
    """Steps, ascending in number and time; empty if they are not."""
    good = [row for row in rows[:MOST_STEPS] if type(row) is list and len(row) == 2]
    pairs = [(_int(step, INT64), _int(time, INT64)) for step, time in good]
    table = pl.DataFrame([pair for pair in pairs if None not in pair], STEPS_SCHEMA, orient="row")
    step, time = table["step"].to_numpy(), table["time_us"].to_numpy()
    ascending = np.append(True, (np.diff(step) > 0) & (np.diff(time) >= 0))[: len(table)]
    return table if ascending.all() else table.clear()


def _tensors(marks: list[Any]) -> pl.DataFrame:
    rows: list[tuple[list[int], int, int, str, str, str | None, str | None]] = []
    left = MOST_TENSORS
    for mark in marks[-MOST_MARKS:]:
        again = _list(_dict(mark).get("again_us"))
        times = [time for one in (_dict(mark).get("time_us"), *again) if (time := _int(one, INT64)) is not None]
        for row in _list(_dict(mark).get("tensors"))[: left // max(1, len(times))]:
            if times and type(row) is list and len(row) in (4, 6):
                device, address = _int(row[0], (-1, 65_535)), _int(row[1], UINT64)
                category = row[2] if type(row[2]) is str and row[2] in TENSOR_CATEGORIES else None
                if device is not None and address is not None and category is not None:
                    shape, dtype = (_shape(row[4]), _dtype(row[5])) if len(row) == 6 else (None, None)
                    rows.append((times, device, address, category, _text(row[3], _NAME), shape, dtype))
                    left -= len(times)
    schema = {**TENSORS_SCHEMA, "time_us": pl.List(TENSORS_SCHEMA["time_us"])}
    return pl.DataFrame(rows, schema, orient="row").explode("time_us")


def _modules(pairs: list[Any]) -> pl.DataFrame:
    rows = [(_text(pair[0], _NAME), _text(pair[1], _NAME)) for pair in pairs[:MOST_MODULES] if _is_row(pair, 2)]
    return pl.DataFrame(rows, MODULES_SCHEMA, orient="row")


def _running(value: dict[Any, Any], modules: int) -> pl.DataFrame:
    times, codes = _sums(value.get("times")), whole_numbers(value.get("codes"), MOST_MODULE_MARKS)
    if times is None or codes is None or len(times) != len(codes) or not len(codes):
        return pl.DataFrame(schema=RUNNING_SCHEMA)
    if codes.min() < 0 or codes.max() >= modules:
        return pl.DataFrame(schema=RUNNING_SCHEMA)
    # Two threads may have noted the time in one order and appended in the other.
    return pl.DataFrame({"time_us": np.maximum.accumulate(times), "code": codes.astype(np.int32)}, RUNNING_SCHEMA)


def _pauses(rows: list[Any]) -> pl.DataFrame:
    """Pauses, ascending and apart; none if they are not."""
    good = [row for row in rows[:MOST_STEPS] if _is_row(row, 2) and all(_int(one, INT64) is not None for one in row)]
    table = pl.DataFrame(good, PAUSES_SCHEMA, orient="row")
    ascending = np.diff(table.to_numpy().ravel()) >= 0
    return table if ascending.all() else table.clear()


def _outputs(value: dict[Any, Any], schema: dict[str, Any]) -> pl.DataFrame:
    """A row for each noted tensor, with its kind; no rows if a column is incomplete."""
    of_kind = [key for key in ("device", "bytes", "shape", "dtype", "saved_by") if key in schema]
    kinds = [_kind(row, len(of_kind)) for row in _list(value.get("kinds"))[:MOST_MODULES]]
    times, addresses, codes = (
        _sums(value.get("times")),
        _sums(value.get("addresses")),
        whole_numbers(value.get("codes"), MOST_MODULE_MARKS),
    )
    if times is None or addresses is None or codes is None or None in kinds or not len(codes):
        return pl.DataFrame(schema=schema)
    if len(times) != len(codes) or len(addresses) != len(codes) or codes.min() < 0 or codes.max() >= len(kinds):
        return pl.DataFrame(schema=schema)
    described = pl.DataFrame(kinds, {key: schema[key] for key in of_kind}, orient="row")
    table = described[codes].with_columns(time_us=times, address=addresses.view(np.uint64))
    return table.select(*schema)


def _kind(row: Any, length: int) -> tuple[int, int, str, *tuple[str, ...]] | None:
    device = _int(row[0], (-1, 65_535)) if _is_row(row, length) else None
    shape = _shape(row[1]) if device is not None else None
    item = _int(row[3], (0, 64)) if shape is not None else None
    if device is None or shape is None or item is None:
        return None
    total = math.prod(row[1]) * item
    names = (_text(name, _NAME) for name in row[4:])
    return (device, total, shape, _dtype(row[2]), *names) if total <= SIZE[1] else None


def _shape(lengths: Any) -> str | None:
    """The text of a shape, 4x128x32000; "scalar" without dimensions."""
    if type(lengths) is not list or len(lengths) > MOST_DIMENSIONS:
        return None
    return None if any(_int(length, SIZE) is None for length in lengths) else "x".join(map(str, lengths)) or "scalar"


def _dtype(value: Any) -> str:
    return _text(value, _NAME).removeprefix("torch.")


def _is_row(value: Any, length: int) -> bool:
    return type(value) in (list, tuple) and len(value) == length


def _sums(value: Any) -> np.ndarray | None:
    """Int64 of a list of differences."""
    whole = whole_numbers(value, MOST_MODULE_MARKS)
    return None if whole is None else np.cumsum(whole)
