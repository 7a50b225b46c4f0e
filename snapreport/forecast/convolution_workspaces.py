"""Workspaces of convolutions: cuDNN chooses an algorithm for each shape, and with it the bytes of its workspace.

So a workspace need not follow the batch. One convolution's was 517 KiB for each image at batch 8 and 1,026 KiB from 16
on (H200, PyTorch 2.11). Within an algorithm it has a constant part, such as a copy of the weights, and one that grows
with the images.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from snapreport.allocator.trace import ALLOC, FREE, Trace
from snapreport.forecast.size_laws import UNKNOWN, SizeLaws
from snapreport.memoize import memoize
from snapreport.reading.recording import Recording
from snapreport.reading.stack_marks import stacks_with

FACTORS = (0.5, 2.0)
"""Of what is foretold of a workspace, at least and at most. 6,537 workspaces of eleven programs at other batches and
sides were 0.31 to 2.9 times what was foretold, 99.6% of them within half and twice, 5% almost twice (H200); 747 more
could not be aligned with what ran, as those that shrink."""
_CONVOLUTION = r"(?i)convolution|\bconv\w*[123]d"
_MODULE = r"(?:^|/)torch/nn/modules/conv\.py$"


def workspaces(trace: Trace) -> np.ndarray:
    """Boolean by allocation: freed at once, in a convolution; or in autograd's threads without a stack, where the
    program has convolutions.
    """
    is_convolution = _convolutions(trace.timeline.recording)
    found = np.zeros(len(trace.size), bool)
    if is_convolution.any():
        at_once = (trace.kind[:-1] == ALLOC) & (trace.kind[1:] == FREE) & (trace.item[:-1] == trace.item[1:])
        found[trace.item[:-1][at_once]] = True
        found &= is_convolution[trace.timeline.allocations["stack"].to_numpy()]
    return found


@memoize
def _convolutions(recording: Recording) -> np.ndarray:
    """Boolean per stack: whether it runs a convolution; an empty stack may, if another one does."""
    file = pl.col("filename").str.replace_all("\\", "/", literal=True)
    is_convolution = pl.col("name").str.contains(_CONVOLUTION) | file.str.contains(_MODULE)
    runs = recording.frames.select(runs=is_convolution)["runs"].to_numpy()
    offsets = recording.stack_offsets
    found = stacks_with(recording, runs)
    return found | (offsets[1:] == offsets[:-1]) if found.any() else found


def fit_workspaces(laws: SizeLaws, values: np.ndarray, sizes: np.ndarray, own: int, mask: np.ndarray) -> np.ndarray:
    """Gives workspaces the law of one algorithm, in place, and returns which they are: those of ``mask`` whose size is
    not the same at all values, nor proportional to the value or its square, as that of tensors and other kernels is.

    values, sizes, own: as in ``size_laws``. The recording and the one nearest to it have one algorithm if the line
    through their sizes does not fall and is not below 0 at 0; else the size is proportional. On a side of an image, of
    which most of the other sizes follow the square, so do the workspaces.
    """
    is_plain = (laws.kind != UNKNOWN) & ((laws.coefficients != 0).sum(axis=1) <= 1)
    found: np.ndarray = mask & ~is_plain
    rows = np.flatnonzero(found & (laws.kind != UNKNOWN))
    linear, square = np.abs(laws.coefficients[~mask, 1:]).sum(axis=0)
    power = 2 if square * values[own] > linear else 1
    x = values**power
    distance = np.where(sizes[:, rows] >= 0, np.abs(np.log(values / values[own]))[:, None], np.inf)
    distance[own] = np.inf
    nearest = np.argmin(distance, axis=0)
    y = sizes[own, rows]
    step = np.where(np.isfinite(distance.min(axis=0)), x[nearest] - x[own], np.inf)
    slope = (sizes[nearest, rows] - y) / step
    start = y - slope * x[own]
    is_line = (slope > 0) & (start >= 0)
    laws.coefficients[rows] = 0.0
    laws.coefficients[rows, 0] = np.where(is_line, start, 0.0)
    laws.coefficients[rows, power] = np.where(is_line, slope, y / x[own])
    laws.is_proven[rows] = False
    return found
