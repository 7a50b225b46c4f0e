"""Generated runs with a planted cause, and the same runs without it."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import corpus
import generator

import snapreport
from snapreport.snapshot import Snapshot


@functools.cache
def path_of(preset: str, **changes: Any) -> Path:
    """The file of a preset with changes, made once."""
    name = "-".join([preset, *(f"{key}={value}" for key, value in sorted(changes.items()))])
    path = corpus.scratch() / f"planted-{name}.pickle"
    path.write_bytes(pickle.dumps(generator.make(preset, **changes), 2))
    return path


def planted(preset: str, **changes: Any) -> Snapshot:
    """A preset's snapshot with changes."""
    return snapreport.load(path_of(preset, **changes))


def rewritten(path: Path, name: str, change: Callable[[dict[str, Any]], None]) -> Path:
    """A copy of a snapshot in which ``change`` was called on every frame."""
    content = corpus.raw(path)
    seen: set[int] = set()

    def visit(frames: list[dict[str, Any]]) -> None:
        for frame in frames:
            if id(frame) not in seen:
                seen.add(id(frame))
                change(frame)

    copied = pickle.loads(pickle.dumps(content))
    for trace in copied["device_traces"]:
        for event in trace:
            visit(event.get("frames", []))
    for segment in copied["segments"]:
        visit(segment.get("frames", []))
        for block in segment["blocks"]:
            visit(block.get("frames", []))
    out = corpus.scratch() / name
    out.write_bytes(pickle.dumps(copied, 2))
    return out


def frames_text(snapshot: Snapshot, stack: int | None) -> str:
    """All frames of a stack as one text, innermost first."""
    recording = snapshot.recording
    rows = (
        recording.frames[recording.stack(stack)].select("name", "filename", "line").rows() if stack is not None else []
    )
    return "\n".join(f"{name} {filename}:{line}" for name, filename, line in rows)
