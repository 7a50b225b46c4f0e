"""What stacks are named by, one at a time: the program's own line, or the model's where that line only launches it."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from itertools import pairwise
from pathlib import Path

import oracle
import table_oracle

import snapreport
from snapreport.reading.noise import NOISE, PYTHON

Frame = table_oracle.Frame
LIBRARY = ("site-packages", "dist-packages", "torch")
NODE = re.compile(r"Backward\d*(_apply_functional|::apply)\b|AccumulateGrad::apply\b")
_TOML = Path(snapreport.__file__).parent / "timeline" / "model_libraries.toml"
MODELS = [row["file"] for row in tomllib.loads(_TOML.read_text(encoding="utf-8"))["library"]]
LAUNCHED: set[oracle.Frames] = set()
"""Stacks of the snapshots replayed so far that are named by what their own line launched."""


def slashed(path: str) -> str:
    return path.replace("\\", "/")


def is_library(path: str) -> bool:
    folders = slashed(path).split("/")[:-1]
    if re.match(r"<(frozen|built-in|eval_with_key)", path):
        return True
    python = any(one == "lib" and two.startswith("python3") for one, two in pairwise(folders))
    return python or any(f in LIBRARY or f.startswith("torchinductor_") for f in folders)


def is_torch(path: str) -> bool:
    """Whether a file is PyTorch's or Python's own; no framework's is."""
    parts = slashed(path).split("/")
    standard = len(parts) > 2 and parts[-3] == "lib" and parts[-2].startswith("python3")
    return path.startswith("<") or standard or any(f == "torch" or f.startswith("torchinductor_") for f in parts[:-1])


def is_model(path: str) -> bool:
    return is_library(path) and any(re.search(pattern, slashed(path)) for pattern in MODELS)


def says(frame: Frame) -> bool:
    return bool(table_oracle.FLAGS[frame] & PYTHON and not table_oracle.FLAGS[frame] & NOISE)


@cache
def split(stack: oracle.Frames) -> tuple[list[Frame], Frame | None]:
    """(Python's frames inside the program's own innermost line, innermost first; that line)."""
    table_oracle.learn(set(stack))
    inside = []
    for frame in filter(says, stack):
        if not is_library(frame[0]):
            return inside, frame
        inside.append(frame)
    return inside, None


def learn(devices: dict[int, oracle.Device]) -> None:
    """Finds which stacks of a snapshot are launched, by the bytes that all of its devices allocate."""
    weight: dict[oracle.Frames, int] = {}
    for device in devices.values():
        for event in device.events:
            stack = oracle.frames_of(event)
            weight[stack] = weight.get(stack, 0) + (event["size"] if event["action"] == "alloc" else 0)
        for block in device.blocks:
            weight[block["stack"]] = weight.get(block["stack"], 0) + block["requested"]
    own = {stack: split(stack) for stack in weight if split(stack)[1]}
    total = sum(weight[stack] for stack in own)
    lines: dict[Frame, int] = {}
    through: dict[Frame, int] = {}
    for stack, (_, line) in own.items():
        lines[line] = lines.get(line, 0) + weight[stack]
        for frame in set(stack):
            through[frame] = through.get(frame, 0) + weight[stack]
    runs_model = {stack for stack, (inside, _) in own.items() if any(is_model(frame[0]) for frame in inside)}
    modules = {stack for stack in own if any(says(f) and f[2] == "forward" and not is_library(f[0]) for f in stack)}
    launches = {own[stack][1] for stack in runs_model if lines[own[stack][1]] >= 0.9 * total}
    if total and sum(weight[stack] for stack in runs_model - modules) >= 0.5 * total:
        launches |= {own[stack][1] for stack in runs_model - modules}
    for inside, line in own.values():
        if inside and not is_torch(inside[-1][0]) and through[line] >= 0.9 * total:
            launches.add(line)
    LAUNCHED.update(stack for stack, (inside, line) in own.items() if inside and line in launches)


def named_frame(stack: oracle.Frames) -> Frame | None:
    """The program's own line unless it only launches, else a model's, else Python's, else an autograd node's, else any
    that is not noise, else any.
    """
    inside, line = split(stack)
    if line and stack not in LAUNCHED:
        return line
    for frame in [*(f for f in inside if is_model(f[0])), *inside]:
        return frame
    for wanted in (lambda f: NODE.search(f[2]), lambda f: not table_oracle.FLAGS[f] & NOISE, lambda f: True):
        for frame in stack:
            if wanted(frame):
                return frame
    return None
