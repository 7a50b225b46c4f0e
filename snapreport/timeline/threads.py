"""Threads beside the one that trains or infers, as one that fetches batches ahead: what they allocate says nothing of
the passes that it falls between.
"""

from __future__ import annotations

import numpy as np

from snapreport.memoize import memoize
from snapreport.reading.recording import Recording
from snapreport.reading.stack_marks import stacks_with
from snapreport.timeline.phases import FORWARD, stack_phases

_STARTED = r"^_bootstrap(_inner)?$"
"""Functions of Python's ``threading`` in which every thread but the first begins."""


@memoize
def beside_passes(recording: Recording) -> np.ndarray:
    """Bool per stack: of a thread other than that of forward passes; none where these run in threads, too."""
    started = stacks_with(recording, recording.frames["name"].str.contains(_STARTED).to_numpy())
    forward = stack_phases(recording).runs(FORWARD)
    return np.asarray(started & ~forward & (forward & ~started).any())
