"""A folder with a digest for each commit, and a list of them.

``history.jsonl`` has a line for each: ``commit``, ``label``, ``time_us`` (of the commit, µs since the epoch, or null)
and ``digest``, the file beside it. A line that is added is whole or not there: lines are appended by one write.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from snapreport.errors import SnapshotError
from snapreport.jobs.digest import read_digest
from snapreport.jobs.digest_model import Digest
from snapreport.output_file import write_file

LIST = "history.jsonl"


class Row(Struct, forbid_unknown_fields=True):
    """A line of the list."""

    commit: str
    digest: str
    label: str = ""
    time_us: int | None = None


class Entry(Struct, frozen=True):
    """A commit and its memory."""

    row: Row
    digest: Digest

    @property
    def name(self) -> str:
        """What a reader recognises: the commit as git shortens it, and its label."""
        commit = self.row.commit[:10] if re.fullmatch("[0-9a-f]{11,64}", self.row.commit) else self.row.commit
        return f"{commit} ({self.row.label})" if self.row.label else commit


def add(folder: Path, data: bytes, commit: str, label: str = "", time_us: int | None = None) -> Row:
    """Keep a digest; its row. A commit that is there is replaced. Raises :class:`SnapshotError`."""
    if not commit.strip() or not commit.isprintable() or len(commit) > 200:
        raise SnapshotError(f"{commit!r} is no name of a commit")
    folder.mkdir(parents=True, exist_ok=True)
    rows = _rows(folder) if (folder / LIST).exists() else []
    same = next((row for row in rows if row.commit == commit), None)
    name = same.digest if same else f"{len(rows):05}-{re.sub('[^0-9A-Za-z._-]', '-', commit)[:40]}.digest"
    write_file(folder / name, data, "the digest")
    row = Row(commit, name, label or (same.label if same else ""), time_us or (same.time_us if same else None))
    if same is None:
        with open(folder / LIST, "ab") as file:
            file.write(msgspec.json.encode(row) + b"\n")
    elif row != same:
        lines = [msgspec.json.encode(row if one is same else one) for one in rows]
        write_file(folder / LIST, b"\n".join(lines) + b"\n", "the list")
    return row


def entries(folder: str | os.PathLike[str]) -> list[Entry]:
    """All commits: by their times where each has one, else as they were added. Raises :class:`SnapshotError`."""
    path = Path(folder)
    found = [Entry(row, _digest(path / row.digest)) for row in _rows(path)]
    return sorted(found, key=lambda entry: entry.row.time_us or 0) if _all_timed(found) else found


def _all_timed(found: Sequence[Entry]) -> bool:
    return all(entry.row.time_us is not None for entry in found)


def _rows(folder: Path) -> list[Row]:
    try:
        lines = (folder / LIST).read_bytes().splitlines()
    except OSError as error:
        raise SnapshotError(f"{folder}: no history: {error.strerror or error}") from None
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            row = msgspec.json.decode(line, type=Row)
        except msgspec.DecodeError as error:
            raise SnapshotError(f"{folder / LIST}: line {number}: {error}") from None
        if Path(row.digest).name != row.digest:
            raise SnapshotError(f"{folder / LIST}: line {number}: the digest is not beside the list")
        rows.append(row)
    return rows


def _digest(path: Path) -> Digest:
    try:
        return read_digest(path.read_bytes())
    except OSError as error:
        raise SnapshotError(f"{path}: cannot be read: {error.strerror or error}") from None
    except SnapshotError as error:
        raise SnapshotError(f"{path}: {error}") from None
