"""JSON files: traces of ``torch.profiler``, and snapshots exported with ``json.dumps``."""

from __future__ import annotations

import contextlib
import io
import mmap
from collections.abc import Iterator
from typing import Any, BinaryIO

# msgspec: reads only the requested fields of an event, at 250 MB/s and with a third of the memory of dicts (orjson
# builds all of them); one small wheel without dependencies.
import msgspec

from snapreport.errors import SnapshotError, one_line
from snapreport.reading.profiler_columns import Event

WANTED = "wanted is a memory snapshot, or a torch.profiler trace recorded with profile_memory=True"
_HEAD = 4096


class _Trace(msgspec.Struct):
    traceEvents: list[Event] | None = None  # noqa: N815  the format's own name
    baseTimeNanoseconds: int = 0  # noqa: N815
    snapreport: Any = None
    segments: msgspec.Raw = msgspec.Raw()
    device_traces: msgspec.Raw = msgspec.Raw()


def read_json(file: BinaryIO) -> tuple[list[Event], int, Any] | Any:
    """The events of a trace, the base of its times (ns) and our recorder's metadata, or the plain object of an exported
    snapshot.

    Raises :class:`SnapshotError` with a description of any other JSON.
    """
    with _buffer(file) as data:
        try:
            return _decoded(data)
        except UnicodeDecodeError:
            # The profiler takes the names of some C functions from freed memory: bytes that are not text.
            return _decoded(bytes(data).decode("utf-8", "replace").encode())


def _decoded(data: Any) -> Any:
    head = bytes(data[:_HEAD])
    begins = head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
    text: Any = memoryview(data)[3:] if head.startswith(b"\xef\xbb\xbf") else data
    try:
        if begins == b"[" and (b'"ph"' in head or b'"traceEvents"' in head):
            return msgspec.json.decode(text, type=list[Event]), 0, None
        if begins == b"[":
            return _checked_list(msgspec.json.decode(text))
        trace = msgspec.json.decode(text, type=_Trace)
        if trace.traceEvents is not None:
            return trace.traceEvents, trace.baseTimeNanoseconds, trace.snapreport
        raw = msgspec.json.decode(text)
        if not len(bytes(trace.segments)) and not len(bytes(trace.device_traces)):
            raise SnapshotError(f"{_looks_like(raw)}; {WANTED}")
        return raw
    except msgspec.ValidationError as error:
        raise SnapshotError(f"JSON that is no profiler trace: {one_line(str(error), 200)}; {WANTED}") from None
    except msgspec.DecodeError as error:
        raise SnapshotError(f"damaged or cut short JSON: {one_line(str(error), 200)}") from None


def _checked_list(raw: Any) -> Any:
    """Checks a list of segments; the profiler's export of its memory timeline is also a list, but has no stacks."""
    if type(raw) is list and raw and type(raw[0]) is dict and "address" in raw[0]:
        return raw
    if type(raw) is list and raw and type(raw[0]) is list:
        raise SnapshotError(
            "looks like the memory timeline of torch.profiler (export_memory_timeline), which has no stacks; "
            "export_chrome_trace of the same profile can be read"
        )
    what = "an empty JSON list" if not raw else f"a JSON list of {len(raw):,} {_plural(raw[0])}"
    raise SnapshotError(f"{what}; {WANTED}")


def _plural(value: Any) -> str:
    return "objects" if type(value) is dict else "lists" if type(value) is list else "values"


def _looks_like(raw: Any) -> str:
    keys = list(raw)[:5]
    schema = raw.get("schema")
    if type(schema) is str and schema.startswith("snapreport-"):
        return f"is output of snapreport itself ({one_line(schema, 60)})"
    names = ", ".join(one_line(repr(key[:30])) for key in keys)
    return f"JSON with the keys {names}{', …' if len(raw) > 5 else ''}" if keys else "an empty JSON object"


@contextlib.contextmanager
def _buffer(file: BinaryIO) -> Iterator[Any]:
    """The bytes of ``file``, memory-mapped if it is a file on disk."""
    if isinstance(file, io.BytesIO):
        yield file.getbuffer()
        return
    try:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError, AttributeError, io.UnsupportedOperation):
        file.seek(0)
        yield file.read()
        return
    yield mapped  # closed when no longer referenced
