"""What other installed packages add, by entry points: kinds of findings, readers of other files, exporters."""

from __future__ import annotations

import functools
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from snapreport.errors import SnapshotError, one_line

FINDINGS = "snapreport.findings"
"""A :class:`snapreport.findings.model.FindingKind` each."""
READERS = "snapreport.readers"
"""``read(path: str) -> dict | None``: a snapshot's dict, as ``torch.cuda.memory._snapshot()`` gives it; None for files
that are not of this kind. Asked for files that snapreport cannot read.
"""
EXPORTERS = "snapreport.exporters"
"""``write(snapshots: Sequence[Snapshot], file: BinaryIO) -> None``; the entry point's name is that of the format."""


@functools.cache
def names(group: str) -> tuple[str, ...]:
    """The names in a group, in order."""
    return tuple(sorted({point.name for point in entry_points(group=group)}))


def load(group: str, name: str) -> Any:
    """What an entry point names. Raises :class:`SnapshotError` if it cannot be imported."""
    (point, *_) = entry_points(group=group, name=name)
    try:
        return point.load()
    except Exception as error:  # anything may happen while code of others is imported
        raise SnapshotError(f"{_place(point)} cannot be loaded: {one_line(str(error))}") from error


def load_all(group: str) -> list[Any]:
    """What all entry points of a group name."""
    return [load(group, name) for name in names(group)]


def _place(point: EntryPoint) -> str:
    owner = f" of {point.dist.name}" if point.dist else ""
    return f"the entry point {point.name!r} in {point.group!r}{owner}"
