"""Hostile files, by number: the same number gives the same file for the same inputs.

Bases are small: generated snapshots, and real and recorded ones cut to some 80 events, where there are any. A case
changes one of them as an object (any value, key or entry replaced, removed, repeated, moved) or as a pickle (bytes
flipped, spliced, removed), cuts it at a boundary, or inserts values that multiply when they are hashed; in any
container, before or after it is compressed.
"""

from __future__ import annotations

import bz2
import copy
import gzip
import io
import lzma
import pickle
import pickletools
import random
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from benchmarks.inputs import REAL

RECORDED = REAL.parent / "recorded"
EVENTS, SEGMENTS, BLOCKS, FRAMES = 80, 12, 20, 12
# Of a hundred cases. Values that multiply take seconds each, until they are ended; whole real files take a second.
KINDS = {"object": 46.0, "bytes": 22.0, "packed bytes": 12.0, "cut": 18.0, "whole file": 1.9, "keys": 0.1}
CONTAINERS = ("plain", "gzip", "xz", "bzip2", "zstd", "zip", "gzip of zip")
SAMPLES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("small", {"events": 60}),
    ("expandable", {"events": 80}),
    ("multi-gpu", {"devices": 2, "steps": 1, "layers": 1, "hidden": 64, "heads": 2, "sequence": 64}),
    ("pools", {"events": 80}),
    ("pinned", {"steps": 1, "layers": 1, "hidden": 64, "heads": 2}),
    ("compiled", {"events": 80}),
    ("small", {"events": 60, "layout": "2.1"}),
    ("fragmentation", {"steps": 1, "layers": 1, "hidden": 64, "heads": 2, "sequence": 64}),
)


@dataclass(frozen=True)
class Case:
    """``kind``, ``container``: of ``KINDS``, ``CONTAINERS``. ``whole``: the pickle before it was cut, else empty."""

    kind: str
    container: str
    content: bytes
    whole: bytes = b""


class Cases:
    """Files by number, starting from ``seed``."""

    def __init__(self, seed: int = 0, *, real: bool = True) -> None:
        self._seed = seed
        self._bases = [*_generated(), *(_cut_files() if real else [])]
        self._whole = [p.read_bytes() for p in _small_files()] if real else []
        self._boundaries: dict[tuple[int, int], list[int]] = {}

    def case(self, number: int) -> Case:
        rng = random.Random(f"{self._seed}:{number}")
        kind = rng.choices(list(KINDS), list(KINDS.values()))[0]
        container = rng.choice(CONTAINERS)
        if kind == "whole file" and self._whole:
            return self._of_whole_file(rng)
        index = rng.randrange(len(self._bases))
        protocol = rng.randint(2, 5)
        if kind == "keys":
            return Case(kind, container, packed(with_key(self._bases[index], rng), container))
        if kind == "object":
            return Case(kind, container, packed(_mutated_object(self._bases[index], protocol, rng), container))
        whole = pickle.dumps(self._bases[index], protocol)
        if kind == "cut":
            return self._cut(index, protocol, whole, container, rng)
        if kind == "bytes":
            return Case(kind, container, packed(mutated_bytes(whole, rng), container))
        return Case("packed bytes", container, mutated_bytes(packed(whole, container), rng))

    def _cut(self, index: int, protocol: int, whole: bytes, container: str, rng: random.Random) -> Case:
        """Cuts at a boundary between two opcodes, or a compressed file at any byte."""
        if rng.random() < 0.5:
            key = index, protocol
            if key not in self._boundaries:
                self._boundaries[key] = [at for _, _, at in pickletools.genops(whole) if at]
            return Case("cut", container, packed(whole[: rng.choice(self._boundaries[key])], container), whole)
        file = packed(whole, container)
        return Case("cut", container, file[: rng.randrange(1, len(file))], whole)

    def _of_whole_file(self, rng: random.Random) -> Case:
        content = rng.choice(self._whole)
        if rng.random() < 0.3:
            return Case("whole file", "plain", content[: rng.randrange(1, len(content))], content)
        return Case("whole file", "plain", mutated_bytes(content, rng))


def packed(content: bytes, container: str) -> bytes:
    return _PACK[container](content)


def _zip(content: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, text in (("archive/data.pkl", content), ("archive/version", b"3\n")):
            archive.writestr(zipfile.ZipInfo(name), text)  # from 1980: equal cases are equal files
    return file.getvalue()


def _zstd(content: bytes) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor().compress(content)


_PACK: dict[str, Callable[[bytes], bytes]] = {
    "plain": lambda content: content,
    "gzip": lambda content: gzip.compress(content, 1, mtime=0),
    "xz": lambda content: lzma.compress(content, preset=0),
    "bzip2": lambda content: bz2.compress(content, 1),
    "zstd": _zstd,
    "zip": _zip,
    "gzip of zip": lambda content: gzip.compress(_zip(content), 1, mtime=0),
}


@lru_cache(maxsize=1)
def _generated() -> list[Any]:
    from generator.build import make

    return [_cut(make(preset, **options)) for preset, options in SAMPLES]


@lru_cache(maxsize=1)
def _cut_files() -> list[Any]:
    from snapreport.reading.safe_pickle import RestrictedUnpickler

    paths = [*_small_files(), *sorted(RECORDED.glob("*.pickle"))[::8][:12]]
    texts = (path.read_bytes() for path in paths if path.stat().st_size < 30 << 20)
    return [_cut(RestrictedUnpickler(io.BytesIO(text)).load()) for text in texts]


def _small_files() -> list[Path]:
    return [path for path in sorted(REAL.glob("*.pickle")) if path.stat().st_size < 3 << 20]


def _cut(raw: Any) -> Any:
    """A snapshot with the last events, the first segments and the innermost frames, without shared objects."""
    raw = {"segments": raw} if isinstance(raw, list) else dict(raw)
    for key in ("device_traces", "host_traces"):
        traces = raw.get(key) or []
        plain = bool(traces) and isinstance(traces[0], dict)
        if key in raw:
            raw[key] = traces[-EVENTS:] if plain else [trace[-EVENTS:] for trace in traces[:4]]
    for key in ("segments", "host_segments"):
        if key in raw:
            raw[key] = [{**s, "blocks": s["blocks"][:BLOCKS]} for s in raw[key][:SEGMENTS]]
    if "external_annotations" in raw:
        raw["external_annotations"] = raw["external_annotations"][:10]
    return _with_few_frames(raw)


def _with_few_frames(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: [dict(f) if isinstance(f, dict) else f for f in item[:FRAMES]]
            if key == "frames" and isinstance(item, list)
            else _with_few_frames(item)
            for key, item in value.items()
        }
    return [_with_few_frames(item) for item in value[:200]] if isinstance(value, list) else value


def _doubled(kind: type, times: int) -> Any:
    value: Any = kind((0, 0))
    for _ in range(times):
        value = kind((value, value))
    return value


def _nested(kind: type, depth: int) -> Any:
    value: Any = kind()
    for _ in range(depth):
        value = kind((value,))
    return value


def _in_itself() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


_VALUES: tuple[Callable[[random.Random], Any], ...] = (
    lambda rng: rng.choice(
        (0, 1, -1, 2**31, 2**32 - 1, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63))
    ),
    lambda rng: rng.choice((float("nan"), float("inf"), -0.0, 1e308, 0.5, True, None)),
    lambda rng: 10 ** rng.choice((20, 400, 3000)),
    lambda rng: rng.choice(("", "\0", "\ud800", "x" * 5000, "\x1b[2J", "</script>", "__proto__", "\u202e", "alloc")),
    lambda rng: rng.choice((b"", b"\xff" * 100, bytearray(b"abc"), set(), frozenset({1}), (), [], {})),
    lambda rng: _doubled(rng.choice((tuple, list)), rng.choice((3, 60))),
    lambda rng: _nested(rng.choice((tuple, list)), rng.choice((10, 400))),
    lambda rng: _in_itself(),
    lambda rng: [{"filename": "a.py", "line": 1, "name": "f"}] * rng.choice((1, 3, 2000)),
    lambda rng: {
        "action": "alloc",
        "addr": rng.getrandbits(40),
        "size": rng.getrandbits(20),
        "stream": 0,
        "time_us": 1,
    },
)


def _mutated_object(base: Any, protocol: int, rng: random.Random) -> bytes:
    changed = copy.deepcopy(base)
    for _ in range(rng.choice((1, 1, 2, 4))):
        _change(_somewhere(changed, rng), rng)
    return pickle.dumps(changed, protocol)


def _somewhere(value: Any, rng: random.Random) -> Any:
    """A list or dict of the snapshot that is not empty, found by a walk that may stop anywhere."""
    for _ in range(12):
        inside = [
            v for v in (value.values() if isinstance(value, dict) else value) if isinstance(v, (dict, list)) and v
        ]
        if not inside or rng.random() < 0.15:
            break
        value = rng.choice(inside)
    return value


def _change(place: Any, rng: random.Random) -> None:
    keys = list(place) if isinstance(place, dict) else range(len(place))
    if not keys:
        return
    key, other = rng.choice(keys), rng.choice(keys)
    how = rng.randrange(9)
    if how == 0:
        place[key] = rng.choice(_VALUES)(rng)
    elif how == 1:
        del place[key]
    elif how == 2:
        place[key], place[other] = place[other], place[key]
    elif how == 3:
        place[key] = place[other]
    elif how == 4 and isinstance(place, list):
        place.insert(key, rng.choice(_VALUES)(rng))
    elif how == 4:
        place[rng.choice(("size", "addr", "frames", "action", "x", 7, None, (1, 2)))] = rng.choice(_VALUES)(rng)
    elif how == 5 and isinstance(place, list):
        place[key:key] = place[min(key, other) : max(key, other) + 1] * rng.choice((1, 2, 20))
    elif how == 6 and isinstance(place, list):
        del place[min(key, other) : max(key, other)]
    elif how == 7 and isinstance(place, list):
        rng.shuffle(place)
    elif type(place[key]) is int:
        place[key] = rng.choice(
            (place[key] + 1, place[key] - 1, -place[key], 2 * place[key], place[key] ^ 1 << rng.randrange(64))
        )
    else:
        place[key] = rng.choice(_VALUES)(rng)


def mutated_bytes(content: bytes, rng: random.Random) -> bytes:
    """Bits flipped, or bytes replaced, removed, repeated or moved in from elsewhere, one to eight times."""
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 3, 8))):
        at, length = rng.randrange(len(changed)), rng.choice((1, 1, 2, 4, 16, 300))
        how = rng.randrange(6)
        if how == 0:
            changed[at] ^= 1 << rng.randrange(8)
        elif how == 1:
            changed[at] = rng.randrange(256)
        elif how == 2 and len(changed) > length + 16:
            del changed[at : at + length]
        elif how == 3:
            changed[at:at] = changed[at : at + length] * rng.choice((1, 2, 50))
        elif how == 4:
            start = rng.randrange(len(changed))
            changed[at : at + length] = changed[start : start + length]
        else:
            changed[at : at + length] = rng.randbytes(length)
    return bytes(changed)


def with_key(base: Any, rng: random.Random) -> bytes:
    """A snapshot with one value replaced by a dict or set whose member takes 2**60 steps to hash or compare."""
    marker = "\ue000here"
    changed = copy.deepcopy(base)
    place = _somewhere(changed, rng)
    place[rng.choice(list(place) if isinstance(place, dict) else range(len(place)))] = marker
    text = marker.encode()
    whole = pickle.dumps(changed, 3)
    return whole.replace(b"X" + len(text).to_bytes(4, "little") + text, hostile_opcodes(rng.randrange(3)))


def hostile_opcodes(which: int, times: int = 60, first: int = 1 << 20) -> bytes:
    """Opcodes for a dict with one such key, a dict with two equal ones, or a set. ``first``: a free memo index."""

    def key(base: int) -> bytes:
        opcodes = b"K\x00K\x00\x86"
        for n in range(base, base + times):
            place = n.to_bytes(4, "little")
            opcodes += b"r" + place + b"j" + place + b"\x86"
        return opcodes

    if which == 2:
        return b"\x8f(" + key(first) + b"\x90"
    return b"}" + key(first) + b"K\x01s" + (key(first + times) + b"K\x01s" if which else b"")
