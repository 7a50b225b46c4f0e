"""Any snapshot file to a :class:`Recording`. The type of a file is told by its content, never by its name."""

from __future__ import annotations

import bz2
import contextlib
import functools
import gzip
import io
import lzma
import os
import sys
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from snapreport import progress
from snapreport.errors import SnapshotError, one_line
from snapreport.reading import safe_pickle
from snapreport.reading.decode import decode
from snapreport.reading.recording import Recording
from snapreport.reading.trace_stream import Unusual

# What a compressed file may grow to: gzip cannot do more than 1032:1, real snapshots shrink to a thirtieth at best.
MAX_RATIO, ALWAYS_ALLOWED = 1100, 1 << 30
_MAX_LAYERS = 3  # a gzipped .pt file has two
_COMPRESSED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"\xfd7zXZ\x00": "xz", b"BZh": "bzip2"}


def open_recording(path: str | os.PathLike[str]) -> Recording:
    """Read a snapshot; ``-`` is standard input.

    Pickles of protocols 0 to 5, ``torch.save`` files (zip) without torch, and any of them compressed by gzip, xz,
    bzip2, or zstd (with the ``zstandard`` package, or Python 3.14). Raises :class:`SnapshotError` for anything else.
    """
    shown = os.fspath(path)
    name = "standard input" if shown == "-" else Path(shown).name
    try:
        with _opened(shown) as file:
            file_bytes = _size(file)
            file, size = _uncompressed(file, file_bytes)

            columns = functools.partial(decode, name=name, path=shown, file_bytes=file_bytes, pickle_bytes=size)

            def read() -> Recording:
                try:
                    with progress.stage("reading", size, "B") as bar:
                        raw, collectors = safe_pickle.load_diverted(bar.watched(file), size)
                    return columns(raw, collectors=collectors)
                except Unusual:
                    file.seek(0)
                with progress.stage("reading", size, "B") as bar:
                    raw = safe_pickle.load(bar.watched(file), size)
                return columns(raw)

            return safe_pickle.guarded(read, size)
    except OSError as error:
        raise SnapshotError(f"{_place(shown)}: cannot be read: {error.strerror or error}") from None
    except SnapshotError as error:
        raise SnapshotError(f"{_place(shown)}: {error}") from None


def _place(shown: str) -> str:
    return "standard input" if shown == "-" else shown


@contextlib.contextmanager
def _opened(path: str) -> Iterator[BinaryIO]:
    if path == "-":
        yield io.BytesIO(sys.stdin.buffer.read())
        return
    try:
        file = open(path, "rb")  # noqa: SIM115  # closed below, where a ValueError is not about the name
    except ValueError as error:  # a NUL in the name
        raise SnapshotError(f"cannot be read: {error}") from None
    with file:
        # A pipe cannot be asked for its size or read twice.
        yield file if file.seekable() else io.BytesIO(file.read())


def _size(file: BinaryIO) -> int:
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    return size


def _uncompressed(file: BinaryIO, size: int) -> tuple[BinaryIO, int]:
    """The pickle inside ``file``, whatever is wrapped around it, and its size."""
    for _ in range(_MAX_LAYERS):
        head = file.read(8)
        file.seek(0)
        kind = next((kind for magic, kind in _COMPRESSED.items() if head.startswith(magic)), None)
        if kind:
            file = _decompress(file, size, kind)
        elif head.startswith(b"PK\x03\x04"):
            file = _from_zip(file, size)
        else:
            _refuse_no_pickle(file, head, size)
            return file, size
        size = _size(file)
    raise SnapshotError(f"compressed more than {_MAX_LAYERS} times over")


def _refuse_no_pickle(file: BinaryIO, head: bytes, size: int) -> None:
    if not head:
        raise SnapshotError("empty file" if not size else "cannot be read")
    if head[0] == 0x80:
        if len(head) > 1 and not 2 <= head[1] <= 5:
            raise SnapshotError(f"not a pickle of a known protocol ({head[1]}; known are 2 to 5)")
        return
    # Protocols 0 and 1 have no header: they begin with the mark or an empty container of the outermost value.
    if head[0] not in b"(]}cSVIPNLFGKMJUTX)":
        what = {0x7B: "looks like JSON", 0x5B: "looks like JSON", 0x3C: "looks like HTML or XML"}.get(head[0])
        raise SnapshotError(f"not a pickle: {what or f'begins with {head!r}'}")
    file.seek(-1, io.SEEK_END)
    last = file.read(1)
    file.seek(0)
    if last != b".":
        raise SnapshotError(f"not a pickle, or one that is cut short: begins with {head!r} and has no end mark")


def _decompress(file: BinaryIO, size: int, kind: str) -> BinaryIO:
    limit = max(ALWAYS_ALLOWED, size * MAX_RATIO)
    made = io.BytesIO()
    try:
        with _decompressor(file, kind) as stream:
            while chunk := stream.read(1 << 20):
                if made.tell() + len(chunk) > limit:
                    raise SnapshotError(f"{kind}: {size} bytes that grow beyond {limit >> 20} MiB")
                made.write(chunk)
    except (OSError, EOFError, zlib.error, lzma.LZMAError, _zstd_error()) as error:
        raise SnapshotError(f"damaged or cut short {kind} file: {one_line(str(error), 200)}") from None
    except MemoryError:
        raise SnapshotError(f"{kind}: needs more memory than there is") from None
    if not made.tell():
        raise SnapshotError(f"damaged or cut short {kind} file: holds nothing")
    made.seek(0)
    return made


def _decompressor(file: BinaryIO, kind: str) -> io.IOBase | BinaryIO:
    if kind == "gzip":
        return gzip.GzipFile(fileobj=file)
    if kind == "xz":
        return lzma.LZMAFile(file)
    if kind == "bzip2":
        return bz2.BZ2File(file)
    try:
        from compression import zstd  # Python 3.14

        native: io.IOBase = zstd.ZstdFile(file)
        return native
    except ImportError:
        pass
    try:
        import zstandard
    except ImportError:
        raise SnapshotError(
            "zstd-compressed: install the package 'zstandard' to read it, or decompress it first"
        ) from None
    return zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True, closefd=False)


def _zstd_error() -> type[Exception]:
    try:
        from compression import zstd

        native: type[Exception] = zstd.ZstdError
        return native
    except ImportError:
        pass
    try:
        import zstandard

        return zstandard.ZstdError
    except ImportError:
        return EOFError


def _from_zip(file: BinaryIO, size: int) -> BinaryIO:
    """The ``data.pkl`` of a ``torch.save`` file. Snapshots refer to no tensors, so nothing else of it is needed."""
    limit = max(ALWAYS_ALLOWED, size * MAX_RATIO)
    try:
        with zipfile.ZipFile(file) as archive:
            found = [info for info in archive.infolist() if info.filename.rpartition("/")[2] == "data.pkl"]
            if not found:
                raise SnapshotError("a zip file without 'data.pkl': not made by torch.save")
            if found[0].file_size > limit:
                raise SnapshotError(f"zip: {size} bytes that grow beyond {limit >> 20} MiB")
            # read() gives no more than file_size says.
            return io.BytesIO(archive.read(found[0]))
    except (
        zipfile.BadZipFile,
        NotImplementedError,
        RuntimeError,
        EOFError,
        zlib.error,
        lzma.LZMAError,
        ValueError,
    ) as error:
        if isinstance(error, SnapshotError):
            raise
        raise SnapshotError(f"damaged zip file: {one_line(str(error), 200)}") from None
    except MemoryError:
        raise SnapshotError("zip: needs more memory than there is") from None
