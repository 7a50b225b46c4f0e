"""Stacks that move or copy the weights of a model: which of them make gradients, and which a running mean of weights.

``nn.Module._apply`` applies one function to each parameter, then to its gradient, then to each buffer, from three of
its lines: the stacks differ in nothing else.
"""

from __future__ import annotations

import numpy as np

from snapreport.reading.recording import Recording
from snapreport.reading.stack_marks import stacks_with
from snapreport.timeline.frame_search import files_of

_MODULE = r"torch/nn/modules/module\.py$"
_TO_GRADIENT = ((10, 17), (33, 48))
"""Lines from that which applies the function to a parameter to that for its gradient, at least and at most: 13 in
PyTorch 2.0, 37 to 44 in 2.6 to 2.15. Buffers follow after 24 in 2.0, and after 61 to 70."""
_MEAN = r"(?i-u)(^|_|\b)(ema|swa|polyak|averaged?|shadow|moving_average)(_|\b|$)"


def applied_gradients(recording: Recording) -> np.ndarray:
    """Bool per stack: it moves or casts the gradient of a parameter."""
    frames, offsets = recording.frames, recording.stack_offsets
    is_apply = (files_of(recording).str.contains(_MODULE) & (frames["name"] == "_apply")).to_numpy()
    found = np.zeros(len(offsets) - 1, bool)
    if not is_apply.any():
        return found
    at = np.flatnonzero(is_apply[recording.stack_frames])
    # The innermost one calls the function; the others call each other, or another class's, for the modules of a module.
    stack, first = np.unique(np.searchsorted(offsets, at, "right") - 1, return_index=True)
    line = frames["line"].to_numpy()[recording.stack_frames[at]]
    calls_another = np.unique(np.delete(line, first))
    stack, line = stack[~np.isin(line[first], calls_another)], line[first][~np.isin(line[first], calls_another)]
    if len(line):
        distance = line - line.min()
        found[stack] = np.logical_or.reduce([(least <= distance) & (distance <= most) for least, most in _TO_GRADIENT])
    return found


def averaged_weights(recording: Recording) -> np.ndarray:
    """Bool per stack: it copies a module for a running mean of its weights, as a function's or a file's name says."""
    name, file = recording.frames["name"], files_of(recording)
    is_copy = (name.is_in(["deepcopy", "__deepcopy__", "clone"])).to_numpy()
    is_mean = (name.str.contains(_MEAN) | file.str.split("/").list.last().str.contains(_MEAN)).to_numpy()
    return np.asarray(stacks_with(recording, is_copy) & stacks_with(recording, is_mean))
