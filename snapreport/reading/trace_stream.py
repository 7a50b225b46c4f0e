"""Diverts the traces of a pickled snapshot into collectors while the C unpickler reads it.

A plain load builds a list of a million dicts before anyone looks at it: 3.1 GB for a pickle of 784 MB. The unpickler
appends to a list in batches of 1,000 (``APPENDS``), and to any object in its place, so a collector in place of a
trace's list receives each batch as it is read, turns it into columns, and empties its dicts.

Two bytes put the collector there. At the beginning of a trace's list, ``EMPTY_LIST MEMOIZE`` (protocols 4 and 5) or
``EMPTY_LIST BINPUT n`` (2 and 3) becomes ``NONE BINPERSID MEMOIZE``: one byte more, which is added to that frame's
length, and ``persistent_load`` returns a collector. The ``]`` that begins a trace is recognised by the bytes around it.
That can be wrong in a malicious file, so ``decode.py`` checks that every collector is in the place of a trace; if
anything is unusual, the file is read again, the plain way.

Entries need no dict either. Between two entries of a batch, ``SETITEMS EMPTY_DICT MEMOIZE MARK`` becomes ``NONE
MEMOIZE``: the batch is then a flat sequence of the entries' keys and values, with a None before each entry. That saves
a fifth of the reading time, and the unpickler's memo holds that None instead of every dict until the end (80 bytes each
when empty). Nothing refers to an entry again. An entry is recognised by its first key, which is the same reference to a
text in all of them; if a file has those bytes elsewhere, the count of Nones is wrong.

Opcodes: Lib/pickletools.py. What PyTorch writes: ``pickle.dump`` in torch/cuda/memory.py, ``_dump_snapshot``.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import Any, BinaryIO

BLOCK = 1 << 20
_FRAME, _FRAME_HEADER = 0x95, 9
# Opcodes whose argument CPython writes between two frames if it is 64 KiB or longer: code → bytes of its length.
_LONG_ARGUMENTS = {b"X": 4, b"B": 4, b"\x8d": 8, b"\x8e": 8, b"\x96": 8}
# A list whose first item is a dict with a first key, as the protocols write it.
_FRAMED_LIST = b"]\x94(}\x94("
_UNFRAMED_LIST = re.compile(rb"\](?:q.|r.{4})\(\}(?:q.|r.{4})\(", re.DOTALL)
# The bytes before a trace's list: the end of another trace, or the start of the list of traces, perhaps with leading
# empty traces, or the key of host traces, which may be one plain list. A list of frames, blocks or segments follows its
# key.
_FRAMED_BEFORE = re.compile(rb"(?:[us][ea]|\]\x94\(?|host_traces\x94)\Z")
_UNFRAMED_BEFORE = re.compile(rb"(?:[us][ea]|\](?:q.|r.{4})\(?|host_traces(?:q.|r.{4}))\Z", re.DOTALL)
# An entry whose first key is a reference (``BINGET`` or ``LONG_BINGET``), with the first occurrence of one of these
# values.
_FRAMED_ENTRY = re.compile(
    rb"u\}\x94\((h.|j.{4})\x8c.(?:alloc|free_requested|free_completed|segment_map|segment_alloc)\x94", re.DOTALL
)
_CONTEXT = 32  # bytes that these patterns may match before the list or entry, and from it on


class Unusual(Exception):  # noqa: N818  the file is not invalid
    """The pickle is not written as ``pickle.dump`` writes a snapshot: read it the plain way."""


class DivertedPickle(io.RawIOBase):
    """The bytes of a pickle with the lists of its traces replaced; ``diverted`` counts them, ``nones`` the entries
    without a dict.

    ``file``: at the pickle's start. Raises :class:`Unusual`, from the constructor or from a read.
    """

    def __init__(self, file: BinaryIO) -> None:
        head, first = file.read(2), file.read(1)
        if len(head) < 2 or head[0] != 0x80 or not 2 <= head[1] <= 5:
            raise Unusual("no protocol from 2 to 5")
        self.diverted = self.nones = self._left = 0
        # The reference to the first key of an entry, once it is known.
        self._key = b""
        self._file = file
        # Frames are optional: snapreport's recorder writes protocol 4 without them.
        self._pieces = self._framed(first) if first == bytes([_FRAME]) else self._unframed(first)
        self._piece = memoryview(head)

    def is_cut_short(self) -> bool:
        """Whether the last frame read claims more bytes than the file has, which Python's unpickler refuses."""
        while self._left and (block := self._file.read(min(BLOCK, self._left))):
            self._left -= len(block)
        return self._left > 0

    def readable(self) -> bool:
        """Tell :class:`io.BufferedReader` that this can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill ``buffer`` as far as the current piece goes; the number of bytes, 0 at the end."""
        while not self._piece:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._piece = memoryview(piece)
        count = min(len(buffer), len(self._piece))
        buffer[:count] = self._piece[:count]
        self._piece = self._piece[count:]
        return count

    def _framed(self, first: bytes) -> Iterator[bytes]:
        """Protocols 4 and 5, without the frames, which only give read sizes."""
        before = data = b""
        for block in self._bodies(first):
            data += block
            limit = max(0, len(data) - _CONTEXT)  # a later list or entry may continue in the next block
            made, done = [], 0
            place = data.find(_FRAMED_LIST)
            while 0 <= place < limit:
                context = (before + data[max(0, place - _CONTEXT) : place])[-_CONTEXT:]
                if _FRAMED_BEFORE.search(context):
                    made += [self._without_dicts(data[done:place]), b"NQ\x94"]
                    done = place + 2
                    self.diverted += 1
                place = data.find(_FRAMED_LIST, place + 1)
            limit = max(limit, done)
            yield b"".join([*made, self._without_dicts(data[done:limit])])
            before = (before + data[:limit])[-_CONTEXT:]
            data = data[limit:]
        yield data

    def _bodies(self, data: bytes) -> Iterator[bytes]:
        """The file in blocks, without the headers of frames. ``data``: the bytes already read."""
        left = self._left = 0  # bytes left of a frame, or of an opcode and argument between two frames
        while block := self._file.read(BLOCK):
            data += block
            bodies, at = [], 0
            while at < len(data):
                if left:
                    bodies.append(data[at : at + left])
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

    def _without_dicts(self, data: bytes) -> bytes:
        """A part of a trace, or of anything else, in which all entries that begin here except the first and the last
        have no dict. The last may end its trace, and its end cannot be recognised.
        """
        if not self._key and self.diverted and (found := _FRAMED_ENTRY.search(data)):
            self._key = found[1]
        if not self._key:
            return data
        entry, without = b"u}\x94(" + self._key, b"N\x94" + self._key
        first, last = data.find(entry), data.rfind(entry)
        if first == last:
            return data
        entries = data[first:last]
        # The first entry of a batch follows the opcode that ends the previous batch.
        flat = entries.replace(entry, without).replace(b"ue(}\x94(" + self._key, b"e(" + without)
        self.nones += (len(entries) - len(flat)) // 2
        return b"".join([data[: first + 1], flat, data[last + 1 :]])

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
