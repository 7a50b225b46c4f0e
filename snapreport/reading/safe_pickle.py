"""Unpickles plain data and nothing else, at the speed of the C unpickler."""

from __future__ import annotations

import contextlib
import gc
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, TypeVar

from snapreport import supervision
from snapreport.errors import SnapshotError, one_line
from snapreport.reading.entry_stream import FILLER_ID, MARK_ID, PARSED_ID
from snapreport.reading.entry_tokens import Unusual
from snapreport.reading.trace_collector import TraceCollectors
from snapreport.reading.trace_parser import TraceParser
from snapreport.reading.trace_stream import DivertedPickle

T = TypeVar("T")

# Bytes of C stack per byte of the pickle. A byte can nest one more tuple in a tuple, and hashing such a tuple (as the
# key of a dict) recurses in C without any check, some 100 bytes per level: with less stack the process would crash, not
# raise.
STACK_PER_BYTE = 160
MIN_STACK, STACK_MOST = 16 << 20, 8 << 30
# Address space for the loaded objects: a byte of pickle makes at most one object of 64 bytes and a slot for it.
# Anything that requests more (``LONG_BINPUT 2**32 - 1`` requests 64 GiB of memo) is hostile and refused by the system.
MEMORY_PER_BYTE, MIN_MEMORY = 100, 1 << 30
# guarded() and load() temporarily change process-wide settings: two at once would restore each other's values.
_ALONE = threading.Lock()


class RestrictedUnpickler(pickle.Unpickler):
    """Builds dicts, lists, tuples, texts, bytes and numbers. Refuses every global and every persistent id by name."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise SnapshotError(
            f"names the Python object {one_line(f'{module}.{name}', 200)}; a snapshot holds plain data only, nothing "
            "was run"
        )

    def persistent_load(self, pid: Any) -> NoReturn:
        raise SnapshotError("refers to storages outside the pickle (persistent ids): tensors, not a memory snapshot")


class _Filler:
    """Stands in the memo for what was not unpickled. Unhashable, so that it cannot become a key: an entry is emptied
    before :meth:`_DivertingUnpickler.refers_to_filler` looks.
    """

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]


class _DivertingUnpickler(RestrictedUnpickler):
    """Returns a collector for each list that ``source`` has replaced, and what ``parser`` has made."""

    def __init__(self, source: DivertedPickle, parser: TraceParser, collectors: TraceCollectors) -> None:
        super().__init__(source)
        source.memo = lambda: self.memo.copy()
        self._source = source
        self._parser = parser
        self._collectors = collectors
        self._filler = _Filler()

    def persistent_load(self, pid: Any) -> Any:
        if type(pid) is int and pid == FILLER_ID:
            return self._filler
        if type(pid) is int and pid == PARSED_ID and self._parser.parsed:
            return self._parser.parsed.popleft()
        if type(pid) is int and pid >= MARK_ID and self._parser.has_given_up:
            return [self._collectors.mark(pid - MARK_ID)]
        if pid is None and len(self._collectors) < self._source.diverted:
            return self._collectors.new()
        raise Unusual("a persistent id of the file's own")

    def refers_to_filler(self) -> bool:
        """Whether the loaded object refers to an entry that was not unpickled. Empties the memo, and what refers to its
        objects: a full collection takes three times as long to free 300,000 blocks as their last reference.
        """
        self.memo.clear()
        self._source.memo, self._parser.memo.before = None, ()
        return sys.getrefcount(self._filler) > 2  # here and in this object


def load_diverted(file: BinaryIO, size: int, *, parse: bool = True) -> tuple[Any, TraceCollectors]:
    """The object pickled in ``file`` with collectors in place of its traces, and the finished collectors.

    ``parse``: entries are parsed, not unpickled. Raises :class:`Unusual` if the file has to be read without that, or
    with :func:`load`. Same limits as there.
    """
    collectors = TraceCollectors()
    try:
        with _address_space(MIN_MEMORY + size * MEMORY_PER_BYTE), _no_stray_lines():
            parser = TraceParser(collectors.codes, size)
            source = DivertedPickle(file, parser if parse else None)
            unpickler = _DivertingUnpickler(source, parser, collectors)
            with supervision.unpickling():
                raw = unpickler.load()
            if source.is_cut_short():
                raise Unusual("a frame is cut short")
            collectors.finish()
            if unpickler.refers_to_filler():
                raise Unusual("a reference to an entry from elsewhere")
    except Exception as error:  # noqa: BLE001  load() meets any error too, and words it
        raise Unusual(str(error)) from None
    if len(collectors) != source.diverted:
        raise Unusual("a list was replaced inside a text")
    if collectors.parsed != parser.made:
        raise Unusual("entries were parsed that are in no trace")
    return raw, collectors


def load(file: BinaryIO, size: int) -> Any:
    """The object pickled in ``file``, which holds ``size`` bytes. Raises :class:`SnapshotError` for any bad content.

    Must be called inside :func:`guarded`, which provides the stack for deeply nested pickles.
    """
    try:
        with _address_space(MIN_MEMORY + size * MEMORY_PER_BYTE), _no_stray_lines(), supervision.unpickling():
            return RestrictedUnpickler(file).load()
    except SnapshotError:
        raise
    except EOFError:
        raise SnapshotError("the pickle is cut short: it ends before its end mark") from None
    except MemoryError:
        raise SnapshotError("the pickle asks for more memory than its size can justify, or than there is") from None
    except Exception as error:  # noqa: BLE001  # a bad opcode can make the C unpickler raise anything
        if "truncated" in str(error) or "exhausted" in str(error):
            raise SnapshotError("the pickle is cut short: it ends before its end mark") from None
        raise SnapshotError(f"not a readable pickle: {one_line(f'{type(error).__name__}: {error}', 200)}") from None


def guarded(task: Callable[[], T], size: int) -> T:
    """Returns ``task()``, run on a C stack sized for a pickle of ``size`` bytes.

    The garbage collector is paused meanwhile: it would traverse millions of live containers again and again.
    """
    outcome: list[T] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(task())
        except RecursionError:
            failure.append(SnapshotError("values are nested too deep for a snapshot"))
        except MemoryError:
            failure.append(SnapshotError("needs more memory than there is"))
        except BaseException as error:  # noqa: BLE001  # raised again in the caller's thread
            failure.append(error)

    stack = max(MIN_STACK, min(size * STACK_PER_BYTE, STACK_MOST))
    with _ALONE, _collector_paused():
        while True:
            try:
                with _stack_size(stack):
                    thread = threading.Thread(target=run, name="snapreport-reading", daemon=True)
                    thread.start()
                    thread.join()
                break
            except (RuntimeError, MemoryError):  # no room for such a stack
                if stack <= MIN_STACK:
                    raise SnapshotError("needs more memory than there is") from None
                stack = max(MIN_STACK, stack // 4)
    if failure:
        raise failure[0]
    return outcome[0]


@contextlib.contextmanager
def _collector_paused() -> Iterator[None]:
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextlib.contextmanager
def _no_stray_lines() -> Iterator[None]:
    """Stops Python before 3.13 from printing a line when it cannot allocate a bytearray of a terabyte."""
    hook = sys.excepthook
    sys.excepthook = lambda *_: None
    try:
        yield
    finally:
        sys.excepthook = hook


@contextlib.contextmanager
def _stack_size(size: int) -> Iterator[None]:
    before = threading.stack_size(size)
    try:
        yield
    finally:
        threading.stack_size(before)


@contextlib.contextmanager
def _address_space(room: int) -> Iterator[None]:
    """Limits address space to ``room`` more bytes than now, if the system has such a limit (Linux)."""
    if sys.platform != "linux":
        yield
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + room
    if soft != resource.RLIM_INFINITY and soft <= limit:
        yield
        return
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
