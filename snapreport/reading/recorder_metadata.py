"""The metadata that ``snapreport record`` writes about the recorded process, under the key ``snapreport``.

Files are untrusted, so every value is checked and bounded. Malformed values are ignored, never an error: the snapshot
itself can still be read.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from snapreport.reading.fields import INT64, SIZE, UINT64, clean, plain

KEY = "snapreport"
SCHEMA_PREFIX = "snapreport-recording/"
REASONS = ("oom", "every", "steps", "signal", "terminated", "exit", "call", "test", "running")
TENSOR_CATEGORIES = ("parameter", "gradient", "optimizer state", "buffer")
STEPS_SCHEMA: dict[str, Any] = {"step": pl.Int64, "time_us": pl.Int64}
TENSORS_SCHEMA: dict[str, Any] = {
    "time_us": pl.Int64, "device": pl.Int64, "address": pl.UInt64, "category": pl.Enum(TENSOR_CATEGORIES),
    "name": pl.String,
}  # fmt: skip
MOST_DEVICES, MOST_STATS, MOST_STEPS, MOST_TENSORS, MOST_MARKS = 1024, 2000, 1_000_000, 1_000_000, 64
_TEXT = 2000  # characters of a text that is shown
_NAME = 300  # of a tensor's name
_Memory = dict[int, tuple[int, int]]


@dataclass(frozen=True)
class Device:
    """A device as its driver describes it. stats: ``torch.cuda.memory_stats`` when the snapshot was written.
    resident_threads: that run at once; 0 if unknown.
    """

    name: str
    uuid: str
    total_bytes: int
    stats: dict[str, int]
    resident_threads: int = 0


@dataclass(frozen=True)
class Git:
    """The working tree that the program ran in; ``remote``, ``root`` and ``dirty`` are None if unknown."""

    commit: str
    remote: str | None
    root: str | None
    dirty: bool | None


@dataclass(frozen=True, eq=False)
class RecorderMetadata:
    """A recording as described by its recorder.

    reason: why the snapshot was written, one of ``REASONS`` or empty. step: steps completed before that. oom:
      ``device``, ``tried_bytes`` (what "Tried to allocate" says), ``total_bytes``, ``free_bytes`` of the allocation
      that failed.
    started_us, dumped_us: by the recorder's clock, None if unknown.
    process, run, distributed, versions, allocator, options: texts by name. command: arguments of the program.
    memory_at_start, memory_at_dump: (free, total) bytes of each device as reported by the driver.
    steps: ``step``, ``time_us`` Int64: the ends of steps. tensors: a row per tensor and moment: ``time_us``,
      ``device`` Int64, ``address`` UInt64 of its storage, ``category`` Enum, ``name`` String.
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
    memory_at_start: _Memory
    memory_at_dump: _Memory
    steps: pl.DataFrame
    tensors: pl.DataFrame


def read_metadata(raw: Any) -> RecorderMetadata | None:
    """The metadata in ``raw``, the value of ``KEY``; None if it is not ours."""
    if type(raw) is not dict or not _text(raw.get("schema")).startswith(SCHEMA_PREFIX):
        return None
    process = _dict(raw.get("process"))
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
        memory_at_start=_memory(raw.get("memory_at_start")),
        memory_at_dump=_memory(raw.get("memory_at_dump")),
        steps=_steps(_list(raw.get("steps"))),
        tensors=_tensors(_list(raw.get("marks"))),
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
    rows: list[tuple[int, int, int, str, str]] = []
    for mark in marks[-MOST_MARKS:]:
        time = _int(_dict(mark).get("time_us"), INT64)
        for row in _list(_dict(mark).get("tensors"))[: MOST_TENSORS - len(rows)]:
            if time is not None and type(row) is list and len(row) == 4:
                device, address = _int(row[0], (-1, 65_535)), _int(row[1], UINT64)
                category = row[2] if type(row[2]) is str and row[2] in TENSOR_CATEGORIES else None
                if device is not None and address is not None and category is not None:
                    rows.append((time, device, address, category, _text(row[3], _NAME)))
    return pl.DataFrame(rows, TENSORS_SCHEMA, orient="row")
