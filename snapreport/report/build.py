"""The one road: snapshots in, one HTML file out."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from snapreport.errors import SnapshotError
from snapreport.report.leave_out import PARTS, LeftOut, Part, worth_leaving_out
from snapreport.report.page import render_page
from snapreport.report.payload import build_sections
from snapreport.report.summary import summarise
from snapreport.report.text import size_text
from snapreport.timeline.build import Snapshot


@dataclass(frozen=True)
class Written:
    """``size``: bytes of the document. ``left_out``: what a size limit cost, one sentence, or "" where nothing is missing."""

    size: int
    left_out: str


def build_report(snapshots: Sequence[Snapshot], *, title: str | None = None, max_size: int | None = None) -> bytes:
    """The report over ``snapshots`` as one HTML document. The same input and version give the same bytes.

    ``max_size``: bytes it may have; what it can do without is left out for that (see ``leave_out.py``). Raises
    :class:`SnapshotError` where that is not enough.
    """
    return _fitting(snapshots, title, max_size)[0]


def write_report(
    snapshots: Sequence[Snapshot] | Snapshot,
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
    max_size: int | None = None,
) -> int:
    """Write a report and return its size in bytes.

    ``path``: the HTML file, or ``-`` for standard output. The file appears whole or not at all: it is written beside
    its place and moved there, so an older report stays until the new one is complete. ``max_size``: as for
    :func:`build_report`.

    Raises :class:`SnapshotError` where the output cannot be written, or cannot be as small as ``max_size``.
    """
    return write_fitting(snapshots, path, title=title, max_size=max_size).size


def write_fitting(
    snapshots: Sequence[Snapshot] | Snapshot, path: str | os.PathLike[str], *, title: str | None, max_size: int | None
) -> Written:
    """:func:`write_report`, telling also what was left out."""
    document, left_out = _fitting([snapshots] if isinstance(snapshots, Snapshot) else snapshots, title, max_size)
    if os.fspath(path) == "-":
        sys.stdout.buffer.write(document)
        sys.stdout.buffer.flush()
    else:
        _replace(Path(path), document)
    return Written(len(document), left_out.sentence)


def _fitting(snapshots: Sequence[Snapshot], title: str | None, max_size: int | None) -> tuple[bytes, LeftOut]:
    """The document, and what had to be left out of it to fit ``max_size``."""
    title = title or ", ".join(snapshot.recording.name for snapshot in snapshots)
    sections, summary = build_sections(snapshots, title), summarise(snapshots, title)
    left_out = LeftOut()
    document = render_page(summary, sections.payload(left_out))
    full = least = len(document)
    if max_size is None:
        return document, left_out
    parts = [part for part in PARTS if worth_leaving_out(part, sections.columns)]

    def without(gone: Sequence[Part]) -> tuple[bytes, LeftOut]:
        left_out = LeftOut(tuple(gone), max_size, full)
        told = replace(summary, notes=[*summary.notes, left_out.sentence])
        return render_page(told, sections.payload(left_out)), left_out

    while len(document) > max_size:
        if len(left_out.parts) == len(parts):
            what = "and that without all that can be left out" if parts else "and there is nothing to leave out"
            raise SnapshotError(f"the report takes {size_text(least)}, {what}: more than the {size_text(max_size)} allowed")
        document, left_out = without(parts[: len(left_out.parts) + 1])
        least = min(least, len(document))
    # What the last step made room for comes back, the most telling first.
    for part in reversed(left_out.parts[:-1]):
        candidate = without([other for other in left_out.parts if other is not part])
        if len(candidate[0]) <= max_size:
            document, left_out = candidate
    return document, left_out


def _replace(path: Path, document: bytes) -> None:
    # A link is followed, so that what it points to is replaced and not the link; devices cannot be replaced by a rename.
    target = path.resolve()
    try:
        if target.exists() and not target.is_file() and not target.is_dir():
            target.write_bytes(document)
            return
        if target.is_dir():
            raise IsADirectoryError(21, "Is a directory")
        mode = target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask()
        handle, temporary = tempfile.mkstemp(prefix=f".{target.name[:80]}.", suffix=".part", dir=target.parent)
    except OSError as error:
        raise SnapshotError(f"{path}: cannot write the report: {error.strerror or error}") from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(document)
        os.chmod(temporary, mode)
        os.replace(temporary, target)
    except OSError as error:
        raise SnapshotError(f"{path}: cannot write the report: {error.strerror or error}") from None
    finally:
        Path(temporary).unlink(missing_ok=True)


def _umask() -> int:
    """The process's umask, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
