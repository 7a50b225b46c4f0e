"""Which frame of a stack is the reader's own code, and which function a stack is named by."""

from __future__ import annotations

import numpy as np
import polars as pl

from snapreport.once import once
from snapreport.reading.noise import NOISE, PYTHON, recorded_flags
from snapreport.reading.recording import Recording

# Code that the reader did not write and cannot change: installed packages, PyTorch itself and what its compiler wrote,
# Python's library.
LIBRARY = r"(^|/)((site|dist)-packages|torch|torchinductor_[^/]*|lib/python3[^/]*)/|^<(frozen|built-in|eval_with_key)"
# In a stack without Python (backward runs on the engine's threads) the autograd node says more than the kernel in it.
_NODE = r"Backward\d*(_apply_functional|::apply)\b|AccumulateGrad::apply\b"


def is_library(frames: pl.DataFrame) -> pl.Series:
    """Boolean per row of ``frames``: whether its file is a library's."""
    return frames["filename"].str.replace_all("\\", "/", literal=True).str.contains(LIBRARY)


@once
def own_frames(recording: Recording) -> np.ndarray:
    """Int64 row of ``frames`` that names each stack, -1 for an empty one.

    The innermost Python frame outside of libraries; without one the innermost Python frame that is not runtime noise;
    else an autograd node; else the innermost that is not noise; else the innermost.
    """
    frames, flat, offsets = recording.frames, recording.stack_frames, recording.stack_offsets
    flags = recorded_flags(recording)
    library = is_library(frames).to_numpy()
    quiet = flags & NOISE == 0
    python = flags & PYTHON != 0
    node = frames["name"].str.contains(_NODE).to_numpy()
    rank = np.select([quiet & python & ~library, quiet & python, node, quiet], [0, 1, 2, 3], 4).astype(np.int64)
    stacks = len(offsets) - 1
    lengths = np.diff(offsets)
    if not len(flat):
        return np.full(stacks, -1, np.int64)
    # The best frame of a stack is its least (rank, place): one number per frame, the least of each stretch.
    place = np.arange(len(flat)) - np.repeat(offsets[:-1], lengths)
    order = rank[flat] * (int(lengths.max()) + 1) + place
    named = np.flatnonzero(lengths)
    best = np.full(stacks, -1, np.int64)
    least = np.minimum.reduceat(order, offsets[:-1][named])
    best[named] = flat[offsets[:-1][named] + least % (int(lengths.max()) + 1)]
    return best


@once
def own_functions(recording: Recording) -> pl.Series:
    """String per stack: "function file.py" of the frame that names it, "" for an empty stack. Lines are left out: they
    move.

    C++ functions go by their name alone, without arguments and what they return.
    """
    python = pl.Series(recorded_flags(recording) & PYTHON != 0)
    file = pl.col("filename").str.replace_all("\\", "/", literal=True).str.split("/").list.last()
    plain = (
        pl.col("name")
        .str.replace_all("(anonymous namespace)::", "", literal=True)
        .str.replace(r"[(<].*$", "")
        .str.split(" ")
        .list.last()
    )
    native = pl.when(plain == "").then(pl.col("name")).otherwise(plain)
    names = recording.frames.select(
        n=pl.when(python).then(pl.concat_str([pl.col("name"), file], separator=" ")).otherwise(native)
    )["n"]
    best = pl.Series(own_frames(recording))
    return names.gather(best.set(best < 0, None)).fill_null("").alias("function")
