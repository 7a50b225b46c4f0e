"""Paths as users type them: local, with a scheme (``s3://``, ``gs://``, ``hf://``, ``https://``), with wildcards."""

from __future__ import annotations

import contextlib
import glob
import io
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO, cast
from urllib.parse import urlsplit

from snapreport.errors import SnapshotError, one_line

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_SCHEME = re.compile(r"([a-z][a-z0-9+.-]+)://", re.IGNORECASE)
_WILDCARD = re.compile(r"[*?\[]")
PROFILE_NAME = re.compile(r"profile_rank_[\w.-]{1,200}\.json(\.gz|\.zst)?")  # as our recorder writes them
# Bytes per request, read ahead. An object store takes some 50 ms to answer; 8 MiB take another 50 ms at 160 MB/s.
_BLOCK = 8 << 20


def is_remote(path: str) -> bool:
    """Whether ``path`` has a scheme. A single letter is a Windows drive."""
    return _SCHEME.match(path) is not None


def file_name(path: str) -> str:
    """The file's name without folders, and without the query of a URL."""
    if not is_remote(path):
        return Path(path).name
    parts = urlsplit(path)
    return PurePosixPath(parts.path).name or parts.netloc


def without_profiles(paths: Sequence[str]) -> list[str]:
    """Paths as ``run/*`` names them, without profiles beside the run's snapshots, which are read with these."""
    return [path for path in paths if not PROFILE_NAME.fullmatch(file_name(path))] or list(paths)


def expand(paths: Iterable[str]) -> list[str]:
    """``paths`` with wildcards (``*``, ``?``, ``[…]``, ``**``) replaced by the files that match, sorted by name.

    For shells that do not expand wildcards (Windows, quotes, URLs). A path that exists literally is taken as it is; a
    question mark in a URL is a query, not a wildcard. Raises :class:`SnapshotError` if nothing matches.
    """
    expanded: list[str] = []
    for path in paths:
        if is_remote(path):
            expanded += _remote_matches(path) if re.search(r"[*\[]", path) else [path]
        elif path == "-" or not _WILDCARD.search(path) or os.path.lexists(path):
            expanded.append(path)
        else:
            found = sorted(name for name in glob.iglob(path, recursive=True) if not Path(name).is_dir())  # noqa: PTH207
            if not found:
                raise SnapshotError(f"{path}: no file matches{_others(Path(path).parent)}")
            expanded += found
    return expanded


def _others(folder: Path) -> str:
    """What a folder has instead of what was looked for."""
    names = sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []
    more = f" and {len(names) - 1:,} more" if len(names) > 1 else ""
    return f"; {folder} has {names[0]}{more}" if names else ""


def open_binary(path: str) -> BinaryIO:
    """Opens the file at ``path`` for reading. Remote files are streamed in blocks; nothing is written to disk.

    The result may not be seekable: a pipe, or a web server without ranges. Opening and reading raise
    :class:`SnapshotError` for remote files, without their path, and :class:`OSError` for local ones.
    """
    if is_remote(path):
        with remote_errors(path):
            system, inner = _file_system(path)
            if not _sends_ranges(path, system, inner):
                return io.BufferedReader(_Stream(system.open(inner, "rb", block_size=0)), 1 << 20)
            return cast(BinaryIO, system.open(inner, "rb", block_size=_BLOCK, cache_type="readahead"))
    return Path(path).open("rb")


def write_binary(path: str, data: bytes) -> None:
    """Writes a file, local or remote, in place of one that is there. Raises :class:`SnapshotError` or OSError."""
    if is_remote(path):
        with remote_errors(path, "written"):
            system, inner = _file_system(path)
            system.makedirs(inner.rpartition("/")[0], exist_ok=True)
            system.pipe_file(inner, data)
        return
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f".{file.name}.{os.getpid()}.part")
    part.write_bytes(data)
    part.replace(file)


def file_stamp(path: str) -> object:
    """A value that changes when the file at ``path`` does; None where it cannot be asked for."""
    try:
        if not is_remote(path):
            status = Path(path).stat()
            return status.st_mtime_ns, status.st_size, status.st_ino
        with remote_errors(path):
            system, inner = _file_system(path)
            system.invalidate_cache()
            return system.ukey(inner)
    except (OSError, SnapshotError):
        return None


def shown_path(path: str) -> str:
    """``path`` safe for logs and reports: a URL without its password and its query, which can be a signature."""
    if not is_remote(path):
        return path
    parts = urlsplit(path)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


@contextlib.contextmanager
def remote_errors(path: str, verb: str = "read") -> Iterator[None]:
    """Converts whatever a remote file system raises to a one-line :class:`SnapshotError`, since each has different
    exceptions. Does nothing for local paths.
    """
    try:
        yield
    except SnapshotError:
        raise
    except Exception as error:
        if not is_remote(path):
            raise
        if isinstance(error, ImportError):
            action = "reading" if verb == "read" else "writing"
            reason = f"{action} {path[: path.index(':')]}:// needs a package: pip install 'snapreport[remote]'"
        elif isinstance(error, FileNotFoundError):
            reason = "no such file"
        else:
            reason = f"cannot be {verb}: {one_line(str(error) or type(error).__name__, 200)}"
        raise SnapshotError(reason) from None


def _remote_matches(pattern: str) -> list[str]:
    try:
        with remote_errors(pattern):
            system, inner = _file_system(pattern)
            found = [system.unstrip_protocol(name) for name in sorted(system.glob(inner))]
    except SnapshotError as error:
        raise SnapshotError(f"{shown_path(pattern)}: {error}") from None
    if not found:
        raise SnapshotError(f"{shown_path(pattern)}: no file matches")
    return found


class _Stream(io.RawIOBase):
    """A remote file that can be read once from its beginning. fsspec's own object wrongly claims to be seekable."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        chunk = self._file.read(len(view))
        view[: len(chunk)] = chunk
        return len(chunk)

    def close(self) -> None:
        self._file.close()
        super().close()


def _sends_ranges(path: str, system: Any, inner: str) -> bool:
    """Whether any range of a file can be read. Object stores always can; web servers often do not say."""
    if not path.lower().startswith(("http://", "https://")):
        return True
    with system.open(inner, "rb", cache_type="none") as file:
        try:
            file.seek(1)
            file.read(1)
        except ValueError:  # its size is unknown, or the server sends it from its beginning
            return False
    return True


def _file_system(path: str) -> tuple[Any, str]:
    # fsspec: one interface to every object store; PyTorch itself depends on it for its checkpoints.
    from fsspec.core import url_to_fs

    return cast("tuple[Any, str]", url_to_fs(path))
