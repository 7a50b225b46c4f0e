"""Checksums of the numbers that are derived from each small recording: the columns of its tables, the parts of
``stats --json``, its findings, the sections of its page; and of comparisons, forecasts and a job. Whether a change that
is meant to alter no number does alter one, and of which part, shows here: ``python tests/answers.py`` writes
tests/recordings/checksums.txt after one that is meant to.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import corpus
import polars as pl
import polars.selectors

from snapreport.contracts import plain
from snapreport.findings.diff import diff
from snapreport.findings.diff_document import diff_document
from snapreport.findings.model import Finding
from snapreport.forecast.answer import Question, fit_document
from snapreport.jobs.build import job_of
from snapreport.jobs.document import job_document
from snapreport.jobs.job_json import job_json
from snapreport.jobs.reduce import Job
from snapreport.packing.columns import encode_column
from snapreport.report.payload import build_sections
from snapreport.report.summary import summarise
from snapreport.snapshot import Snapshot

RECORDINGS = Path(__file__).parent / "recordings"
SAMPLES = corpus.SAMPLES
CHECKSUMS = RECORDINGS / "checksums.txt"
DIGITS = 6
"""Of a fraction: processors add the same numbers up in another order."""


def of_recording(snapshot: Snapshot, found: list[Finding]) -> str:
    """Its tables, documents, findings by kind and sections of the page, each with one checksum."""
    file = plain(snapshot.file_stats())
    parts: list[tuple[str, Any]] = [(f"stats-{stats['device']}", stats) for stats in file.pop("devices")]
    for device in snapshot.devices:
        timeline = snapshot.timeline(device)
        blocks = [getattr(timeline.blocks, name).tolist() for name in ("size", "segment", "source", "pending_from")]
        own = [timeline.activity, timeline.recording_gaps, timeline.annotated.spans.rows()]
        parts += [
            (f"allocations-{device}", _columns(snapshot.allocations(device))),
            (f"segments-{device}", _columns(snapshot.segments(device))),
            (f"blocks-{device}", blocks),
            (f"timeline-{device}", str(own)),
        ]
    sections = build_sections([snapshot], "").columns.items()
    parts += [(name, b"".join(part.data for each in columns for part in each)) for name, columns in sections]
    parts += [("summary", str(summarise([snapshot], ""))), ("file", file), *_by_kind(found)]
    return of_parts(parts)


def comparisons() -> dict[str, Callable[[], dict[str, Any]]]:
    """Documents of what was recorded to be compared, foretold or summed up, by name."""
    causes = sorted(path.name.partition(".")[0] for path in (RECORDINGS / "causes").glob("*.pickle.xz"))
    pairs = [(f"causes/{one}", f"causes/{other}") for one in causes for other in causes if "none" in (one, other)]
    pairs += [("validation_before", "validation_after"), ("fit/views1024", "fit/views2048")]
    pairs += [("fit/buffered100", "fit/buffered200"), ("fit/unet8", "fit/unet32")]
    found: dict[str, Callable[[], dict[str, Any]]] = {
        f"diff {one} {other}": partial(_diff, one, other) for one, other in pairs if one != other
    }
    several = {"unet": (8, 16, 24), "views": (1024, 2048), "buffered": (100, 200)}
    for name, values in several.items():
        paths = [f"fit/{name}{value}" for value in values]
        found[f"fit {name}"] = partial(_fit, paths, Question(values, (values[-1] * 2, values[0] / 2)))
    for name in ("fit/evaluated6", "fit/compared1500", "fit/unet32", "mistakes/summed", "witnesses/chat"):
        for memory in (32 << 20, 256 << 20):
            found[f"fit {name} {memory}"] = partial(_fit, [name], Question(memory=memory))
        found[f"fit {name} at"] = partial(_fit, [name], Question(at=(6,)))
    return found | {"job": lambda: plain(job_json(_job())), "job page": _job_page}


def accepted() -> dict[str, str]:
    """The line of each recording and document, by name."""
    lines = CHECKSUMS.read_text(encoding="utf-8").splitlines()
    return {name: parts for name, _, parts in (line.partition(": ") for line in lines)}


def write(of_recordings: dict[str, str]) -> None:
    lines = of_recordings | {name: of_parts(make().items()) for name, make in comparisons().items()}
    CHECKSUMS.write_text("".join(f"{name}: {parts}\n" for name, parts in lines.items()), encoding="utf-8")


def _recording(name: str) -> Snapshot:
    return corpus.loaded(RECORDINGS / f"{name}.pickle.xz")


def _diff(before: str, after: str) -> dict[str, Any]:
    document: dict[str, Any] = plain(diff_document(diff(_recording(before), _recording(after))))
    return document


def _job() -> Job:
    return job_of([corpus.loaded(path) for path in sorted(SAMPLES.glob("job/*.xz"))])


def _job_page() -> dict[str, Any]:
    content = job_document(_job())
    columns = content.columns.items()
    sections = {name: b"".join(part.data for each in of for part in encode_column(each)) for name, of in columns}
    return {"manifest": plain(content.manifest), **sections}


def _fit(names: list[str], question: Question) -> dict[str, Any]:
    document: dict[str, Any] = plain(fit_document([_recording(name) for name in names], question))
    return document


def of_parts(parts: Iterable[tuple[str, Any]]) -> str:
    return " ".join(f"{name}={_checksum(value)}" for name, value in parts)


def _columns(table: pl.DataFrame) -> dict[str, list[Any]]:
    return table.with_columns(polars.selectors.enum().cast(pl.String)).to_dict(as_series=False)


def _by_kind(found: list[Finding]) -> list[tuple[str, Any]]:
    kinds: dict[str, list[Any]] = {}
    for finding in found:
        kinds.setdefault(finding.kind, []).append(finding.to_json())
    return list(kinds.items())


def _checksum(value: Any) -> str:
    if isinstance(value, bytes):
        return f"{zlib.crc32(value):08x}"
    text = json.dumps(_rounded(value), sort_keys=True, default=str)
    for folder, name in ((RECORDINGS, "recordings"), (SAMPLES, "samples"), (corpus.scratch(), "less")):
        text = text.replace(str(folder), name)
    return f"{zlib.crc32(text.encode()):08x}"


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return f"{value:.{DIGITS}g}"
    if isinstance(value, dict):
        return {key: _rounded(part) for key, part in value.items()}
    return [_rounded(part) for part in value] if isinstance(value, list | tuple) else value
