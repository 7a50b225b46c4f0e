"""A short breakdown of the peak by category, line and module path, for the summary and for a ticket."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from snapreport.findings.live import category_text
from snapreport.findings.model import Finding
from snapreport.number_format import share_text
from snapreport.sentence import bytes_part, joined, sentence
from snapreport.timeline.modules import ARROW

MOST = 5
"""Maximum rows of a breakdown; ``stats --json`` has ten, the page's table has all."""
_PLACES = 5
"""Innermost parts of a module path to show; the page's stack traces show all."""
MIN_SHARE = 0.01
NO_NAMES = sentence(
    "Modules are named by the file and line of their `forward()`: a stack trace does not hold their names."
)


class Breakdown(Struct, frozen=True):
    """``key``, ``title``: the dimension; ``rows``: bytes, share of the peak, name; most bytes first, then the rest."""

    key: str
    title: str
    rows: list[tuple[str, str, str]]


def breakdowns(peak: Finding) -> list[Breakdown]:
    """The breakdowns of a peak's finding, except those that :func:`breakdown_text` states in words."""
    e, whole = peak.evidence, peak.bytes
    within = e["module_bytes"]
    by_module = "By module, {} of it" if has_names(peak) else "By module path, {} of it"
    parts = (
        ("By category", "category", e["categories"], whole),
        ("By line", "place", e["places"], whole),
        (sentence(by_module, share_text(within, whole)), "module", e["modules"], within),
    )
    shown = [part for part in parts if part[2] and not _is_single(part[2], whole) and part[3] >= MIN_SHARE * whole]
    return [Breakdown(key, title, _rows(rows, key, total, whole)) for title, key, rows, total in shown]


def has_names(peak: Finding) -> bool:
    """Whether modules have the names that the recorder noted."""
    return bool(peak.evidence["modules_source"] == "recorded")


def breakdown_text(peak: Finding) -> str:
    """One sentence on the breakdowns omitted because one row has all bytes; "" if there are none."""
    e, whole = peak.evidence, peak.bytes
    parts = [category_text(e["categories"][0]["category"])] if _is_single(e["categories"], whole) else []
    if e["no_frames_bytes"] == whole:
        parts.append("without a stack trace")
    elif _is_single(e["places"], whole):
        parts.append(sentence("allocated in {}", e["places"][0]["place"]))
    if _is_single(e["modules"], whole):
        parts.append(sentence("in module {}", _path(e["modules"][0]["module"])))
    return sentence("All of it is {}.", joined(parts, ", ")) if parts else ""


def _is_single(rows: Sequence[dict[str, Any]], whole: int) -> bool:
    return bool(rows) and rows[0]["bytes"] == whole


def _rows(rows: Sequence[dict[str, Any]], key: str, total: int, whole: int) -> list[tuple[str, str, str]]:
    """The largest of ``rows``, at least 1% of ``whole`` each, then the rest of ``total`` bytes."""
    large = [row for row in rows[:MOST] if row["bytes"] >= MIN_SHARE * whole]
    shown = [(row["bytes"], _path(row[key]) if key == "module" else row[key]) for row in large]
    rest = total - sum(size for size, _ in shown)
    shown += [(rest, "others")] * (rest >= MIN_SHARE * whole)
    return [(bytes_part(size), share_text(size, whole), name) for size, name in shown]


def _path(path: str) -> str:
    places = path.split(ARROW)
    return path if len(places) <= _PLACES else ARROW.join(["…", *places[-_PLACES:]])
