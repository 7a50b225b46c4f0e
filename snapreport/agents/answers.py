"""Questions about snapshots, answered in text that fits a context window."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from pathlib import Path

from snapreport.contracts import json_text
from snapreport.contracts.brief import BriefDocument
from snapreport.errors import SnapshotError
from snapreport.number_format import bytes_text, count_text, device_name, plural
from snapreport.sizes import parse_size
from snapreport.snapshot import Snapshot, load
from snapreport.timeline.lifetimes import is_live_at

MOST = 8_000
"""Characters of an answer, some 2,500 tokens."""


@functools.lru_cache(maxsize=2)
def _loaded(path: str, changed: int, size: int) -> Snapshot:
    return load(path)


def snapshot_at(path: str) -> Snapshot:
    """The snapshot of a file, read again only when the file has changed. Raises :class:`SnapshotError`."""
    if path == "-":
        raise SnapshotError("-: standard input cannot be read here; give a file")
    try:
        found = Path(path).stat()
    except (OSError, ValueError):
        return load(path)  # a remote address, or the error that says what is wrong
    return _loaded(os.fspath(path), found.st_mtime_ns, found.st_size)


def cut(text: str, narrower: str) -> str:
    """At most :data:`MOST` characters, whole lines; then ``narrower`` says how to ask for less."""
    if len(text) <= MOST:
        return text
    kept = text[: MOST - 200].rpartition("\n")[0]
    left = text.count("\n") - kept.count("\n")
    return f"{kept}\n… {plural(left, 'more line')} left out. {narrower}"


def overview(path: str) -> str:
    from snapreport.report.brief import brief

    return json_text(BriefDocument([brief(snapshot_at(path))]), indent=None)


def findings(path: str, kind: str = "") -> str:
    from snapreport.findings.run import findings as found_in

    snapshot = snapshot_at(path)
    every = found_in(snapshot)
    kinds = sorted({finding.kind for finding in every})
    if kind and kind not in kinds:
        raise SnapshotError(f"no finding of kind {kind!r}; there are {', '.join(kinds) or 'none'}")
    parts = []
    for finding in every:
        if kind and finding.kind != kind:
            continue
        evidence = finding.evidence
        facts = {
            "rule": evidence.get("rule"),
            "where": evidence.get("where"),
            "change to": evidence.get("line") if finding.kind == "advice" else None,
            "effort": evidence.get("effort"),
            "stack": finding.stack or None,
            "event": finding.event,
            "query": finding.link.get("query"),
        }
        said = "; ".join(f"{name}: {value}" for name, value in facts.items() if value is not None)
        parts.append(
            f"[{finding.kind}, {finding.severity}, {finding.confidence}] {finding.title}\n"
            + "".join(f"  {sentence}\n" for sentence in (*finding.detail, *finding.basis))
            + (f"  {said}\n" if said else "")
        )
    return cut("\n".join(parts) or "Nothing was found.\n", "Ask for one kind.")


def query(path: str, query: str, device: int | None = None) -> str:
    from snapreport.search.matches import matches_table

    stats = snapshot_at(path).stats(query)
    if device is not None:
        stats["devices"] = [one for one in stats["devices"] if one["device"] == device]
        if not stats["devices"]:
            raise SnapshotError(f"{path} has no device {device}")
    return cut(matches_table(query, [stats], bytes_text), "Ask for one device, or a narrower query.")


def stack(path: str, stack: int) -> str:
    snapshot = snapshot_at(path)
    try:
        frames = snapshot.frames(stack)
    except KeyError as error:
        raise SnapshotError(str(error.args[0])) from None
    lines = []
    for device in snapshot.devices:
        rows = snapshot.allocations(device)
        mine = rows.filter(rows["stack"] == stack)
        if len(mine):
            timeline = snapshot.timeline(device)
            live = mine.filter(is_live_at(timeline.peak_event))
            name = device_name(timeline.kind, device)
            lines.append(
                f"{name}: {plural(len(mine), 'allocation')}, {bytes_text(int(mine['size'].sum()))} in all; "
                f"{bytes_text(int(live['size'].sum()))} in {count_text(len(live))} at the peak"
            )
    lines += [f"  {name}  {file}:{line}" for file, line, name in frames.iter_rows()] or [
        "  no stack trace was recorded"
    ]
    return cut("\n".join(lines), "These are the outermost frames.")


def whatif(
    path: str, settings: Sequence[str] = (), without: Sequence[str] = (), memory: str = "", cards: bool = False
) -> str:
    from snapreport.report.whatif_text import whatif_text

    snapshot = snapshot_at(path)
    answers = snapshot.whatif_answers(settings=settings, without=without, memory=_size(memory), cards=cards)
    return cut(whatif_text(snapshot.recording.name, answers), "Ask for fewer settings.")


def fit(
    paths: Sequence[str], at: Sequence[float], to: Sequence[float] = (), memory: str = "", settings: Sequence[str] = ()
) -> str:
    from snapreport.forecast.answer import Question, fit_document
    from snapreport.report.fit_text import fit_text

    question = Question(tuple(at), tuple(to), "batch", _size(memory), tuple(settings))
    return cut(fit_text(fit_document([snapshot_at(path) for path in paths], question)), "Ask for fewer values.")


def diff(before: str, after: str) -> str:
    from snapreport.findings.comparable import paired_devices
    from snapreport.findings.diff import diff as compare
    from snapreport.report.diff_text import diff_text

    pair = [snapshot_at(before), snapshot_at(after)]
    devices = [(numbers[0], numbers[-1]) for numbers in paired_devices(pair, None)]
    return cut(diff_text(compare(pair[0], pair[1], devices)), "The rest changed less.")


def _size(text: str) -> int | None:
    if not text:
        return None
    size = int(parse_size(text) or 0)
    if not size:
        raise SnapshotError(f"{text!r} is not a size; try 24GiB")
    return size
