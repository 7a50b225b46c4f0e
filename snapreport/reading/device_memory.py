"""Samples of the memory in use on each device, of all processes, which ``snapreport record`` takes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import polars as pl

from snapreport.reading.fields import SIZE, clean, whole_numbers

SOURCES = ("nvml", "mem_get_info")
# What a stack trace says about memory that was taken while it ran.
NCCL, GRAPHS = "NCCL", "CUDA graphs"
SCHEMA: dict[str, Any] = {
    "source": pl.Enum(SOURCES), "device": pl.Int64, "time_us": pl.Int64, "since_us": pl.Int64, "total": pl.Int64,
    "used": pl.Int64, "own": pl.Int64, "ran": pl.Enum((NCCL, GRAPHS)), "line": pl.String,
}  # fmt: skip
MOST_SAMPLES, MOST_DEVICES, MOST_FRAMES = 1_000_000, 1024, 1_000_000
_COLUMNS = ("times_us", "since_us", "used", "own", "stacks", "stacks_before")
_NCCL = re.compile(r"/torch/distributed/(?:distributed_c10d|utils)\.py\Z")
_DDP = re.compile(r"/torch/nn/parallel/distributed\.py\Z")
_GRAPHS = re.compile(r"/torch/cuda/graphs\.py\Z")
_LIBRARY = re.compile(r"/site-packages/|/dist-packages/|/lib/python3|/snapreport/recorder/|\A<")


def device_memory(raw: Any) -> pl.DataFrame:
    """A row for each sample that differs from the one before it, ascending in time within a device.

    ``time_us``, and ``since_us``, the time of the sample before, from when on ``used`` may have held. Bytes: ``total``
    of the device, ``used`` by all processes, ``own`` of the recorded process, null where unknown. ``ran``, ``line``:
    what the main thread ran at one of both times, null where nothing is known; the program's line, "step train.py:12".

    A device whose columns are not whole is left out.
    """
    facts = raw if type(raw) is dict else {}
    frames = [_frame(row) for row in _list(facts.get("frames"))[:MOST_FRAMES]]
    described = [_description(stack, frames) for stack in _list(facts.get("stacks"))[:MOST_FRAMES]]
    stacks = pl.DataFrame(described, {"ran": SCHEMA["ran"], "line": SCHEMA["line"]}, orient="row")
    given = facts.get("devices")
    devices: dict[Any, Any] = given if type(given) is dict else {}
    source = facts.get("source")
    tables = [
        _device(number, columns, stacks, source)
        for number, columns in list(devices.items())[:MOST_DEVICES]
        if type(number) is int and 0 <= number <= 65_535 and type(columns) is dict and source in SOURCES
    ]
    return pl.concat([pl.DataFrame(schema=SCHEMA), *tables])


def _list(value: Any) -> list[Any]:
    return value if type(value) is list else []


def _frame(row: Any) -> tuple[str, int, str] | None:
    if type(row) not in (list, tuple) or list(map(type, row)) != [str, int, str]:
        return None
    return clean(row[0][:2000]), row[1], clean(row[2][:300])


def _description(stack: Any, frames: Sequence[tuple[str, int, str] | None]) -> tuple[str | None, str | None]:
    """``ran`` and ``line`` of a stack trace."""
    numbers = [one for one in _list(stack)[:1000] if type(one) is int and 0 <= one < len(frames)]
    found = [frame for one in numbers if (frame := frames[one]) is not None]
    own = next((frame for frame in found if not _LIBRARY.search(frame[0])), None)
    line = None if own is None else f"{own[2]} {PurePosixPath(own[0].replace(chr(92), '/')).name}:{own[1]}"
    for file, _, name in found:
        if _NCCL.search(file) or (_DDP.search(file) and name == "__init__"):
            return NCCL, line
        if _GRAPHS.search(file):
            return GRAPHS, line
    return None, line


def _what_ran(now: pl.DataFrame, before: pl.DataFrame) -> dict[str, pl.Series]:
    """Of two moments: the call that takes memory is often over by the sample that sees it."""
    later = now["ran"].is_not_null() | before["line"].is_null()
    return {
        "ran": now["ran"].fill_null(before["ran"]),
        "line": pl.select(pl.when(later).then(now["line"]).otherwise(before["line"]).alias("line"))["line"],
    }


def _device(number: int, columns: dict[Any, Any], stacks: pl.DataFrame, source: str) -> pl.DataFrame:
    values = [column for name in _COLUMNS if (column := whole_numbers(columns.get(name), MOST_SAMPLES)) is not None]
    total = columns.get("total")
    if len(values) < len(_COLUMNS) or len(set(map(len, values))) > 1:
        return pl.DataFrame(schema=SCHEMA)
    if type(total) is not int or not 0 < total <= SIZE[1]:
        return pl.DataFrame(schema=SCHEMA)
    time, since, used, own, *codes = values
    if (
        (np.diff(time) < 0).any()
        or (since > time).any()
        or (used < 0).any()
        or (used > total).any()
        or (own > used).any()
    ):
        return pl.DataFrame(schema=SCHEMA)
    table = pl.DataFrame({
        "source": [source] * len(time), "device": [number] * len(time), "time_us": time, "since_us": since,
        "total": [total] * len(time), "used": used, "own": own, **_what_ran(*(_of(stacks, code) for code in codes)),
    })  # fmt: skip
    return table.cast(pl.Schema(SCHEMA)).with_columns(pl.when(pl.col("own") >= 0).then("own"))


def _of(stacks: pl.DataFrame, codes: np.ndarray) -> pl.DataFrame:
    """The rows of ``stacks`` with the numbers ``codes``; null for others."""
    return pl.DataFrame({"code": codes}).join(stacks.with_row_index("code").cast({"code": pl.Int64}), "code", "left")
