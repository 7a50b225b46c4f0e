"""The frame that names a stack: the program's allocating line, and its text.

A stack is named after the program's own innermost line. If that line only launches (``trainer.train()`` of a framework,
``generate()``, or one call of a library's model), nearly every stack would have the same name; then the name is the
innermost line of the model's code, and the program's line follows as "from". The libraries that contain models are
data, ``model_libraries.toml``; launching lines are recognised from the trace.
"""

from __future__ import annotations

import functools
import itertools
import tomllib
from importlib import resources

import numpy as np
import polars as pl
from msgspec import Struct

from snapreport.memoize import memoize
from snapreport.reading.fields import numbering
from snapreport.reading.noise import NOISE, PYTHON, recorded_flags
from snapreport.reading.recording import Recording
from snapreport.reading.stack_marks import frames_at, innermost_frames, innermost_places
from snapreport.timeline.frame_search import files_of

# Code that the reader did not write and cannot change: installed packages, PyTorch itself and its generated code,
# Python's standard library.
LIBRARY = r"(^|/)((site|dist)-packages|torch|torchinductor_[^/]*|lib/python3[^/]*)/|^<(frozen|built-in|eval_with_key)"
_TORCH = r"(^|/)(torch|torchinductor_[^/]*)/|^<|(^|/)lib/python3[^/]*/[^/]*\.py$"
# In a stack without Python (backward runs on the engine's threads) the autograd node is more informative than the
# kernel in it.
_NODE = r"(?-u)Backward\d*(_apply_functional|::apply)\b|AccumulateGrad::apply\b"
LAUNCHED_FROM = " from "
_MOST_SHARE = 0.5
_ALMOST_ALL_SHARE = 0.9


class StackNames(Struct, frozen=True):
    """The frame that names each stack, as Int64 columns with a value per stack.

    frame: row of ``Recording.frames``, -1 for the empty stack. launcher: row of the program's own line that launched
    the named frame, -1 if the name is the program's own or the stack has none. place, launcher_place: their positions
    in the stack, 0 innermost, -1 for none.
    """

    frame: np.ndarray
    launcher: np.ndarray
    place: np.ndarray
    launcher_place: np.ndarray


@memoize
def in_library(recording: Recording) -> np.ndarray:
    """Bool per row of ``frames``: whether its file is a library's."""
    return files_of(recording).str.contains(LIBRARY).to_numpy()


@memoize
def stack_names(recording: Recording) -> StackNames:
    """The frame that names each stack of a recording."""
    flat, offsets = recording.stack_frames, recording.stack_offsets
    stacks = len(offsets) - 1
    nothing = np.full(stacks, -1, np.int64)
    if not len(flat):
        return StackNames(nothing, nothing, nothing, nothing)
    flags, library, model, torch = _kinds(recording)
    quiet, python = flags & NOISE == 0, flags & PYTHON != 0
    says = quiet & python
    own = innermost_places(recording, says & ~library)
    within = innermost_places(recording, says & library & model)
    inner = innermost_places(recording, says & library)
    node = recording.frames["name"].str.contains(_NODE).to_numpy()
    rest = [inner, *(innermost_places(recording, kind) for kind in (node, quiet, np.ones(len(quiet), bool)))]
    launched = _launched(recording, own, inner, within, says, torch)
    # Even without a line of the program, a model's code is more informative than the functions it calls.
    place = np.where(launched | (own < 0), -1, own)
    for other in (within, *rest):
        place = np.where(place < 0, other, place)
    launcher = np.where(launched, own, -1)
    return StackNames(frames_at(recording, place), frames_at(recording, launcher), place, launcher)


def own_frames(recording: Recording) -> np.ndarray:
    """Int64 row of ``frames`` that names each stack, -1 for an empty one."""
    return stack_names(recording).frame


@memoize
def own_functions(recording: Recording) -> pl.Series:
    """String per stack: "function file.py" of the frame that names it, "" for an empty stack. Has no line numbers,
    since they change.
    """
    return _of_stacks(frame_functions(recording), own_frames(recording)).alias("function")


@memoize
def own_places(recording: Recording) -> pl.Series:
    """String per stack: "function file.py:12" of the frame that names it; "" for an empty stack."""
    return _of_stacks(frame_lines(recording), own_frames(recording)).alias("place")


@memoize
def launched_from(recording: Recording) -> pl.Series:
    """String per stack: " from train.py:42" if that line only launched the frame that names it, else ""."""
    files = recording.frames.select(t=pl.concat_str([_base_name(), pl.lit(":"), pl.col("line")]))["t"]
    callers = _of_stacks(files, stack_names(recording).launcher)
    text = pl.select(pl.when(callers == "").then(callers).otherwise(pl.concat_str([pl.lit(LAUNCHED_FROM), callers])))
    return text.to_series().alias("launched_from")


@memoize
def own_code(recording: Recording) -> np.ndarray:
    """Bool per frame: whether it is Python's and the program's own, neither a library's nor runtime noise."""
    flags = recorded_flags(recording)
    own: np.ndarray = (flags & PYTHON != 0) & (flags & NOISE == 0) & ~in_library(recording)
    return own


@memoize
def python_calls(recording: Recording) -> np.ndarray:
    """Int64 per stack: the number of its Python frames, without runtime noise, as a whole; equal where these are."""
    flags = recorded_flags(recording)
    said = (flags & PYTHON != 0) & (flags & NOISE == 0)
    if said.all():
        return np.arange(len(recording.stack_offsets) - 1)
    wanted = said[recording.stack_frames]
    flat = recording.stack_frames[wanted]
    bounds = np.concatenate(([0], np.cumsum(wanted)))[recording.stack_offsets] * flat.itemsize
    raw = flat.tobytes()
    number: dict[bytes, int] = numbering()
    return np.fromiter((number[raw[a:b]] for a, b in itertools.pairwise(bounds.tolist())), np.int64)


def frame_line(recording: Recording, frame: int) -> str:
    """``forward dit.py:83`` of a row of ``frames``."""
    return str(frame_lines(recording)[frame])


@memoize
def frame_functions(recording: Recording) -> pl.Series:
    """String per frame: "function file.py"; C++ functions only by name, without arguments and return type."""
    python = pl.Series(recorded_flags(recording) & PYTHON != 0)
    plain = (
        pl.col("name")
        .str.replace_all("(anonymous namespace)::", "", literal=True)
        .str.replace(r"[(<].*$", "")
        .str.split(" ")
        .list.last()
    )
    native = pl.when(plain == "").then(pl.col("name")).otherwise(plain)
    spoken = pl.concat_str([pl.col("name"), _base_name()], separator=" ")
    return recording.frames.select(n=pl.when(python).then(spoken).otherwise(native))["n"]


@memoize
def frame_lines(recording: Recording) -> pl.Series:
    """String per frame: "function file.py:12" if a Python line is known."""
    python = pl.Series(recorded_flags(recording) & PYTHON != 0)
    function = pl.lit(frame_functions(recording))
    with_line = pl.concat_str([function, pl.lit(":"), pl.col("line")])
    return recording.frames.select(n=pl.when(python & (pl.col("line") > 0)).then(with_line).otherwise(function))["n"]


def _launched(
    recording: Recording, own: np.ndarray, inner: np.ndarray, within: np.ndarray, says: np.ndarray, torch: np.ndarray
) -> np.ndarray:
    """Bool per stack: whether the program's innermost line only launches the code that allocates.

    A line outside the program's own modules launches if a library's model runs inside it and most bytes come from such
    lines; a line of a module's ``forward`` if nearly all do, as in a wrapper around one model. So does a line that
    nearly all bytes pass through and that calls a framework. Other library code that such a line calls is also
    launched: the framework's optimizer step.
    """
    weight = _bytes_of_stacks(recording) * (own >= 0)
    total, line = weight.sum(), frames_at(recording, own)
    calls = (inner >= 0) & (inner < own)
    if not total or not calls.any():
        return np.zeros(len(own), bool)
    has_model = (within >= 0) & (within < own)
    frames = len(recording.frames)
    launches = np.zeros(frames, bool)
    of_line = np.bincount(np.maximum(line, 0), weights=weight * (line >= 0), minlength=frames)
    launches[line[has_model & (of_line[line] >= _ALMOST_ALL_SHARE * total)]] = True
    is_forward = (recording.frames["name"] == "forward").to_numpy() & says & ~in_library(recording)
    outside = has_model & (innermost_places(recording, is_forward) < 0)
    if weight[outside].sum() >= _MOST_SHARE * total:
        launches[line[outside]] = True
    # Lines that nearly all bytes pass through, at any depth.
    each = innermost_frames(recording)
    stack = np.repeat(np.arange(len(own)), np.diff(each.offsets))
    pairs = np.unique(stack * frames + each.frames)
    through = np.bincount(pairs % frames, weights=weight[pairs // frames], minlength=frames)
    framework = calls & ~torch[_called_by(recording, np.where(calls, own, -1), says)]
    launches[line[framework & (through[line] >= _ALMOST_ALL_SHARE * total)]] = True
    result: np.ndarray = calls & launches[line]
    return result


def _called_by(recording: Recording, own: np.ndarray, says: np.ndarray) -> np.ndarray:
    """Int64 row per stack of the outermost frame that says something inside the one at position ``own``, which has
    such frames inside; any row where that is -1.
    """
    place, stack = own.copy(), np.flatnonzero(own >= 0)
    while len(stack):
        place[stack] -= 1
        stack = stack[~says[recording.stack_frames[recording.stack_offsets[stack] + place[stack]]]]
    return frames_at(recording, place)


def _bytes_of_stacks(recording: Recording) -> np.ndarray:
    """Float64 per stack: the bytes of its recorded allocations and of its blocks in the final state."""
    result = np.zeros(len(recording.stack_offsets) - 1)
    for record in recording.devices.values():
        born = record.events.filter(pl.col("action") == "alloc")
        for table, size in ((born, "size"), (record.blocks, "requested_size")):
            if len(table):
                result += np.bincount(table["stack"].to_numpy(), weights=table[size].to_numpy(), minlength=len(result))
    return result


def _kinds(recording: Recording) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(flags, is a library's, is a model's code, is PyTorch's or Python's own) for each frame."""
    path = files_of(recording)
    return (
        recorded_flags(recording),
        in_library(recording),
        path.str.contains(_model_files()).to_numpy(),
        path.str.contains(_TORCH).to_numpy(),
    )


@functools.cache
def _model_files() -> str:
    text = resources.files("snapreport.timeline").joinpath("model_libraries.toml").read_text(encoding="utf-8")
    return "|".join(f"(?:{library['file']})" for library in tomllib.loads(text)["library"])


def _of_stacks(texts: pl.Series, frame: np.ndarray) -> pl.Series:
    rows = pl.Series(frame)
    return texts.gather(rows.set(rows < 0, None)).fill_null("")


def _base_name() -> pl.Expr:
    return pl.col("filename").str.replace_all("\\", "/", literal=True).str.split("/").list.last()
