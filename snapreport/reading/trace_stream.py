"""Diverts the traces of a pickled snapshot into collectors while the C unpickler reads it.

A plain load builds a list of a million dicts before anyone looks at it: 3.1 GB for a pickle of 784 MB. The unpickler
appends to a list in batches of 1,000 (``APPENDS``), and to any object in its place, so a collector in place of a
trace's list receives each batch as it is read, turns it into columns, and empties its dicts.

Two bytes put the collector there. At the beginning of a trace's list, ``EMPTY_LIST MEMOIZE`` (protocols 4 and 5) or
``EMPTY_LIST BINPUT n`` (2 and 3) becomes ``NONE BINPERSID MEMOIZE``, and ``persistent_load`` returns a collector. The
``]`` that begins a trace is recognised by the bytes around it. That can be wrong in a malicious file, so ``decode.py``
checks that every collector is in the place of a trace; if anything is unusual, the file is read again, the plain way.

With protocols 4 and 5, most entries are not unpickled at all (``trace_parser.py``).

Opcodes: Lib/pickletools.py. What PyTorch writes: ``pickle.dump`` in torch/cuda/memory.py, ``_dump_snapshot``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from snapreport.reading.entry_tokens import Unusual
from snapreport.reading.trace_parser import TraceParser

BLOCK = 1 << 20
_FRAME, _FRAME_HEADER = 0x95, 9
# Opcodes whose argument CPython writes between two frames if it is 64 KiB or longer: code → bytes of its length.
_LONG_ARGUMENTS = {b"X": 4, b"B": 4, b"\x8d": 8, b"\x8e": 8, b"\x96": 8}
# A list whose first item is a dict with a first key, as the protocols write it, and the bytes before a trace's list:
# the end of another trace, or the start of the list of traces, perhaps with leading empty traces, or the key of host
# traces, which may be one plain list. A list of frames, blocks or segments follows its key.
_FRAMED_LIST = rb"\]\x94\(\}\x94\("
_FRAMED_BEFORE = (rb"[us][ea]", rb"\]\x94\(", rb"\]\x94", rb"host_traces\x94")
# What is before the list is compared last: a list of frames that are not shared begins in the same way.
_FRAMED_TRACE = re.compile(
    _FRAMED_LIST + b"(?:" + b"|".join(b"(?<=" + before + _FRAMED_LIST + b")" for before in _FRAMED_BEFORE) + b")"
)
_UNFRAMED_LIST = re.compile(rb"\](?:q.|r.{4})\(\}(?:q.|r.{4})\(", re.DOTALL)
_UNFRAMED_BEFORE = re.compile(rb"(?:[us][ea]|\](?:q.|r.{4})\(?|host_traces(?:q.|r.{4}))\Z", re.DOTALL)
_EMPTY_TRACES = re.compile(rb"(?:\]\x94)*")
_CONTEXT = 32  # bytes that these patterns may match before the list, and from it on
_MOST_COPIED = 500_000  # places of a memo that is copied to count them: 50 MB
_MOST_CARRIED = 64 << 20  # bytes of one entry


class DivertedPickle:
    """A file for the unpickler: a pickle with the lists of its traces replaced. ``diverted`` counts these.

    ``file``: at the pickle's start. ``parser``: parses entries; without one, all are unpickled. When the unpickler asks
    for more bytes, it has executed all before: that much is known of its memo. Raises :class:`Unusual`, from the
    constructor or from a read.
    """

    def __init__(self, file: BinaryIO, parser: TraceParser | None = None) -> None:
        head, first = file.read(2), file.read(1)
        if len(head) < 2 or head[0] != 0x80 or not 2 <= head[1] <= 5:
            raise Unusual("no protocol from 2 to 5")
        self.diverted = self._left = 0
        self.memo: Callable[[], dict[int, Any]] | None = None
        """The unpickler's memo: index → object."""
        self._parser = parser
        self._file = file
        # Frames are optional: snapreport's recorder writes protocol 4 without them.
        self._pieces = self._framed(first) if first == bytes([_FRAME]) else self._unframed(first)
        self._piece = head
        # Bytes of the pickle that were not yielded from _at on, and some before them.
        self._data = b""
        self._at = 0

    def is_cut_short(self) -> bool:
        """Whether the last frame read claims more bytes than the file has, which Python's unpickler refuses."""
        while self._left and (block := self._file.read(min(BLOCK, self._left))):
            self._left -= len(block)
        return self._left > 0

    def peek(self, size: int) -> bytes:
        """The rest of the current piece, whatever its size; empty at the end."""
        while not self._piece and (piece := next(self._pieces, None)) is not None:
            self._piece = piece
        return self._piece

    def read(self, size: int = -1) -> bytes:
        """The next ``size`` bytes, or all that are left."""
        made = []
        while size and (piece := self.peek(1)):
            part = piece[:size] if size > 0 else piece
            made.append(part)
            self._piece = piece[len(part) :]
            size -= len(part) if size > 0 else 0
        return b"".join(made)

    def readline(self) -> bytes:
        """No opcode of the known protocols, as written by ``pickle.dump``, has a line."""
        raise Unusual("an opcode of protocol 0")

    def _framed(self, first: bytes) -> Iterator[bytes]:
        """Protocols 4 and 5, without the frames, which only give read sizes."""
        bodies = self._bodies(first)
        # Whether the parser knows the number of filled places in the memo at _at.
        is_known = False
        while self._more(bodies):
            while (place := self._next_list()) >= 0:
                skipped = self._data[self._at : place]
                self._at = place + 2
                self.diverted += 1
                yield skipped + b"NQ\x94"
                is_known = self._parser is not None and self._count_memo(self._parser, skipped, is_known)
                if self._parser and is_known:
                    yield from self._entries(self._parser, bodies)
            end = max(self._at, len(self._data) - _CONTEXT)  # a later list may continue in the next block
            if end > self._at:
                yield self._data[self._at : end]
                self._at, is_known = end, False
        yield self._data[self._at :]

    def _more(self, bodies: Iterator[bytes]) -> bool:
        """Appends a block to the data; whether there was one."""
        block = next(bodies, None)
        if block is None:
            return False
        self._data = self._data[max(0, self._at - _CONTEXT) :] + block
        self._at = min(self._at, _CONTEXT)
        if len(self._data) > _MOST_CARRIED + 2 * BLOCK:
            raise Unusual("an entry longer than any")
        return True

    def _next_list(self) -> int:
        """Where in the data the next trace's list begins; -1 if there is none."""
        found = _FRAMED_TRACE.search(self._data, self._at)
        return found.start() if found and found.start() < len(self._data) - _CONTEXT else -1

    def _count_memo(self, parser: TraceParser, skipped: bytes, is_known: bool) -> bool:
        """Tells the parser how many places of the memo are filled where a trace begins; whether that can be known.

        ``skipped``: the bytes since the previous trace, before which the parser has counted if ``is_known``.
        """
        if is_known and _EMPTY_TRACES.fullmatch(skipped):
            parser.memo.filled += len(skipped) // 2 + 1
            return True
        # After the first trace, opcodes that the parser has not seen may have put other objects into the places that it
        # knows (BINPUT).
        if self.memo is None or parser.made or parser.memo.filled > _MOST_COPIED:
            return False
        memo = self.memo()
        if next(reversed(memo), -1) >= len(memo):  # it is copied in the order of the places
            raise Unusual("a memo with gaps")  # MEMOIZE would fill a place twice
        parser.memo.filled, parser.memo.before = len(memo), list(memo.values())
        return True

    def _entries(self, parser: TraceParser, bodies: Iterator[bytes]) -> Iterator[bytes]:
        """The entries of a trace whose list begins at _at."""
        parser.begin()
        while True:
            stream, end, has_ended = parser.take(self._data, self._at)
            if stream:
                yield stream
            has_advanced, self._at = end > self._at, end
            if has_ended:
                return
            if not parser.is_worthwhile:
                self._parser = None
                yield parser.given_up()
                return
            # An entry of many blocks is read from its start each time: with twice the bytes, not with one more block.
            wanted = 2 * (len(self._data) - self._at) if not has_advanced else 0
            if (parser.needs_more or not has_advanced) and not self._more(bodies) and not has_advanced:
                raise Unusual("a trace that is cut short")
            while len(self._data) < wanted and self._more(bodies):
                pass

    def _bodies(self, data: bytes) -> Iterator[bytes]:
        """The file in blocks, without the headers of frames. ``data``: the bytes already read."""
        left = self._left = 0  # bytes left of a frame, or of an opcode and argument between two frames
        while block := self._file.read(BLOCK):
            data += block
            view = memoryview(data)
            bodies, at = [], 0
            while at < len(data):
                if left:
                    bodies.append(view[at : at + left])
                    at += len(bodies[-1])
                    left -= len(bodies[-1])
                    continue
                if at + _FRAME_HEADER > len(data):
                    break
                if data[at] == _FRAME:
                    left = int.from_bytes(data[at + 1 : at + _FRAME_HEADER], "little")
                    at += _FRAME_HEADER
                    continue
                width = _LONG_ARGUMENTS.get(data[at : at + 1])
                if width is None:
                    raise Unusual("opcodes between frames")
                left = 1 + width + int.from_bytes(data[at + 1 : at + 1 + width], "little")
            self._left = left
            yield b"".join(bodies)
            data = data[at:]
        yield data  # cut short: the unpickler says so

    def _unframed(self, data: bytes) -> Iterator[bytes]:
        """Protocols 2 and 3: one run of opcodes. ``data``: the bytes already read."""
        before = b""
        while block := self._file.read(BLOCK):
            data += block
            limit = max(0, len(data) - _CONTEXT)  # a later list may continue in the next block
            made, done = bytearray(), 0
            for match in _UNFRAMED_LIST.finditer(data):
                place = match.start()
                if place >= limit:
                    break
                context = (before + data[max(0, place - _CONTEXT) : place])[-_CONTEXT:]
                if _UNFRAMED_BEFORE.search(context):
                    made += data[done:place] + b"NQ"
                    done = place + 1
                    self.diverted += 1
            yield bytes(made + data[done:limit])
            before = (before + data[:limit])[-_CONTEXT:]
            data = data[limit:]
        yield data
