"""Opens any snapshot file as a :class:`Recording`. A file's type is detected from its content, never from its name."""

from __future__ import annotations

import bz2
import contextlib
import functools
import gzip
import io
import lzma
import os
import shutil
import stat
import sys
import tempfile
import zipfile
import zlib
from pathlib import Path
from typing import IO, TYPE_CHECKING, BinaryIO

from snapreport import plugins, progress, supervision
from snapreport.errors import SnapshotError, one_line
from snapreport.forks import check_fork
from snapreport.reading import safe_pickle
from snapreport.reading.decode import decode
from snapreport.reading.entry_tokens import Unusual
from snapreport.reading.paths import file_name, is_remote, open_binary, remote_errors, shown_path
from snapreport.reading.recording import Recording

if TYPE_CHECKING:
    from snapreport.reading.activity_trace import ActivityTrace

# Maximum growth of a compressed file, in any container. Real snapshots compress to a thirtieth, generated ones with
# millions of events, whose addresses recur, to a hundredth.
MAX_RATIO, ALWAYS_ALLOWED = 250, 64 << 20
SPOOLED = 64 << 20  # bytes in memory; more go to a temporary file
_MAX_LAYERS = 3  # a gzipped .pt file has two
_COMPRESSED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"\xfd7zXZ\x00": "xz", b"BZh": "bzip2"}


def open_recording(path: str | os.PathLike[str]) -> Recording:
    """Read a snapshot; ``-`` is standard input. Paths with a scheme are streamed (``paths.py``).

    Pickles of protocols 0 to 5, ``torch.save`` files (zip) without torch, and any of them compressed by gzip, xz,
    bzip2, or zstd (with the ``zstandard`` package, or Python 3.14). Raises :class:`SnapshotError` for any other file.
    """
    check_fork()
    shown = os.fspath(path)
    name = "standard input" if shown == "-" else file_name(shown)
    supervision.name_file(_place(shown))
    try:
        with remote_errors(shown), contextlib.ExitStack() as files:
            file = _opened(shown, files)
            file_bytes = _size(file)
            file, size = _uncompressed(file, file_bytes, files)

            if is_json(_head(file)):
                return safe_pickle.guarded(lambda: _from_json(file, name, shown_path(shown), file_bytes, size), 0)

            columns = functools.partial(
                decode, name=name, path=shown_path(shown), file_bytes=file_bytes, pickle_bytes=size
            )

            def read() -> Recording:
                for parse in (True, False):
                    try:
                        with progress.stage("reading", size, "B") as bar:
                            raw, collectors = safe_pickle.load_diverted(bar.watched(file), size, parse=parse)
                        return columns(raw, collectors=collectors)
                    # The plain way also finds the error, and does not empty an entry that occurs in two traces.
                    except (Unusual, SnapshotError):
                        file.seek(0)
                with progress.stage("reading", size, "B") as bar:
                    raw = safe_pickle.load(bar.watched(file), size)
                return columns(raw)

            return safe_pickle.guarded(read, size)
    except OSError as error:
        raise SnapshotError(f"{_place(shown)}: cannot be read: {error.strerror or error}") from None
    except SnapshotError as error:
        if found := _read_by_others(shown, name):
            return found
        raise SnapshotError(f"{_place(shown)}: {error}") from None


def _read_by_others(path: str, name: str) -> Recording | None:
    """By a reader of another installed package; None if there is none for such a file."""
    if path == "-" or is_remote(path) or not plugins.names(plugins.READERS):
        return None
    size = Path(path).stat().st_size
    for read in plugins.load_all(plugins.READERS):
        if (raw := read(path)) is not None:
            return decode(raw, name=name, path=shown_path(path), file_bytes=size, pickle_bytes=_limit(size))
    return None


def load_activities(path: str) -> ActivityTrace:
    """The activities in a ``torch.profiler`` trace, compressed or not. Raises :class:`SnapshotError`."""
    from snapreport.reading.activity_trace import activity_trace
    from snapreport.reading.json_file import read_json

    try:
        with contextlib.ExitStack() as files:
            file = _opened(path, files)
            file, size = _uncompressed(file, _size(file), files)
            if not is_json(_head(file)):
                raise SnapshotError("not a profiler trace: it is no JSON")
            with progress.stage("reading", size, "B"):
                found = read_json(file)
            if type(found) is not tuple:
                raise SnapshotError("not a profiler trace: it has no traceEvents")
            return activity_trace(found[0], found[1], Path(path).name)
    except OSError as error:
        raise SnapshotError(f"{_place(path)}: cannot be read: {error.strerror or error}") from None
    except SnapshotError as error:
        raise SnapshotError(f"{_place(path)}: {error}") from None


def _from_json(file: BinaryIO, name: str, path: str, file_bytes: int, size: int) -> Recording:
    """A profiler trace, or a snapshot as JSON. Both are imported here: reading a pickle needs neither."""
    from snapreport.reading.json_file import read_json
    from snapreport.reading.profiler_trace import profiler_recording

    with progress.stage("reading", size, "B"):
        found = read_json(file)
    if type(found) is tuple:
        events, base_ns, own = found
        return profiler_recording(events, base_ns, own, name=name, path=path, file_bytes=file_bytes)
    return decode(found, name=name, path=path, file_bytes=file_bytes, pickle_bytes=size)


def _place(shown: str) -> str:
    return "standard input" if shown == "-" else shown_path(shown)


def _opened(path: str, files: contextlib.ExitStack) -> BinaryIO:
    if path == "-":
        if sys.stdin is None:
            raise SnapshotError("cannot be read: it is closed")
        return _spooled(sys.stdin.buffer, _room(), "it", files)
    try:
        file = files.enter_context(open_binary(path))
    except SnapshotError:
        raise
    except ValueError as error:  # a NUL in the name
        raise SnapshotError(f"cannot be read: {error}") from None
    # A pipe, a device or the response of a web server without ranges has no size and cannot be read twice.
    if is_remote(path):
        return file if file.seekable() else _spooled(file, _room(), "it", files)
    return file if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else _spooled(file, _room(), "it", files)


def _room() -> int:
    """Maximum bytes of a pipe: half of the free space for temporary files, which may be in memory, and at most this
    process's memory limit: a pickle's objects take more than the pickle.
    """
    return max(SPOOLED, min(shutil.disk_usage(tempfile.gettempdir()).free // 2, supervision.memory_limit() or 1 << 62))


def _spooled(stream: IO[bytes] | io.IOBase, limit: int, what: str, files: contextlib.ExitStack) -> BinaryIO:
    """The content of ``stream``, in a file that can be read twice: in memory while small, otherwise on disk."""
    spooled: BinaryIO = io.BytesIO()
    count = 0
    while chunk := stream.read(1 << 20):
        if count == 0:
            _refuse_no_pickle_head(chunk[:64])
        count += len(chunk)
        if count > limit:
            raise SnapshotError(f"{what} holds more than {limit >> 20:,} MiB")
        if count > SPOOLED and isinstance(spooled, io.BytesIO):
            in_memory, spooled = spooled, files.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
            spooled.write(in_memory.getbuffer())
        spooled.write(chunk)
    spooled.seek(0)
    return spooled


def _head(file: BinaryIO) -> bytes:
    head = file.read(64)
    file.seek(0)
    return head


def is_json(head: bytes) -> bool:
    """Whether a file that begins with ``head`` is JSON: no pickle begins with a brace or bracket."""
    return head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"{", b"[")


def _size(file: BinaryIO) -> int:
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    return size


def _uncompressed(file: BinaryIO, size: int, files: contextlib.ExitStack) -> tuple[BinaryIO, int]:
    """The pickle inside ``file`` with all wrappers removed, and its size."""
    for _ in range(_MAX_LAYERS):
        head = _head(file)
        kind = next((kind for magic, kind in _COMPRESSED.items() if head.startswith(magic)), None)
        if kind:
            file = _decompress(file, size, kind, files)
        elif head.startswith(b"PK\x03\x04"):
            file = _from_zip(file, size, files)
        else:
            _refuse_no_pickle(file, head, size)
            return file, size
        size = _size(file)
    raise SnapshotError(f"compressed more than {_MAX_LAYERS} times over")


def _refuse_no_pickle_head(head: bytes) -> None:
    """Refuse a file that begins neither like a pickle nor like a container of one. Protocols 0 and 1 have no header:
    they begin with the mark or the empty container of the outermost value.
    """
    containers = (*_COMPRESSED, b"PK\x03\x04", b"\x80")
    if is_json(head):
        return
    if not head.startswith(containers) and head[0] not in b"(]}cSVIPNLFGKMJUTX)":
        what = {0x3C: "looks like HTML or XML"}.get(head[0])
        raise SnapshotError(f"not a pickle: {what or f'begins with {head!r}'}")


def _refuse_no_pickle(file: BinaryIO, head: bytes, size: int) -> None:
    if not head:
        raise SnapshotError("empty file" if not size else "cannot be read")
    if head[0] == 0x80:
        if len(head) > 1 and not 2 <= head[1] <= 5:
            raise SnapshotError(f"not a pickle of a known protocol ({head[1]}; known are 2 to 5)")
        return
    _refuse_no_pickle_head(head)
    if is_json(head):
        return
    file.seek(-1, io.SEEK_END)
    last = file.read(1)
    file.seek(0)
    if last != b".":
        raise SnapshotError(f"not a pickle, or one that is cut short: begins with {head!r} and has no end mark")


def _decompress(file: BinaryIO, size: int, kind: str, files: contextlib.ExitStack) -> BinaryIO:
    try:
        with _decompressor(file, kind) as stream:
            made = _spooled(stream, _limit(size), f"{kind}: what {size:,} bytes decompress to", files)
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile, _zstd_error()) as error:
        raise SnapshotError(f"damaged or cut short {kind} file: {one_line(str(error), 200)}") from None
    except OSError as error:
        # bz2 and gzip raise OSError without errno for bad data; system errors have one.
        if error.errno is not None:
            raise
        raise SnapshotError(f"damaged or cut short {kind} file: {one_line(str(error), 200)}") from None
    except MemoryError:
        raise SnapshotError(f"{kind}: needs more memory than there is") from None
    if not _size(made):
        raise SnapshotError(f"damaged or cut short {kind} file: holds nothing")
    return made


def _limit(size: int) -> int:
    """Bytes that a compressed file of ``size`` bytes may grow to."""
    return max(ALWAYS_ALLOWED, size * MAX_RATIO)


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


def _from_zip(file: BinaryIO, size: int, files: contextlib.ExitStack) -> BinaryIO:
    """The ``data.pkl`` of a ``torch.save`` file. Snapshots contain no tensors, so nothing else is needed."""
    try:
        with zipfile.ZipFile(file) as archive:
            found = [info for info in archive.infolist() if info.filename.rpartition("/")[2] == "data.pkl"]
            if not found:
                raise SnapshotError("a zip file without 'data.pkl': not made by torch.save")
            # Python decompresses other methods in 4 KB of input at a time, which for bzip2 can be 5 GB of output.
            if found[0].compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise SnapshotError("a zip file compressed by another method than deflate: not made by torch.save")
            with archive.open(found[0]) as stream:
                return _spooled(stream, _limit(size), f"zip: what {size:,} bytes decompress to", files)
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
        raise SnapshotError(f"damaged zip file: {one_line(str(error) or 'it is cut short', 200)}") from None
    except MemoryError:
        raise SnapshotError("zip: needs more memory than there is") from None
