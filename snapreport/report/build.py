"""The one road: snapshots in, one HTML file out."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from snapreport.errors import SnapshotError
from snapreport.report.page import render_page
from snapreport.report.payload import build_payload
from snapreport.report.summary import summarise
from snapreport.timeline.build import Snapshot


def build_report(snapshots: Sequence[Snapshot], *, title: str | None = None) -> bytes:
    """The report over ``snapshots`` as one HTML document. The same input and version give the same bytes."""
    title = title or ", ".join(snapshot.recording.name for snapshot in snapshots)
    return render_page(summarise(snapshots, title), build_payload(snapshots, title))


def write_report(snapshots: Sequence[Snapshot] | Snapshot, path: str | os.PathLike[str], *, title: str | None = None) -> int:
    """Write a report and return its size in bytes.

    ``path``: the HTML file, or ``-`` for standard output. The file appears whole or not at all: it is written beside
    its place and moved there, so an older report stays until the new one is complete.

    Raises :class:`SnapshotError` where the output cannot be written.
    """
    document = build_report([snapshots] if isinstance(snapshots, Snapshot) else snapshots, title=title)
    if os.fspath(path) == "-":
        sys.stdout.buffer.write(document)
        sys.stdout.buffer.flush()
    else:
        _replace(Path(path), document)
    return len(document)


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
