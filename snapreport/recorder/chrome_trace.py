"""Writes the part of a ``torch.profiler`` trace that concerns memory.

The profiler exports every Python call and operator, most of which allocate nothing. The output has the memory events,
the functions and operators running at those times, the operators of a backward pass with those that created their
nodes, the program's own regions, and the names of threads: enough for a viewer of Chrome traces (Perfetto), and
everything that a report reads. Text is read and written event by event, so a large trace takes little memory.
"""

from __future__ import annotations

import json
import re
import shutil
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from typing import IO, Any, BinaryIO

from snapreport.recorder.metadata import KEY

MEMORY = "[memory]"
_SEQUENCE = "Sequence number"
# Arguments that a report reads, or that describe a memory event in a viewer.
_ARGUMENTS = frozenset({
    "Bytes", "Addr", "Device Type", "Device Id", "Total Allocated", "Total Reserved", _SEQUENCE, "Fwd thread id",
    "name", "labels", "sort_index",
})  # fmt: skip
# Kineto, PyTorch's profiler library, writes each event on separate lines, which begin and end like this.
_BEGIN, _ENDS = b"  {\n", (b"  },\n", b"  }\n")
_EVENTS = b'"traceEvents"'
_PYTHON = b'"cat": "python_function"'
TRACE_NAME = re.compile(rb'"traceName": "(?:[^"\\]|\\.)*"')  # of a temporary file that is removed at once
_Place = tuple[Any, Any]  # process and thread


def write_whole(source: BinaryIO, stream: IO[bytes], own: dict[str, Any]) -> None:
    """Writes all of ``source`` to ``stream``, and ``own`` under the recorder's key."""
    _write_own(source, stream, own)
    shutil.copyfileobj(source, stream, 1 << 20)


def write_trimmed(source: BinaryIO, stream: IO[bytes], own: dict[str, Any], most: int) -> int:
    """Writes the events of ``source`` that matter for memory to ``stream``, the last ``most`` memory events of them.

    ``own`` comes under the recorder's key. Returns the number of memory events. Both are positioned at their
    beginnings. Raises OSError, and ValueError for a different layout, in which no memory events are found.
    """
    times, points = _points(source)
    if not times:
        raise ValueError("a trace without memory events, or whose events cannot be told apart")
    cut = sorted(times)[-most] if len(times) > most else float("-inf")
    for place in points.values():
        place.sort()
    source.seek(0)
    _write_own(source, stream, own)
    between = b""
    for line, event in _parts(source):
        if event is None:
            stream.write(TRACE_NAME.sub(b'"traceName": ""', line))
            continue
        try:
            decoded = _decoded(event)
        except ValueError:  # PyTorch 2.6 reads names of C functions from freed memory: may contain quotes
            if _PYTHON in event:
                continue
            raise
        if _is_kept(decoded, points, cut):
            if type(decoded.get("args")) is dict:
                decoded["args"] = {key: value for key, value in decoded["args"].items() if key in _ARGUMENTS}
            stream.write(between + json.dumps(decoded, separators=(",", ":")).encode())
            between = b",\n"
    return len(times)


def _write_own(source: BinaryIO, stream: IO[bytes], own: dict[str, Any]) -> None:
    """Writes ``own``, and leaves ``source`` after its first brace. The profiler's ``add_metadata_json`` could do this,
    but turns every backslash into a slash, such as in a command line with quotes.
    """
    for line in source:
        if line.strip():  # PyTorch before 2.7 begins with an empty line
            before, brace, rest = line.partition(b"{")
            if before.strip() or not brace:
                break
            stream.write(b"{%s:%s,\n" % (json.dumps(KEY).encode(), json.dumps(own).encode()) + rest)
            return
    raise ValueError("a trace that does not begin with a brace")


def _points(source: BinaryIO) -> tuple[list[float], dict[_Place, list[float]]]:
    """Times (µs) of the memory events, and for each thread the times whose enclosing events matter."""
    times: list[float] = []
    points: defaultdict[_Place, list[float]] = defaultdict(list)
    for _, event in _parts(source):
        if event is None or _PYTHON in event:
            continue
        decoded = _decoded(event)
        if decoded.get("name") == MEMORY:
            times.append(float(decoded["ts"]))
        elif _SEQUENCE not in (decoded.get("args") or ()):
            continue
        points[decoded["pid"], decoded["tid"]].append(float(decoded["ts"]))
    return times, points


def _is_kept(event: dict[str, Any], points: dict[_Place, list[float]], cut: float) -> bool:
    if event.get("ph") != "X":  # memory events, arrows, names of threads
        return event.get("name") != MEMORY or bool(event["ts"] >= cut)
    begin = float(event["ts"])
    end = begin + float(event.get("dur") or 0)
    if end < cut:
        return False
    if event.get("cat") not in ("python_function", "cpu_op"):
        return True
    inside = points.get((event["pid"], event["tid"]), [])
    after = bisect_left(inside, begin)
    return after < len(inside) and inside[after] <= end


def _parts(source: BinaryIO) -> Iterator[tuple[bytes, bytes | None]]:
    """The lines outside of events, with None, and the text of each event."""
    lines: list[bytes] | None = None
    begun = False
    for line in source:
        begun = begun or _EVENTS in line
        if lines is not None:
            lines.append(line)
            if line in _ENDS:
                yield b"", b"".join(lines).rstrip(b",\n")
                lines = None
        elif begun and line == _BEGIN:
            lines = [line]
        else:
            yield line, None
    if lines is not None:
        raise ValueError("a trace that ends within an event")


def _decoded(event: bytes) -> dict[str, Any]:
    # Names read from freed memory contain bytes that are not text, and control codes.
    decoded = json.loads(event.decode("utf-8", "replace"), strict=False)
    if type(decoded) is not dict:
        raise ValueError("a trace with an event that is none")
    return decoded
