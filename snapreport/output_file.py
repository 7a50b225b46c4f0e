"""The one way in which files are written: whole or not at all, and never over a file that somebody else wrote."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import signal
import stat
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import BinaryIO, NoReturn

from snapreport import supervision
from snapreport.durable_rename import sync_folder
from snapreport.errors import SnapshotError

MARKDOWN_MARK = "<!-- written by snapreport -->"
SAMPLE_SCHEMA = "snapreport-sample/1"
# Near the beginning or end of our outputs: reports, JUnit XML, Markdown, JSON, generated snapshots, digests.
_MARKS = (
    b'<meta name="generator" content="snapreport"',
    b'<testsuite name="snapreport"',
    MARKDOWN_MARK.encode(),
    b'"schema": "snapreport-',
    SAMPLE_SCHEMA.encode(),
    b"snapreport digest\n",
)
_LOOKED_AT = 4096
_CHUNK = 1 << 20  # between two of them a signal is seen


def write_file(path: str | os.PathLike[str], content: bytes, what: str = "the report") -> None:
    """Write ``content``; see :func:`output_file`. Raises :class:`SnapshotError` that names ``path`` and ``what``."""
    try:
        with output_file(path) as file:
            for start in range(0, len(content), _CHUNK):
                file.write(content[start : start + _CHUNK])
    except BrokenPipeError:
        raise
    except (OSError, ValueError) as error:
        raise cannot_write(path, what, error) from None


@contextlib.contextmanager
def output_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file to write to, which takes the place of ``path`` at the end, with the mode of the file that was there.

    It is written beside its place under a random name, flushed to disk and renamed; whatever happens before leaves
    what was there and nothing else. A link is followed: what it points to is replaced. Devices, pipes and what the
    system lists as open files (/dev/stdout, /proc/self/fd/1) are written to. Raises OSError.
    """
    shown = os.fspath(path)
    if _is_stream(shown):
        with os.fdopen(os.open(shown, os.O_WRONLY), "wb") as stream:
            yield stream
        return
    target = Path(os.path.realpath(shown))
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), shown)
    # Its name is known before the file is there: whoever ends this process in between can remove it.
    temporary = target.parent / f".snapreport-{os.urandom(8).hex()}.part"
    with _ended_by_signals():
        try:
            with supervision.temporary_file(str(temporary)), open(temporary, "xb", opener=_private) as file:
                yield file
                file.flush()
                _keep_mode(file.fileno(), target)
                os.fsync(file.fileno())
                _move(temporary, target)
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink()
        sync_folder(target.parent)


def _private(path: str, flags: int) -> int:
    """Opens a file that only its owner may read."""
    return os.open(path, flags, 0o600)


def _move(temporary: Path, target: Path) -> None:
    try:
        temporary.replace(target)
    except OSError as error:
        # A file that is mounted by itself, as containers do with a job's summary, cannot be replaced.
        if error.errno != errno.EBUSY:
            raise
        target.write_bytes(temporary.read_bytes())


def _keep_mode(handle: int, target: Path) -> None:
    if not hasattr(os, "fchmod"):  # Windows
        return
    try:
        old = target.stat()
    except FileNotFoundError:
        os.fchmod(handle, 0o666 & ~_umask())
        return
    with contextlib.suppress(OSError):  # only root may give files away
        os.fchown(handle, old.st_uid, old.st_gid)
    os.fchmod(handle, stat.S_IMODE(old.st_mode) & 0o777)


def _umask() -> int:
    """The process's umask, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _is_stream(path: str) -> bool:
    """Whether ``path`` is written to as it is. Raises OSError, for a loop of links among others."""
    if path.startswith(("/dev/", "/proc/")) and not path.startswith("/dev/shm/"):
        return True
    try:
        mode = Path(path).stat().st_mode
    except FileNotFoundError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP end the program as an exception, where they would end it on the spot: the temporary file is
    removed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    taken = [number for number in numbers if signal.getsignal(number) == signal.SIG_DFL]
    for number in taken:
        signal.signal(number, _leave)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)


def make_folder(name: str) -> None:
    """A folder and those around it; raises :class:`SnapshotError` where it cannot be made."""
    try:
        Path(name).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SnapshotError(f"{name}: cannot be made: {error.strerror or error}") from None


def check_output(output: str, snaps: Sequence[str], what: str = "the report", *, force: bool = False) -> None:
    """Refuse before the work what cannot be written after it: :class:`SnapshotError`.

    ``what``: what is to be written. ``snaps``: files that it must not replace. ``force``: whether it may replace a file
    that no run of ours wrote.
    """
    if output == "-":
        return
    path = Path(output)
    try:
        if _is_stream(output):
            refused = "" if os.access(output, os.W_OK) else "permission denied"
        elif path.is_dir():
            refused = "is a directory"
        elif not Path(os.path.realpath(output)).parent.is_dir():
            refused = "no such directory"
        elif any(_is_same(path, snap) for snap in snaps):
            refused = "this is the snapshot itself"
        elif not os.access(Path(os.path.realpath(output)).parent, os.W_OK):
            refused = "permission denied"
        elif not force and not is_ours(path):
            refused = "the file exists and snapreport did not write it; --force replaces it"
        else:
            return
    except (OSError, ValueError) as error:
        raise cannot_write(output, what, error) from None
    if refused:
        raise SnapshotError(f"{output}: cannot write {what}: {refused}")


def _is_same(path: Path, snap: str) -> bool:
    with contextlib.suppress(OSError, ValueError):
        return path.samefile(snap)
    return False


def is_ours(path: Path) -> bool:
    """Whether replacing ``path`` loses nothing: there is no file, it is empty, or a run of ours wrote it."""
    try:
        with path.open("rb") as file:
            head = file.read(_LOOKED_AT)
            file.seek(-min(_LOOKED_AT, file.seek(0, io.SEEK_END)), io.SEEK_END)
            text = head + file.read(_LOOKED_AT) + _unpacked(file, head)
    except FileNotFoundError:
        return True
    return not head or any(mark in text for mark in _MARKS)


def _unpacked(file: BinaryIO, head: bytes) -> bytes:
    import gzip
    import lzma

    file.seek(0)
    with contextlib.suppress(OSError, EOFError, lzma.LZMAError):
        if head.startswith(b"\x1f\x8b"):
            return gzip.GzipFile(fileobj=file).read(_LOOKED_AT)
        if head.startswith(b"\xfd7zXZ\0"):
            return lzma.LZMAFile(file).read(_LOOKED_AT)
    return b""


def cannot_write(path: str | os.PathLike[str], what: str, error: OSError | ValueError) -> SnapshotError:
    """The error of ``path``, in one line."""
    return SnapshotError(f"{os.fspath(path)}: cannot write {what}: {getattr(error, 'strerror', None) or error}")
