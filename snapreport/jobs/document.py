"""A job's data for the page: the manifest's ``job`` and the columns of the sections "job" and "job.heat".

A job's report is an ordinary report over the ranks shown in full, plus this data. ``docs/jobs.md`` describes
every key for readers of the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict

from snapreport.contracts import plain
from snapreport.contracts.job import JobDocument
from snapreport.jobs.cause_text import cause_json
from snapreport.jobs.headline import headline
from snapreport.jobs.heat import Heat, heat_of
from snapreport.jobs.imbalance import imbalance_of
from snapreport.jobs.rank_findings import merged_findings, where_found
from snapreport.jobs.reduce import Job
from snapreport.jobs.sentences import (
    group_memory,
    group_name,
    outlier_sentence,
)
from snapreport.jobs.sources import without_common_folder
from snapreport.jobs.states import states_of
from snapreport.packing.columns import Column
from snapreport.sentence import parts_json

MOST_STACKS = 200
STACK_LEVELS = 4095
"""Resolution of a stack's bytes on each rank, 0.02% of the stack's maximum. Largest, median and smallest are exact."""
MOST_FINDINGS = 40
RANK_SOURCES = ("recording", "file name", "order")


class Detail(Struct, frozen=True):
    """A rank shown in full. snapshot, device: their numbers on the page. why: "worst", "median" or "given"."""

    row: int
    snapshot: int
    device: int
    why: str


class JobPageData(Struct, frozen=True, eq=False):
    """``manifest``: the value of ``job``; ``columns``: by section; ``heat``: the data of the heat map."""

    manifest: dict[str, Any]
    columns: dict[str, list[Column]]
    heat: Heat


def job_document(job: Job, details: Sequence[Detail] = (), links: Sequence[str] = ()) -> JobPageData:
    """``links``: to the report of each row, relative to this report; "" if there is none."""
    heat = heat_of(job)
    shown = _shown_stacks(job)
    number = {int(stack): place for place, stack in enumerate(shown)}
    categories = sorted({name for digest in job.digests for name, _ in digest.categories})
    shown_as = shown_sources(job)
    hosts, kinds = (list(dict.fromkeys(getattr(d, name) for d in job.digests)) for name in ("host", "kind"))
    manifest = {
        **_words(job, number),
        "ranks": len(job.rows),
        "hosts": hosts,
        "kinds": kinds,
        "sources": [shown_as[row.path] for row in job.rows],
        "states": states_of(job),
        "links": list(links) or [""] * len(job.rows),
        "rank_sources": list(RANK_SOURCES),
        "categories": categories,
        "axes": [
            {
                "key": axis.key,
                "label": axis.label,
                "unit": axis.unit,
                "note": axis.note,
                "columns": len(axis.first),
                "first": axis.first.tolist(),
                "last": axis.last.tolist(),
            }
            for axis in heat.axes
        ],
        "metrics": list(heat.axes[0].cells),
        "heat_scale": heat.scale,
        "origin_us": heat.origin_us,
        "detail": [asdict(detail) for detail in details],
        "stack_names": [
            {
                "function": stack.function,
                "file": stack.file,
                "line": stack.line,
                "name": stack.name,
                "frames": list(stack.callers),
            }
            for stack in (job.stacks[int(i)] for i in shown)
        ],
    }
    columns = {
        "job": [
            *_rank_columns(job, hosts, kinds),
            *_category_columns(job, categories),
            *_stack_columns(job, shown, categories),
        ],
        "job.heat": _heat_columns(heat),
    }
    return JobPageData(manifest, columns, heat)


def shown_sources(job: Job) -> dict[str, str]:
    """The name that the report shows for each file: without the folders of the machine that wrote the report."""
    files = [*(row.path for row in job.rows), *(failed.path for failed in job.failed), *job.left_out]
    return without_common_folder(files)


def _words(job: Job, number: dict[int, int]) -> dict[str, Any]:
    shown_as = shown_sources(job)
    return {
        "schema": JobDocument.__struct_config__.tag,
        "world_size": job.world_size,
        "missing": job.missing[:1000],
        "failed": [
            {"rank": f.rank, "source": shown_as[f.path], "error": f.error.replace(f.path, shown_as[f.path])}
            for f in job.failed
        ],
        "left_out": [shown_as[path] for path in job.left_out[:1000]],
        "headline": [
            {"text": parts_json(s.text), "rows": s.rows, "stack": None if s.stack is None else number.get(s.stack)}
            for s in headline(job)
        ],
        "clock": plain(job.clock),
        "imbalance": plain(imbalance_of(job)),
        "groups": [
            {
                "name": group_name(job, group),
                "kind": group.kind,
                "rows": group.rows,
                "memory": group_memory(job, group),
                "median_bytes": int(np.median(job.peaks[group.rows])),
                "min_bytes": int(job.peaks[group.rows].min()),
                "max_bytes": int(job.peaks[group.rows].max()),
                "slope_bytes_per_rank": None if group.slope is None else int(group.slope),
                "stacks": _group_stacks(job, group.rows, number),
            }
            for group in job.groups
        ],
        "outliers": [
            {
                "row": outlier.row,
                "rank": int(job.ranks[outlier.row]),
                "group": outlier.group,
                "bytes_above": outlier.bytes_above,
                "cause": plain(cause_json(job.causes.get(outlier.row), job.stacks)),
                "sentence": parts_json(outlier_sentence(job, outlier).text),
                "stacks": [
                    [number[s], above, size, expected] for s, above, size, expected in outlier.stacks if s in number
                ],
            }
            for outlier in job.outliers
        ],
        "ooms": [
            {
                "row": first.row,
                "step": first.oom.step,
                "time_us": None if first.oom.us is None or job.start_us is None else first.oom.us - job.start_us,
                "event": first.oom.event,
                "tried_bytes": first.oom.tried,
            }
            for first in job.ooms
        ],
        "findings": [
            {
                "kind": merged.finding.kind,
                "severity": merged.finding.severity,
                "title": parts_json(merged.finding.title),
                "detail": [parts_json(line) for line in merged.finding.detail],
                "confidence": merged.finding.confidence,
                "where": where_found(job, merged),
                "count": len(merged.rows),
                "rows": merged.rows,
                "row": merged.row if len(merged.rows) > 1 else None,
                "bytes": merged.finding.bytes,
            }
            for merged in merged_findings(job)[:MOST_FINDINGS]
        ],
    }


def _shown_stacks(job: Job) -> np.ndarray:
    """Stacks of the report, most bytes on any rank first; always includes those that make an outlier."""
    order = np.argsort(-job.stack_bytes.max(axis=0), kind="stable")
    needed = {stack for outlier in job.outliers for stack, *_ in outlier.stacks}
    return np.array([i for place, i in enumerate(order.tolist()) if place < MOST_STACKS or i in needed], np.int64)


def _group_stacks(job: Job, rows: list[int], number: dict[int, int]) -> list[list[int]]:
    typical = np.median(job.stack_bytes[rows], axis=0)
    order = np.argsort(-typical, kind="stable")[:10].tolist()
    return [[number[i], int(typical[i])] for i in order if typical[i] > 0 and i in number]


def _rank_columns(job: Job, hosts: list[str], kinds: list[str]) -> list[Column]:
    digests = job.digests
    above = {outlier.row: outlier.bytes_above for outlier in job.outliers}

    def since_start(row: int) -> int:
        us, start = digests[row].peak_us, job.start_us if job.clock.comparable else job.rows[row].first_us
        return -1 if us is None or start is None else max(0, us - start)

    rows = range(len(digests))
    values: list[tuple[str, list[int], str]] = [
        ("rank", job.ranks.tolist(), "i32"),
        ("rank_source", [RANK_SOURCES.index(row.rank_source) for row in job.rows], "u8"),
        ("host", [hosts.index(d.host) for d in digests], "u32"),
        ("device", [-1 if d.device is None else d.device for d in digests], "i32"),
        ("kind", [kinds.index(d.kind) for d in digests], "u8"),
        ("group", job.group_of.tolist(), "i32"),
        ("trusted", [int(not d.gaps and d.device is not None) for d in digests], "u8"),
        ("cluster", _cluster_order(job), "u32"),
        ("events", [d.events for d in digests], "u32"),
        ("steps", [d.steps for d in digests], "u32"),
        ("peak_allocated", job.peaks.tolist(), "f64"),
        ("peak_reserved", [d.highest_reserved for d in digests], "f64"),
        ("peak_event", [d.peak_event for d in digests], "i32"),
        (
            "peak_step",
            [-1 if d.peak_step is None or not 0 <= d.peak_step < 2**31 else d.peak_step for d in digests],
            "i32",
        ),
        ("peak_us", [since_start(row) for row in rows], "f64"),
        ("end_allocated", [d.end_allocated for d in digests], "f64"),
        ("capacity", [d.capacity or 0 for d in digests], "f64"),
        ("outside", [d.outside or 0 for d in digests], "f64"),
        ("ooms", [len(d.ooms) for d in digests], "u32"),
        ("bytes_above", [above.get(row, 0) for row in rows], "f64"),
    ]
    return [Column(f"job.{name}", column, dtype) for name, column, dtype in values]


def _cluster_order(job: Job) -> list[int]:
    """The position of each row when sorted by group, and by descending peak within each group."""
    order = np.lexsort((job.ranks, -job.peaks, job.group_of))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return [int(value) for value in place]


def _category_columns(job: Job, categories: list[str]) -> list[Column]:
    table = np.zeros((len(categories), len(job.rows)), np.int64)
    for row, digest in enumerate(job.digests):
        for name, size in digest.categories:
            table[categories.index(name), row] += size
    return [Column("job.category_bytes", table.ravel(), "f64")]


def _stack_columns(job: Job, shown: np.ndarray, categories: list[str]) -> list[Column]:
    table = job.stack_bytes[:, shown].astype(np.int64)  # rows by stacks
    most = table.max(axis=0)
    levels = -(-table * STACK_LEVELS // np.maximum(most, 1))
    category = [job.stacks[int(i)].category for i in shown]
    return [
        Column("job.stack_max", most, "f64"),
        Column("job.stack_max_row", table.argmax(axis=0), "u32"),
        Column("job.stack_min", table.min(axis=0), "f64"),
        Column("job.stack_median", np.median(table, axis=0).astype(np.int64), "f64"),
        Column("job.stack_ranks", (table > 0).sum(axis=0), "u32"),
        Column("job.stack_category", [categories.index(c) if c in categories else 255 for c in category], "u8"),
        Column("job.stack_bytes", levels.T.ravel(), "u16"),
    ]


def _heat_columns(heat: Heat) -> list[Column]:
    return [
        Column(f"job.heat.{axis.key}.{metric}", cells.T.ravel(), "u16")
        for axis in heat.axes
        for metric, cells in axis.cells.items()
    ]
