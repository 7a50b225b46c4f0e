"""Lines of source around the lines that frames name, for reports that embed them (``--source DIR``).

Never by default: a report is shared, and a program's text may not be. Only regular text files under one of the folders
are read, after resolving links. A frame's file is found by the end of its path: the beginning differs between the
machines that record and read.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import polars as pl
from msgspec import Struct, field

from snapreport.errors import SnapshotError
from snapreport.number_format import plural

AROUND = 3  # lines on either side
MAX_FILE_BYTES = 4 << 20  # of one file; programs are smaller, larger files are tables and generated code
MAX_TEXT = 4 << 20  # characters in a report
MAX_LINE = 500  # characters of a line
MAX_SEARCHED = 200_000  # files under all folders
_SKIPPED = {
    ".git",
    ".hg",
    ".svn",
    "__pycache__",
    "node_modules",
    ".tox",
    ".venv",
    ".mypy_cache",
    ".ruff_cache",
    ".pytest_cache",
}

Parts = tuple[str, ...]
Stretch = tuple[int, list[str]]  # the number of the first line, and the lines


class SourceLines(Struct):
    """``files``: a frame's file name → ranges of lines, each (number of the first, [text, …]); ascending, disjoint.

    ``cut``: the limit of a report was reached, the rest is missing.
    """

    files: dict[str, list[Stretch]] = field(default_factory=dict)
    cut: bool = False

    @property
    def sentence(self) -> str:
        """The report's sentence about embedded source; "" if there is none."""
        if not self.files:
            return ""
        lines = sum(len(texts) for stretches in self.files.values() for _, texts in stretches)
        more = ", not all of them: they would take too much room" if self.cut else ""
        return (
            f"this report holds {plural(lines, 'line')} of source of {plural(len(self.files), 'file')} (--source){more}"
        )


def source_lines(frames: Sequence[pl.DataFrame], folders: Sequence[str | os.PathLike[str]]) -> SourceLines:
    """The lines around every frame's, as far as their files are found under ``folders``.

    ``frames``: tables of ``filename``, ``line``, ``name``. Raises :class:`SnapshotError` if a folder is not one.
    """
    found = SourceLines()
    if not folders:
        return found
    named = (
        pl.concat([table.select("filename", "line", "name") for table in frames]).filter(pl.col("line") > 0).unique()
    )
    by_file = named.group_by("filename").agg("line", "name").sort("filename")
    wanted = {name: parts for name in by_file["filename"].to_list() if (parts := _parts(name))}
    candidates = _candidates(folders, {parts[-1] for parts in wanted.values()})
    room = MAX_TEXT
    for name, lines, functions in by_file.iter_rows():
        texts = _text_of(wanted.get(name, ()), candidates, lines, functions)
        if texts is None:
            continue
        stretches = _stretches(texts, np.unique(np.array(lines, np.int64)))
        size = sum(len(text) for _, part in stretches for text in part)
        if size > room:
            found.cut = True
            continue
        room -= size
        if stretches:
            found.files[name] = stretches
    return found


def _parts(filename: str) -> Parts:
    """The parts of a recorded path; empty if it names no file ("<string>", "??") or contains ".."."""
    parts = tuple(part for part in filename.replace("\\", "/").split("/") if part not in ("", "."))
    if not parts or ".." in parts or parts[-1].startswith("<") or parts[-1] == "??":
        return ()
    return parts


class _File(Struct, frozen=True):
    path: Path
    whole: Parts
    inside: Parts  # below the folder that was given


def _candidates(folders: Sequence[str | os.PathLike[str]], names: set[str]) -> dict[str, list[_File]]:
    """The files under the folders that have one of ``names``, by name."""
    found: dict[str, list[_File]] = {}
    seen = set()
    searched = 0
    for folder in folders:
        root = Path(folder)
        if not root.is_dir():
            raise SnapshotError(f"{folder}: no such directory (--source)")
        root = root.resolve()
        for path in _files_under(root):
            searched += 1
            if searched > MAX_SEARCHED:
                raise SnapshotError(f"{folder}: more than {MAX_SEARCHED:,} files; give --source a smaller directory")
            if path.name not in names:
                continue
            # A link may lead out of the folder: the file's real path counts.
            target = Path(os.path.realpath(path))
            if path in seen or not target.is_relative_to(root) or not _is_readable(target):
                continue
            seen.add(path)
            found.setdefault(path.name, []).append(_File(target, path.parts, path.relative_to(root).parts))
    return found


def _files_under(root: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(root, followlinks=False):
        folders[:] = sorted(name for name in folders if name not in _SKIPPED)
        yield from (Path(folder, name) for name in sorted(files))


def _is_readable(path: Path) -> bool:
    try:
        status = path.stat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_size <= MAX_FILE_BYTES


def _text_of(
    parts: Parts, candidates: dict[str, list[_File]], lines: list[int], functions: list[str]
) -> list[str] | None:
    """The lines of the file that a recorded path means; None if none or several fit equally well."""
    ranked = []
    for file in candidates.get(parts[-1], []) if parts else []:
        same = _common_end(parts, file.whole)
        if same >= 2 or same == len(parts) or same == len(file.inside):
            ranked.append((same, file))
    best = max((same for same, _ in ranked), default=0)
    fitting = []
    for same, file in ranked:
        texts = _read(file.path) if same == best else None
        if texts is None or max(lines) > len(texts):
            continue
        # A name alone is a weak sign ("utils.py"): then it must also define the functions.
        if same >= 2 or _defines(texts, functions):
            fitting.append((file.path, texts))
    return fitting[0][1] if len({path for path, _ in fitting}) == 1 else None


def _common_end(a: Parts, b: Parts) -> int:
    same = 0
    while same < min(len(a), len(b)) and a[-1 - same] == b[-1 - same]:
        same += 1
    return same


def _read(path: Path) -> list[str] | None:
    try:
        content = path.read_bytes()
        if b"\0" in content or len(content) > MAX_FILE_BYTES:
            return None
        text = content.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError):
        return None
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def _defines(texts: list[str], functions: list[str]) -> bool:
    """Whether the functions of all frames are defined in a Python file; unnamed ones count as defined."""
    defined = {found[1] for text in texts if (found := re.match(r"\s*(?:async\s+)?def\s+(\w+)", text))}
    plain = {name.rsplit(".", 1)[-1] for name in functions if re.fullmatch(r"[\w.]+", name)}
    return plain <= defined


def _stretches(texts: list[str], lines: np.ndarray) -> list[Stretch]:
    """(first line, texts) of the lines around ``lines`` (ascending); adjacent ranges are merged."""
    begins = np.maximum(lines - AROUND, 1)
    ends = np.minimum(lines + AROUND, len(texts))
    apart = np.append(True, begins[1:] > ends[:-1] + 1)
    first = begins[apart]
    last = ends[np.append(np.flatnonzero(apart)[1:] - 1, len(lines) - 1)]
    return [
        (a, [text[:MAX_LINE] for text in texts[a - 1 : b]]) for a, b in zip(first.tolist(), last.tolist(), strict=True)
    ]
