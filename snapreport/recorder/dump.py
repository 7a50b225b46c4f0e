"""Writes a snapshot to a file: streamed, compressed, and atomic.

A snapshot of a million events is a gigabyte of Python objects. ``pickle.dump`` keeps every one of them alive in its
memo until the end; here the trace is pickled in chunks with separate memos, and a chunk's events are freed once
written. The result is an ordinary pickle of protocol 4.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import pickle
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from snapreport.durable_rename import sync_folder

CHUNK = 16_384  # events per memo, so that strings repeat once per chunk and compress to nothing
SUFFIXES = {"gzip": ".pickle.gz", "zstd": ".pickle.zst", "none": ".pickle"}
_GZIP_LEVEL = 1  # on traces three times as fast as level 6, and a tenth larger
_STREAMED = ("device_traces", "host_traces", "segments", "host_segments")


class TimeLimitError(Exception):
    """Writing exceeds its time limit."""


def zstd_available() -> bool:
    with contextlib.suppress(ImportError):
        return _zstd() is not None
    return False


def write_snapshot(snapshot: dict[str, Any], path: Path, compression: str, deadline: float | None = None) -> int:
    """Pickle ``snapshot`` to ``path``, emptying it meanwhile. Returns the bytes written.

    The file is written under a temporary name, flushed to disk and renamed, so that a killed process leaves the old
    file. deadline: of ``time.monotonic()``. Raises :class:`TimeLimitError`, OSError or MemoryError, without leaving a
    file.
    """
    return write_file(path, compression, lambda stream: _write(snapshot, stream, deadline))


def write_file(path: Path, compression: str, fill: Callable[[IO[bytes]], object]) -> int:
    """Write what ``fill`` writes to its stream, atomically as :func:`write_snapshot` does."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.unlink(missing_ok=True)  # a link that somebody planted there is removed, never followed
        with part.open("xb") as file:
            with _compressed(file, compression) as stream:
                fill(stream)
            file.flush()
            os.fsync(file.fileno())
            size = file.tell()
        part.replace(path)
    finally:
        with contextlib.suppress(OSError):
            part.unlink()
    sync_folder(path.parent)
    return size


def _write(snapshot: dict[str, Any], stream: IO[bytes], deadline: float | None) -> None:
    stream.write(b"\x80\x04}(")  # protocol 4, an empty dict, its items
    for key in list(snapshot):
        value = snapshot.pop(key)
        stream.write(_pickled(key))
        if key in _STREAMED and type(value) is list:
            _write_list(value, stream, deadline)
        else:
            stream.write(_pickled(value))
    stream.write(b"u.")


def _write_list(values: list[Any], stream: IO[bytes], deadline: float | None) -> None:
    """Writes a list of entries, or of lists of them (one trace per device)."""
    stream.write(b"]q\x00")  # memoized as by pickle.dump, which lets readers recognise a trace
    if values and all(type(value) is list for value in values):
        stream.write(b"(")
        for value in values:
            _write_list(value, stream, deadline)
        stream.write(b"e")
        return
    for start in range(0, len(values), CHUNK):
        if deadline is not None and time.monotonic() > deadline:
            raise TimeLimitError
        entries = values[start : start + CHUNK]
        values[start : start + CHUNK] = [None] * len(entries)
        stream.write(_appended(entries))


def _pickled(value: Any) -> bytes:
    """The opcodes that push ``value``: a pickle without its header and its end. Protocol 3 has no frames to adjust."""
    return pickle.dumps(value, 3)[2:-1]


def _appended(entries: list[Any]) -> bytes:
    """The opcodes that append ``entries`` to the list on top of the unpickler's stack."""
    opcodes = pickle.dumps(entries, 3)
    if opcodes[:5] != b"\x80\x03]q\x00":
        raise AssertionError("a list is pickled in an unknown way")
    return opcodes[5:-1]


@contextlib.contextmanager
def _compressed(file: IO[bytes], compression: str) -> Iterator[IO[bytes]]:
    if compression == "none":
        yield file
    elif compression == "zstd":
        with _zstd()(file) as stream:
            yield stream
    else:
        # Without name and time, equal snapshots give equal files.
        with gzip.GzipFile("", "wb", _GZIP_LEVEL, file, 0) as packed, io.BufferedWriter(packed, 1 << 20) as stream:
            yield stream


def _zstd() -> Any:
    """A function from a file to a writable zstd stream over it. Raises ImportError if Python has no zstd."""
    try:
        from compression import zstd  # Python 3.14

        return lambda file: zstd.ZstdFile(file, "w", level=3)
    except ImportError:
        import zstandard

        return lambda file: zstandard.ZstdCompressor(level=3).stream_writer(file, closefd=False)
