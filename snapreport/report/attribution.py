"""What the peak is made of, by category, function and module path, in few rows: for the summary and for a ticket."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from snapreport.findings.model import Finding
from snapreport.number_format import bytes_text, share_text
from snapreport.timeline.modules import ARROW

MOST = 5
"""Rows of a breakdown; ``stats --json`` has ten, the page's table all."""
_PLACES = 5
"""Of a module path, the innermost; the page's stacks have all of it."""
NO_NAMES = "A module stands as the file and line of its forward: frames hold no names of modules."


@dataclass(frozen=True)
class Breakdown:
    """``key``, ``title``: by what; ``rows``: bytes, share of the peak, what; most bytes first, the rest of the bytes
    last.
    """

    key: str
    title: str
    rows: list[tuple[str, str, str]]


def breakdowns(peak: Finding) -> list[Breakdown]:
    """Of a peak's finding. What one row has all of, or none has any of, is told by :func:`in_words`."""
    e, whole = peak.evidence, peak.bytes
    within = e["module_bytes"]
    parts = (
        ("By category", "category", e["categories"], whole),
        ("By function", "function", e["functions"], whole),
        (f"By module path, {share_text(within, whole)} of it", "module", e["modules"], within),
    )
    shown = [part for part in parts if part[2] and not _alone(part[2], whole)]
    return [Breakdown(key, title, _rows(rows, key, total, whole)) for title, key, rows, total in shown]


def in_words(peak: Finding) -> str:
    """One sentence on what :func:`breakdowns` leaves out; "" where that is nothing."""
    e, whole = peak.evidence, peak.bytes
    parts = [e["categories"][0]["category"]] if _alone(e["categories"], whole) else []
    if e["no_frames_bytes"] == whole:
        parts.append("without frames to tell functions and modules by")
    elif _alone(e["functions"], whole):
        parts.append(f"made by {e['functions'][0]['function']}")
    if not e["modules"] and e["no_frames_bytes"] < whole:
        parts.append("with no module's forward in its frames")
    elif _alone(e["modules"], whole):
        parts.append(f"under {_path(e['modules'][0]['module'])}")
    return f"All of it is {', '.join(parts)}." if parts else ""


def _alone(rows: Sequence[dict[str, Any]], whole: int) -> bool:
    return bool(rows) and rows[0]["bytes"] == whole


def _rows(rows: Sequence[dict[str, Any]], key: str, total: int, whole: int) -> list[tuple[str, str, str]]:
    """``total``: bytes of all rows there are."""
    shown = [(row["bytes"], _path(row[key]) if key == "module" else row[key] or "no frames") for row in rows[:MOST]]
    rest = total - sum(size for size, _ in shown)
    shown += [(rest, "others")] * (rest > 0)
    return [(bytes_text(size), share_text(size, whole), name) for size, name in shown]


def _path(path: str) -> str:
    places = path.split(ARROW)
    return path if len(places) <= _PLACES else ARROW.join(["…", *places[-_PLACES:]])
