"""Reads a report's HTML back into columns, from the description of the format alone.

Imports nothing of snapreport: the packer and this reader can only agree by both following the format.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Any

import brotli
import numpy as np

ALPHABET = [chr(c) for c in range(0x21, 0x7F) if chr(c) not in "\"&'<>\\`~-"]
VALUE = np.full(128, 255, dtype=np.uint8)
for _value, _char in enumerate(ALPHABET):
    VALUE[ord(_char)] = _value
RANGES = {"u8": (0, 2**8), "u16": (0, 2**16), "u32": (0, 2**32), "i32": (-(2**31), 2**31), "f64": (-(2**53), 2**53)}


class Blobs(HTMLParser):
    """Collects the text of every ``<script data-blob=NAME>``."""

    def __init__(self) -> None:
        super().__init__()
        self.text: dict[str, str] = {}
        self._name: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "script" and "data-blob" in given:
            assert given.get("type") == "application/octet-stream", "a blob must be inert"
            self._name = given["data-blob"]
            assert self._name not in self.text, f"two blobs are called {self._name}"
            self.text[self._name] = ""

    def handle_data(self, data: str) -> None:
        if self._name is not None:
            self.text[self._name] += data

    def handle_endtag(self, tag: str) -> None:
        if tag == "script":
            self._name = None


def base85(text: str) -> bytes:
    """The bytes of a blob's text, after their checksum and the number of pad bytes."""
    checksum, text = text[:8], text[8:]
    pad, digits = int(text[0]), VALUE[np.frombuffer(text[1:].encode("ascii"), dtype=np.uint8)]
    assert text[0] in "0123" and len(digits) % 5 == 0 and (digits < 85).all(), "not this base 85"
    words = digits.reshape(-1, 5).astype(np.uint64) @ np.array([85**4, 85**3, 85**2, 85, 1], dtype=np.uint64)
    assert (words < 2**32).all()
    data = words.astype(">u4").tobytes()
    data = data[: len(data) - pad]
    assert checksum == f"{zlib.crc32(data):08x}", "the checksum does not match"
    return data


def varints(data: bytes, count: int) -> np.ndarray:
    raw = np.frombuffer(data, dtype=np.uint8)
    ends = np.flatnonzero(raw < 0x80)
    assert len(ends) == count and (count == 0 or ends[-1] == len(raw) - 1), "varints do not fill their bytes"
    if not count:
        return np.zeros(0, dtype=np.uint64)
    starts = np.concatenate([[0], ends[:-1] + 1])
    place = np.arange(len(raw)) - np.repeat(starts, ends - starts + 1)
    return np.add.reduceat((raw & 0x7F).astype(np.uint64) << (7 * place).astype(np.uint64), starts)


def planes(data: bytes, count: int, width: int) -> np.ndarray:
    assert len(data) == count * width
    parts = np.frombuffer(data, dtype=np.uint8).reshape(width, count).astype(np.uint64)
    return sum((part << np.uint64(8 * i) for i, part in enumerate(parts)), np.zeros(count, dtype=np.uint64))


def column(count: int, transform: str, layout: str, data: bytes) -> np.ndarray:
    if layout == "c":
        stored = np.repeat(varints(data, 1), count)
    elif layout == "v":
        stored = varints(data, count)
    else:
        assert layout[0] == "p", f"unknown layout {layout}"
        stored = planes(data, count, int(layout[1:]))
    values = stored.astype(np.int64)
    if transform.endswith("z"):
        values = (values >> 1) ^ -(values & 1)
    for _ in range({"n": 0, "d": 1, "D": 2}[transform[0]]):
        values = np.cumsum(values)
    return values


def decompress(text: str) -> bytes:
    """The bytes that a blob's text stands for, after undoing base 85 and brotli."""
    return brotli.decompress(base85(text))


def blob(raw: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """One blob's bytes → (header, columns): int64 arrays by name, JSON values as they are."""
    length = int.from_bytes(raw[:4], "little")
    header, body = json.loads(raw[4 : 4 + length]), raw[4 + length :]
    columns: dict[str, Any] = {}
    composed, at = [], 0
    for name, dtype, count, transform, layout, nbytes in header["columns"]:
        data, at = body[at : at + nbytes], at + nbytes
        assert name not in columns, f"two columns are called {name}"
        if dtype == "json":
            assert (count, layout) == (1, "raw")
            columns[name] = json.loads(data)
        elif layout == "u":
            assert nbytes == 0 and transform == "n"
            columns[name] = None
            composed.append((name, count))
        else:
            columns[name] = column(count, transform, layout, data)
            low, high = RANGES[dtype]
            assert ((columns[name] >= low) & (columns[name] < high)).all(), f"{name} does not fit {dtype}"
    for name, count in composed:
        columns[name] = columns.pop(name + "#v")[columns.pop(name + "#i")]
        assert len(columns[name]) == count
    assert at == len(body), f"{len(body) - at} bytes belong to no column"
    return header, columns


@dataclass
class DecodedDevice:
    """A device's columns by their names without the prefix, plus the columns derived from them."""

    info: dict[str, Any]
    columns: dict[str, Any]

    def __getitem__(self, name: str) -> np.ndarray:
        return self.columns[name]

    def __contains__(self, name: str) -> bool:
        return name in self.columns

    @property
    def positions(self) -> int:
        return self.info["events"] + 1

    def lifetimes(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(alloc_event, free_requested_event, free_event) of every allocation, -1 where there is none."""
        before = self.info["ghosts"] + self.info["freed"]
        alloc = np.concatenate([np.full(before, -1), self["alloc_event"]])
        free = np.where(self["lifetime"] == 0, -1, alloc + self["lifetime"])
        stored = self["requested"]
        requested = np.where(stored == 0, -1, np.where(stored > 0, free - stored + 1, -stored - 1))
        assert (free[stored > 0] >= 0).all() and (free[stored < 0] == -1).all()
        return alloc, requested, free

    def allocated(self) -> np.ndarray:
        alloc, _, free = self.lifetimes()
        steps = np.zeros(self.positions + 1, dtype=np.int64)
        np.add.at(steps, alloc + 1, self["size"])
        np.subtract.at(steps, np.where(free >= 0, free + 1, self.positions), self["size"])
        return np.cumsum(steps[:-1])

    def reserved(self) -> np.ndarray:
        sign = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}
        steps = np.zeros(self.positions, dtype=np.int64)
        steps[0] = self.info["start_reserved"]
        signs = np.array([sign.get(a, 0) for a in self.info["actions"]], dtype=np.int64)
        if len(self["other_event"]):
            np.add.at(steps, self["other_event"] + 1, signs[self["other_action"]] * self["other_size"])
        return np.cumsum(steps)

    def addresses(self, prefix: str = "addr") -> list[int]:
        return [int(h) << 32 | int(lo) for h, lo in zip(self[prefix + "_hi"], self[prefix + "_lo"], strict=True)]


class Report:
    """A written report: ``manifest``, ``section(name)``, ``device(i)``, ``stacks()``."""

    def __init__(self, html: str) -> None:
        parser = Blobs()
        parser.feed(html)
        self.blobs = {name: text.strip() for name, text in parser.text.items()}
        self._read: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
        self.manifest: dict[str, Any] = self._blob("main")[0]["manifest"]
        assert self.manifest["format"] == 3

    def _blob(self, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
        if name not in self._read:
            self._read[name] = blob(decompress(self.blobs[name]))
        return self._read[name]

    def section(self, name: str) -> dict[str, Any]:
        return self._blob(self.manifest["sections"][name])[1]

    def device(self, index: int) -> DecodedDevice:
        info = self.manifest["devices"][index]
        prefix, columns = f"d{index}.", {}
        for name in (info["section"], f"d{index}.times"):
            if name in self.manifest["sections"]:
                columns.update({k[len(prefix) :]: v for k, v in self.section(name).items() if k.startswith(prefix)})
        return DecodedDevice(info, columns)

    def stacks(self) -> list[tuple[tuple[str, int, str], ...]]:
        """Every stack as (filename, line, name) frames, innermost first."""
        c = self.section("stacks")
        frames = [
            (c["filenames"][f], int(line), c["names"][n])
            for f, line, n in zip(c["frame_file"], c["frame_line"], c["frame_name"], strict=True)
        ]
        stacks, outer, new = [], (), iter(self.frames_of_nodes())
        for shared, length in zip(c["stack_lcp"].tolist(), c["stack_length"].tolist(), strict=True):
            grown = list(outer[:shared])
            while len(grown) < length:
                grown.append(frames[next(new)])
            outer = tuple(grown)
            stacks.append(outer[::-1])
        assert next(new, None) is None
        return stacks

    def frames_of_nodes(self) -> list[int]:
        """The frame of every node of the trie of stacks, assembled from the posting lists of all frames."""
        c = self.section("stacks")
        held: dict[int, int] = {}
        gaps, first = iter(c["posting_gap"].tolist()), 0
        for frame, (length, ahead) in enumerate(
            zip(c["posting_length"].tolist(), c["posting_first"].tolist(), strict=True)
        ):
            assert ahead == 0 or length, "a frame in no stack has no first node"
            first += ahead
            node = first
            for place in range(length):
                node += next(gaps) if place else 0
                assert node not in held, f"node {node} has two frames"
                held[node] = frame
        assert next(gaps, None) is None and sorted(held) == list(range(len(held)))
        return [held[node] for node in range(len(held))]
