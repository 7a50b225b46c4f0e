"""Where the snapshots of a job are: files, folders, globs, lists of paths, and whatever fsspec opens."""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from snapreport.errors import SnapshotError
from snapreport.findings.comparable import natural_key

LISTS = (".txt", ".list")
_SNAPSHOTS = (".pickle", ".pkl", ".pt", ".pth", ".digest")
_COMPRESSED = (".gz", ".zst", ".xz", ".bz2")
_MAGIC = set("*?[")


def expand(arguments: Sequence[str | os.PathLike[str]]) -> list[str]:
    """The paths that arguments name, each once, in the order given and by name (2 before 10) within one argument.

    A folder stands for the snapshots and digests in it and below; a glob for what it finds; a URL (``s3://…``), with
    or without a glob, for what fsspec finds; ``@FILE``, and a file that ends in .txt or .list, for the paths in it, one
    a line (empty lines and those after ``#`` are passed over). Raises :class:`SnapshotError` where one names nothing.
    """
    found: dict[str, None] = {}
    for argument in arguments:
        text = os.fspath(argument)
        paths = _listed(text)
        if not paths:
            raise SnapshotError(f"{text}: no snapshots and no digests found")
        found.update(dict.fromkeys(paths))
    return list(found)


def is_url(path: str) -> bool:
    """Whether fsspec has to open a path."""
    return "://" in path


@contextlib.contextmanager
def local(path: str) -> Iterator[str]:
    """A local file with the content of ``path``; of a URL a temporary copy, since a snapshot is read twice."""
    if not is_url(path):
        yield path
        return
    fsspec = _fsspec(path)
    handle, copy = tempfile.mkstemp(prefix="snapreport.")
    try:
        try:
            with fsspec.open(path, "rb") as remote, os.fdopen(handle, "wb") as file:
                shutil.copyfileobj(remote, file, 1 << 22)
        except SnapshotError:
            raise
        except Exception as error:  # noqa: BLE001  # file systems raise what they like
            raise SnapshotError(f"{path}: cannot be read: {error or type(error).__name__}") from None
        yield copy
    finally:
        Path(copy).unlink(missing_ok=True)


def size_of(path: str) -> int:
    """Bytes of a file; 0 where that is not known without reading it."""
    if is_url(path):
        try:
            filesystem, inner = _fsspec(path).core.url_to_fs(path)
            return int(filesystem.size(inner) or 0)
        except Exception:  # noqa: BLE001  # a hint only
            return 0
    with contextlib.suppress(OSError):
        return Path(path).stat().st_size
    return 0


def _listed(text: str) -> list[str]:
    if is_url(text):
        return _remote(text)
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
    """Whether a file in a folder counts as a snapshot or digest: by its ending."""
    lower = name.lower()
    for ending in _COMPRESSED:
        lower = lower.removesuffix(ending)
    return lower.endswith(_SNAPSHOTS) and not name.startswith(".")


def _from_list(name: str) -> list[str]:
    try:
        lines = Path(name).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise SnapshotError(f"{name}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    names = [line.strip() for line in lines]
    return [path for line in names if line and not line.startswith("#") for path in _listed(line)]


def _remote(url: str) -> list[str]:
    fsspec = _fsspec(url)
    try:
        filesystem, inner = fsspec.core.url_to_fs(url)
        if _MAGIC & set(inner):
            names = filesystem.glob(inner)
        elif filesystem.isdir(inner):
            names = [name for name in filesystem.find(inner) if is_snapshot_name(name.rpartition("/")[2])]
        else:
            return [url]
        return sorted((filesystem.unstrip_protocol(name) for name in names), key=natural_key)
    except Exception as error:  # noqa: BLE001  # file systems raise what they like
        raise SnapshotError(f"{url}: cannot be listed: {error or type(error).__name__}") from None


def _fsspec(url: str) -> Any:
    try:
        import fsspec
    except ImportError:
        raise SnapshotError(f"{url}: needs fsspec; install snapreport[remote]") from None
    return fsspec
