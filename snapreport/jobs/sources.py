"""Finds the snapshots of a job: files, folders, globs, lists of paths, and any URL that fsspec opens."""

from __future__ import annotations

import contextlib
import glob
import os
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from snapreport.errors import SnapshotError
from snapreport.findings.comparable import natural_key
from snapreport.reading.paths import expand as expand_wildcards
from snapreport.reading.paths import file_name, is_remote, open_binary, without_profiles

LISTS = (".txt", ".list")
_SNAPSHOTS = (".pickle", ".pkl", ".pt", ".pth", ".digest")
_PROFILE = re.compile(r"rank_\d+_.*\.json")  # as our recorder names profiles; other JSON files are no snapshots
_COMPRESSED = (".gz", ".zst", ".xz", ".bz2")
_MAGIC = set("*?[")


def expand(arguments: Sequence[str | os.PathLike[str]]) -> list[str]:
    """The paths that arguments name, without duplicates, in argument order and by name (2 before 10) within one
    argument.

    A folder means the snapshots and digests in it and its subfolders; a glob for what it finds; a URL
    (``s3://run/rank*.pickle``) for what fsspec finds; ``@FILE``, and a file that ends in .txt or .list, for the paths
    in it, one per line (empty lines and lines that start with ``#`` are ignored). Raises :class:`SnapshotError` if one
    names nothing.
    """
    found: dict[str, None] = {}
    for argument in arguments:
        text = os.fspath(argument)
        paths = _listed(text)
        if not paths:
            raise SnapshotError(f"{text}: no snapshots and no digests found")
        found.update(dict.fromkeys(paths))
    return without_profiles(list(found))


def size_of(path: str) -> int:
    """Bytes of a file; 0 if unknown without reading it."""
    if not is_remote(path):
        with contextlib.suppress(OSError, ValueError):
            return Path(path).stat().st_size
        return 0
    with contextlib.suppress(Exception), open_binary(path) as file:  # a hint only; file systems raise what they like
        return file.seek(0, os.SEEK_END) if file.seekable() else 0
    return 0


def _listed(text: str) -> list[str]:
    if is_remote(text):
        return sorted(expand_wildcards([text]), key=natural_key)
    if text.startswith("@"):
        return _from_list(text[1:])
    try:
        path = Path(text)
        if path.is_dir():
            files = [str(file) for file in path.rglob("*") if is_snapshot_name(file.name) and file.is_file()]
            return sorted(files, key=natural_key)
        if path.suffix.lower() in LISTS and path.is_file():
            return _from_list(text)
        if not path.exists() and _MAGIC & set(text):
            return sorted(glob.glob(text, recursive=True), key=natural_key)  # noqa: PTH207  # ** and absolute patterns
    except (OSError, ValueError) as error:
        raise SnapshotError(f"{text}: cannot be read: {error}") from None
    return [text]


def is_snapshot_name(name: str) -> bool:
    """Whether a file in a folder counts as a snapshot or digest, by its extension."""
    lower = name.lower()
    for ending in _COMPRESSED:
        lower = lower.removesuffix(ending)
    return (lower.endswith(_SNAPSHOTS) or _PROFILE.fullmatch(lower) is not None) and not name.startswith(".")


def digest_names(paths: Sequence[str]) -> list[str]:
    """A file name for the digest of each path, no two alike: that of the snapshot, or the path below the folder that
    all share (``step_3-rank0.digest``).
    """
    whole = without_common_folder(paths)
    stems = [_stem(file_name(path)) for path in paths]
    counts = Counter(stems)
    names = [
        stem if counts[stem] == 1 else _stem(whole[path]).replace("/", "-")
        for path, stem in zip(paths, stems, strict=True)
    ]
    return [
        f"{name}.digest" if names.count(name) == 1 else f"{name}_{number}.digest" for number, name in enumerate(names)
    ]


def _stem(name: str) -> str:
    for ending in (*_COMPRESSED, *_SNAPSHOTS, ".json"):
        if name.lower().endswith(ending):
            name = name[: -len(ending)]
    return name


def _from_list(name: str) -> list[str]:
    try:
        lines = Path(name).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise SnapshotError(f"{name}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    names = [line.strip() for line in lines]
    return [path for line in names if line and not line.startswith("#") for path in _listed(line)]


def without_common_folder(paths: Sequence[str]) -> dict[str, str]:
    """Each path without the folders that all of them share, which would describe the machine that made the report."""
    folders = [path.replace("\\", "/").split("/")[:-1] for path in paths]
    shared = 0
    for parts in zip(*folders, strict=False):
        if len(set(parts)) > 1:
            break
        shared += 1
    return {path: "/".join(path.replace("\\", "/").split("/")[shared:]) for path in paths}
