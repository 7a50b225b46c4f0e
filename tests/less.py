"""Recordings that show less, made from others: what a ring buffer dropped, cut short, without some frames or times, or
larger.

Of what they leave out an advice can promise less, or nothing; what it promises beyond the whole recording comes of a
rule that takes what it does not see for something else. tests/recordings/less.txt lists those in which conditions of
findings and timeline decide that do so in no whole recording (``python -m benchmarks.conditions``), with what is said
of each and checksums of its numbers; tests/answers.py writes them anew.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import corpus
import cut_short

Raw = dict[str, Any]
_SIZES = ("address", "addr", "size", "total_size", "allocated_size", "active_size", "requested_size", "device_free")


def last(share: float, raw: Raw) -> Raw:
    """The trace of a ring buffer that has room for so many of the events."""
    raw["device_traces"] = [trace[int(len(trace) * (1 - share)) :] for trace in raw["device_traces"]]
    return raw


def with_frames(of_python: bool, raw: Raw) -> Raw:
    """With Python's frames alone, or with those of C++."""
    for one in _with_stacks(raw):
        one["frames"] = [frame for frame in one["frames"] if frame["filename"].endswith((".py", ">")) is of_python]
    return raw


def without_times(raw: Raw) -> Raw:
    """As PyTorch 2.1 and older wrote them."""
    for event in _events(raw):
        event.pop("time_us", None)
    raw.pop("external_annotations", None)
    return raw


def without_stacks_of_frees(raw: Raw) -> Raw:
    """As ``context="alloc"`` records them."""
    for event in _events(raw):
        if event["action"].startswith("free"):
            event["frames"] = []
    return raw


def in_library(raw: Raw) -> Raw:
    """The program's own files are those of an installed package."""
    for one in _with_stacks(raw):
        one["frames"] = [
            {**frame, "filename": f"/env/lib/python3.11/site-packages/own/{Path(frame['filename']).name}"}
            if frame["filename"].endswith(".py") and "torch/" not in frame["filename"]
            else frame
            for frame in one["frames"]
        ]
    return raw


def larger(times: int, raw: Raw) -> Raw:
    """The same program with tensors that are so many times as large."""
    blocks = [block for segment in raw["segments"] for block in segment["blocks"]]
    for one in (*raw["segments"], *blocks, *_events(raw)):
        one |= {name: one[name] * times for name in _SIZES if isinstance(one.get(name), int)}
    return raw


WAYS: dict[str, Callable[[Raw], Raw]] = {
    "last 70%": partial(last, 0.7),
    "last 40%": partial(last, 0.4),
    "last 15%": partial(last, 0.15),
    "first 80%": partial(cut_short.first, 0.8),
    "first 50%": partial(cut_short.first, 0.5),
    "out of memory": cut_short.out_of_memory,
    "Python frames": partial(with_frames, True),
    "C++ frames": partial(with_frames, False),
    "no times": without_times,
    "no stacks of frees": without_stacks_of_frees,
    "in a library": in_library,
    "8 times": partial(larger, 8),
    "64 times": partial(larger, 64),
}


def made(path: Path, way: str) -> Path:
    """A file of this run with the recording at ``path`` changed in one of the ``WAYS``."""
    into = corpus.scratch() / f"{path.parent.name}-{path.name.partition('.pickle')[0]}-{way.replace('%', '')}.pickle"
    if not into.exists():
        into.write_bytes(pickle.dumps(WAYS[way](deepcopy(corpus.raw(path))), 4))
    return into


def _events(raw: Raw) -> list[Raw]:
    return [event for trace in raw["device_traces"] for event in trace]


def _with_stacks(raw: Raw) -> list[Raw]:
    blocks = [block for segment in raw["segments"] for block in segment["blocks"]]
    return [one for one in (*raw["segments"], *blocks, *_events(raw)) if "frames" in one]
