"""Diverts the traces of a pickled snapshot into collectors while the C unpickler reads it.

A plain load builds a list of a million dicts before anyone looks at it: 3.1 GB for a pickle of 784 MB. The unpickler
appends to a list in batches of 1,000 (``APPENDS``) and appends to whatever object stands there, so an object of ours in
the place of a trace's list receives each batch as it comes, turns it into columns, and empties its dicts.

The object gets there by two bytes. Where a trace's list begins, ``EMPTY_LIST MEMOIZE`` (protocols 4 and 5) or
``EMPTY_LIST BINPUT n`` (2 and 3) becomes ``NONE BINPERSID MEMOIZE``: one byte more, by which that frame's length grows,
and ``persistent_load`` hands out a collector. Which ``]`` begins a trace is recognised by the bytes around it. That can
be wrong in a file made to deceive, so ``decode.py`` checks that every collector stands where a trace belongs; where
anything is unusual, the file is read again, the plain way.

The unpickler's memo keeps every entry until the end, 80 bytes each when it is empty. So what is memoized in its place
is None: ``EMPTY_DICT MEMOIZE`` of an entry becomes ``NONE MEMOIZE EMPTY_DICT``, a byte more, and the collector finds a
None before each entry and drops it. Nothing refers to an entry again. An entry is recognised by its first key, which is
the same reference to a text in all of them; where a file holds those bytes elsewhere, the Nones do not add up.

Opcodes: Lib/pickletools.py. What PyTorch writes: ``pickle.dump`` in torch/cuda/memory.py, ``_dump_snapshot``.
"""

from __future__ import annotations

import io
import re
from bisect import bisect_left
from collections.abc import Iterator
from typing import Any, BinaryIO

BLOCK = 1 << 20
# A frame is passed on whole, because its length may grow. CPython ends frames at 64 KiB.
LONGEST_FRAME = 64 << 20
_FRAME, _FRAME_HEADER = 0x95, 9
# Opcodes whose argument CPython writes between two frames where it is 64 KiB or longer: code → bytes of its length.
_LONG_ARGUMENTS = {b"X": 4, b"B": 4, b"\x8d": 8, b"\x8e": 8, b"\x96": 8}
# A list whose first item is a dict with a first key, as the protocols write it.
_FRAMED_LIST = re.compile(rb"\]\x94\(\}\x94\(")
_UNFRAMED_LIST = re.compile(rb"\](?:q.|r.{4})\(\}(?:q.|r.{4})\(", re.DOTALL)
# What stands before a trace's list: the end of another trace, or the start of the list of traces, perhaps with empty
# traces at its head, or the key of host traces, which may be one plain list. Before a list of frames, blocks or
# segments stands its own key.
_FRAMED_BEFORE = re.compile(rb"(?:[us][ea]|\]\x94\(?|host_traces\x94)\Z")
_UNFRAMED_BEFORE = re.compile(rb"(?:[us][ea]|\](?:q.|r.{4})\(?|host_traces(?:q.|r.{4}))\Z", re.DOTALL)
# An entry whose first key is a reference (``BINGET`` or ``LONG_BINGET``) and has one of these texts for the first time.
_FRAMED_ENTRY = re.compile(
    rb"(u\}\x94\((?:h.|j.{4}))\x8c.(?:alloc|free_requested|free_completed|segment_map|segment_alloc)\x94", re.DOTALL
)
_CONTEXT = 20  # bytes that these patterns may look at, before and from the list on


class Unusual(Exception):  # noqa: N818  nothing is wrong with the file
    """The pickle is not written as ``pickle.dump`` writes a snapshot: read it the plain way."""


class DivertedPickle(io.RawIOBase):
    """The bytes of a pickle with the lists of its traces replaced; ``diverted`` counts them, ``nones`` the entries that
    follow a None.

    ``file``: at the pickle's start. Raises :class:`Unusual`, from the constructor or from a read.
    """

    def __init__(self, file: BinaryIO) -> None:
        head, first = file.read(2), file.read(1)
        if len(head) < 2 or head[0] != 0x80 or not 2 <= head[1] <= 5:
            raise Unusual("no protocol from 2 to 5")
        self.diverted = self.nones = 0
        # How an entry begins that follows another one in a batch, once that is known, and how it is to begin. What
        # follows none may be alone in its batch, which APPEND ends: that takes one value.
        self._entry = self._without = b""
        self._file = file
        # Frames are optional: snapreport's recorder writes protocol 4 without.
        self._pieces = self._framed(first) if first == bytes([_FRAME]) else self._unframed(first)
        self._piece = memoryview(head)

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

    def _framed(self, data: bytes) -> Iterator[bytes]:
        """Protocols 4 and 5, some whole frames at a time. ``data``: what is read already."""
        before = b""
        while block := self._file.read(BLOCK):
            data += block
            frames, end = _whole_frames(data)
            if len(data) - end > LONGEST_FRAME:
                raise Unusual("a frame of more than 64 MiB")
            yield self._without_memo(self._with_longer_frames(data[:end], frames, before))
            before = (before + data[:end])[-_CONTEXT:]
            data = data[end:]
        yield data  # cut short: the unpickler says so

    def _with_longer_frames(self, data: bytes, frames: list[tuple[int, int]], before: bytes) -> bytes:
        places = [match.start() for match in _FRAMED_LIST.finditer(data)]
        if not places:
            return data
        made, done = bytearray(), 0
        for start, end in frames:
            body = start + _FRAME_HEADER
            lists = []
            for place in places[bisect_left(places, body) : bisect_left(places, end)]:
                # Before the first opcode of a frame stands the last one of the frame before, then the header.
                context = before + data[:start] if place == body else data[body:place]
                if _FRAMED_BEFORE.search(context, max(0, len(context) - _CONTEXT)):
                    lists.append(place)
            if lists:
                made += data[done : start + 1] + (end - body + len(lists)).to_bytes(8, "little")
                done = body
                for place in lists:
                    made += data[done:place] + b"NQ\x94"
                    done = place + 2
                self.diverted += len(lists)
        return bytes(made + data[done:])

    def _without_memo(self, data: bytes) -> bytes:
        """Whole frames with a None memoized in the place of each entry."""
        if not self._entry and self.diverted and (found := _FRAMED_ENTRY.search(data)):
            self._entry = found[1]
            self._without = b"uN\x94}" + self._entry[3:]
        if not self._entry:
            return data
        frames, _ = _whole_frames(data)
        made, done = [], 0
        for start, end in frames:
            body = start + _FRAME_HEADER
            longer = data[body:end].replace(self._entry, self._without)
            if more := len(longer) - (end - body):
                made += [data[done : start + 1], len(longer).to_bytes(8, "little"), longer]
                done = end
                self.nones += more
        return b"".join([*made, data[done:]]) if made else data

    def _unframed(self, data: bytes) -> Iterator[bytes]:
        """Protocols 2 and 3: one run of opcodes. ``data``: what is read already."""
        before = b""
        while block := self._file.read(BLOCK):
            data += block
            limit = max(0, len(data) - _CONTEXT)  # a list that begins behind it may go on in the next block
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


def _whole_frames(data: bytes) -> tuple[list[tuple[int, int]], int]:
    """((start, end) of each whole frame at the head of ``data``, end of what is whole)."""
    frames: list[tuple[int, int]] = []
    at = 0
    while at + _FRAME_HEADER <= len(data):
        if data[at] == _FRAME:
            end = at + _FRAME_HEADER + int.from_bytes(data[at + 1 : at + _FRAME_HEADER], "little")
            if end <= len(data):
                frames.append((at, end))
        else:
            width = _LONG_ARGUMENTS.get(data[at : at + 1])
            if width is None:
                raise Unusual("opcodes between frames")
            end = at + 1 + width + int.from_bytes(data[at + 1 : at + 1 + width], "little")
        if end > len(data):
            break
        at = end
    return frames, at
