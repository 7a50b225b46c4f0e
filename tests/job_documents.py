"""Job reports with known content, made without the reducer, so that what the page shows has its own oracle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from snapreport.packing.blob import pack_text
from snapreport.packing.columns import Column
from snapreport.report.page import render_page
from snapreport.report.payload import FORMAT, Payload
from snapreport.report.summary import HeadlineSentence, Summary

GIB, MIB = 1 << 30, 1 << 20
STEPS = 96
CATEGORIES = ["parameter", "gradient", "optimizer state", "activation", "communication", "unknown"]
STACKS = [
    ("forward", "model/block.py", 41, 3),
    ("attention", "model/attention.py", 77, 3),
    ("init_weights", "model/build.py", 12, 0),
    ("step", "train/adamw.py", 130, 2),
    ("backward", "train/loop.py", 58, 1),
    ("dispatch", "moe/dispatch.py", 88, 3),
    ("all_gather", "train/comm.py", 23, 4),
    *((f"layer_{i}", "model/layers.py", 10 + i, 3) for i in range(53)),
]
DISPATCH = 5


@dataclass(frozen=True)
class Planted:
    """A document and its content. ``allocated``: bytes by row and column of the step map (0: nothing recorded)."""

    document: bytes
    outlier: int
    oom_step: int
    groups: list[list[int]]
    allocated: np.ndarray
    stack_bytes: np.ndarray
    missing: list[int]
    failed: int


def planted_job(ranks: int = 64, *, seed: int = 1, hosts_of: int = 8, columns: int = STEPS) -> Planted:
    """A job of four pipeline stages with ``ranks`` recorded ranks.

    One runs out of memory, which the differences between the stages hide; two others are missing, and one file is
    damaged.
    """
    random = np.random.default_rng(seed)
    stage = np.arange(ranks) * 4 // ranks
    base = (12 + 9 * (3 - stage)) * GIB
    outlier = int(np.flatnonzero(stage == 3)[ranks // 16])
    oom_step = columns * 3 // 4
    saw = 0.55 + 0.45 * np.abs(np.sin(np.arange(columns) * 0.8))
    allocated = base[:, None] * saw[None, :] * (1 + 0.004 * random.standard_normal((ranks, columns)))
    growth = np.clip(np.arange(columns) - columns // 4, 0, None) / (columns / 2) * 6.1 * GIB
    allocated[outlier] += growth
    reserved = allocated * 1.06 + 0.3 * GIB
    for matrix in (allocated, reserved):
        matrix[outlier, oom_step + 1 :] = 0
    unused = np.where(allocated > 0, reserved - allocated, 0)
    peak = allocated.max(axis=1)
    stack_bytes = np.empty((len(STACKS), ranks))
    shares = 1 / np.arange(3, len(STACKS) + 3)
    stack_bytes[:] = shares[:, None] / shares.sum() * base[None, :] * 0.98
    stack_bytes[-1] /= 1000  # of no weight anywhere
    stack_bytes[DISPATCH] = 0.02 * base
    stack_bytes[DISPATCH, outlier] += 6.1 * GIB
    return _document(ranks, stage, outlier, oom_step, hosts_of, allocated, reserved, unused, peak, stack_bytes)


def _document(  # each part of it is a separate table
    ranks: int,
    stage: np.ndarray,
    outlier: int,
    oom_step: int,
    hosts_of: int,
    allocated: np.ndarray,
    reserved: np.ndarray,
    unused: np.ndarray,
    peak: np.ndarray,
    stack_bytes: np.ndarray,
) -> Planted:
    columns = allocated.shape[1]
    groups = [np.flatnonzero(stage == s).tolist() for s in range(4)]
    names = [f"{function} {file}:{line}" for function, file, line, _ in STACKS]
    scale = float(reserved.max() / 1022)
    category = np.array([kind for *_, kind in STACKS], dtype=np.int64)
    category_bytes = np.zeros((len(CATEGORIES), ranks))
    np.add.at(category_bytes, category, stack_bytes)
    missing = [ranks, ranks + 1]
    medians = [[int(np.median(stack_bytes[s, rows])) for s in range(len(STACKS))] for rows in groups]
    expected = medians[3]
    above = int(stack_bytes[DISPATCH, outlier]) - expected[DISPATCH]
    steps = list(range(1, columns + 1))
    of_rank = {"kind": "rank", "text": f"Rank {outlier}", "number": outlier}
    place = {"kind": "place", "text": names[DISPATCH], "file": STACKS[DISPATCH][1], "line": STACKS[DISPATCH][2]}
    job: dict[str, Any] = {
        "schema": "snapreport-job/2",
        "ranks": ranks,
        "world_size": ranks + 3,
        "missing": missing,
        "failed": [{"rank": ranks + 2, "source": f"rank{ranks + 2}.pickle", "error": "the pickle ends early"}],
        "headline": [
            {
                "text": [of_rank, f" of {ranks + 3} ran out of memory first, at step {oom_step + 1}."],
                "rows": [outlier],
                "stack": None,
            },
            {
                "text": [of_rank, " holds 6.10 GiB more than its group in ", place, "."],
                "rows": [outlier],
                "stack": DISPATCH,
            },
        ],
        "clock": {"comparable": True, "sentence": "The clocks of all hosts agree."},
        "imbalance": None,
        "hosts": [f"node{i:03d}" for i in range(-(-ranks // hosts_of))],
        "sources": [f"rank{r}.pickle" for r in range(ranks)],
        "states": [""] * ranks,
        "links": [f"each/rank_{r:05d}.html" if r % 2 else "" for r in range(ranks)],
        "kinds": ["cuda"],
        "rank_sources": ["recording", "file name", "order"],
        "categories": CATEGORIES,
        "groups": [
            {
                "name": f"Stage {s}",
                "rows": rows,
                "memory": "",
                "median_bytes": int(np.median(peak[rows])),
                "min_bytes": int(peak[rows].min()),
                "max_bytes": int(peak[rows].max()),
                "slope_bytes_per_rank": None,
                "stacks": sorted(
                    ([stack, bytes_] for stack, bytes_ in enumerate(medians[s])), key=lambda pair: -pair[1]
                )[:10],
            }
            for s, rows in enumerate(groups)
        ],
        "outliers": [
            {
                "row": outlier,
                "rank": outlier,
                "group": 3,
                "bytes_above": above,
                "cause": None,
                "sentence": [of_rank, f" of {ranks + 3} holds 6.10 GiB more than its group in ", place, "."],
                "stacks": [[DISPATCH, above, int(stack_bytes[DISPATCH, outlier]), expected[DISPATCH]]],
            }
        ],
        "ooms": [{"row": outlier, "step": oom_step + 1, "time_us": None, "event": 12345, "tried_bytes": GIB}],
        "findings": [
            {
                "kind": "oom",
                "severity": "error",
                "title": [f"Out of memory on rank {outlier}."],
                "detail": [["A 1.00 GiB request failed."]],
                "count": 1,
                "rows": [outlier],
                "bytes": GIB,
            },
            {
                "kind": "fragmentation",
                "severity": "warning",
                "title": ["Reserved memory is 6% above allocated."],
                "detail": [],
                "count": ranks - 3,
                "rows": list(range(3, ranks)),
                "bytes": GIB,
            },
        ],
        "axes": [
            _axis("step", "step", steps, steps),
            _axis("time", "us", [i * 800_000 for i in range(columns)], [(i + 1) * 800_000 for i in range(columns)]),
        ],
        "metrics": ["allocated", "reserved", "unused"],
        "detail": [],
        "stack_names": [
            {"function": function, "file": file, "line": line, "name": name, "frames": ["train train.py:10"]}
            for (function, file, line, _), name in zip(STACKS, names, strict=True)
        ],
        "heat_scale": scale,
    }
    bytes_above = np.zeros(ranks)
    bytes_above[outlier] = above
    per_row = {
        "rank": (np.arange(ranks), "i32"),
        "rank_source": (np.ones(ranks), "u8"),
        "host": (np.arange(ranks) // hosts_of, "u32"),
        "device": (np.arange(ranks) % hosts_of, "i32"),
        "kind": (np.zeros(ranks), "u8"),
        "group": (stage, "i32"),
        "trusted": (np.ones(ranks), "u8"),
        "cluster": (np.arange(ranks), "u32"),
        "events": (np.full(ranks, 20_000), "u32"),
        "steps": (np.full(ranks, columns), "u32"),
        "peak_allocated": (peak, "f64"),
        "peak_reserved": (reserved.max(axis=1), "f64"),
        "peak_event": (np.full(ranks, 9000), "i32"),
        "peak_step": (allocated.argmax(axis=1) + 1, "i32"),
        "peak_us": (np.full(ranks, -1), "f64"),
        "end_allocated": (allocated[:, -1], "f64"),
        "capacity": (np.full(ranks, 80 * GIB), "f64"),
        "outside": (np.full(ranks, GIB), "f64"),
        "ooms": ((np.arange(ranks) == outlier), "u32"),
        "bytes_above": (bytes_above, "f64"),
        "category_bytes": (category_bytes.ravel(), "f64"),
        "stack_max": (stack_bytes.max(axis=1), "f64"),
        "stack_max_row": (stack_bytes.argmax(axis=1), "u32"),
        "stack_min": (stack_bytes.min(axis=1), "f64"),
        "stack_median": (np.median(stack_bytes, axis=1), "f64"),
        "stack_ranks": ((stack_bytes > 0).sum(axis=1), "u32"),
        "stack_category": (category, "u8"),
        "stack_bytes": (np.rint(stack_bytes / stack_bytes.max(axis=1)[:, None] * 4095).ravel(), "u16"),
    }
    table = [_column(name, values, dtype) for name, (values, dtype) in per_row.items()]
    matrices = {"allocated": allocated, "reserved": reserved, "unused": unused}
    levels = {name: np.where(matrix > 0, 1 + np.rint(matrix / scale), 0) for name, matrix in matrices.items()}
    heat = [
        _column(f"heat.{axis}.{name}", level.T.ravel(), "u16")
        for axis in ("step", "time")
        for name, level in levels.items()
    ]
    title = f"Job of {ranks} ranks"
    manifest = {
        "format": FORMAT,
        "title": title,
        "snapshots": [],
        "sections": {"job": "job", "job.heat": "job.heat"},
        "annotations": [],
        "devices": [],
        "opening": None,
        "job": job,
    }
    blobs = {"main": pack_text([], {"manifest": manifest}), "job": pack_text(table), "job.heat": pack_text(heat)}
    headline = [[HeadlineSentence(_text(line["text"]), f"#view=job&job.rank={outlier}") for line in job["headline"]]]
    document = render_page(Summary(title, headline, []), Payload(blobs))
    return Planted(document, outlier, oom_step, groups, allocated, stack_bytes, missing, ranks + 2)


def _text(parts: list[Any]) -> str:
    return "".join(part if isinstance(part, str) else part["text"] for part in parts)


def _axis(key: str, unit: str, first: list[int], last: list[int]) -> dict[str, Any]:
    return {
        "key": key,
        "label": key,
        "columns": len(first),
        "first": first,
        "last": last,
        "unit": unit,
        "note": "",
    }


def _column(name: str, values: Any, dtype: str) -> Column:
    return Column(f"job.{name}", np.asarray(values).astype(np.int64), dtype)
