"""One identity for a stack on every rank: a hash of function, file and line of its frames.

Ranks run the same code from different places: another home, a node's disk, a container. So a library's file is
identified by its path below ``site-packages``, any other by its name alone. Two stacks are confused only if all their
frames have the same functions, file names and lines; then one line of the report has the bytes of both. Runtime noise
is ignored: the interpreter's and the dispatcher's frames differ between hosts whose libraries were built differently.
"""

from __future__ import annotations

import hashlib
import itertools
import re

import numpy as np

from snapreport.findings.stack_matching import installed_name
from snapreport.memoize import memoize
from snapreport.reading.noise import NOISE, recorded_flags
from snapreport.reading.recording import Recording

EMPTY = "0" * 16
"""The identity of an empty stack trace."""
# torch.fx numbers the graphs of a process in the order in which it compiled them.
_GENERATED = re.compile(r"^<eval_with_key>.*")


@memoize
def stack_identities(recording: Recording) -> list[str]:
    """16 hexadecimal digits for each stack of a recording; ``EMPTY`` for stacks without a frame that counts.

    BLAKE2b (8 bytes) over "function NUL file NUL line LF" of the frames, innermost first, as UTF-8.
    """
    frames = recording.frames
    texts = [
        f"{name}\0{identity_file(file)}\0{line}\n".encode("utf-8", "surrogatepass")
        for name, file, line in frames.select("name", "filename", "line").iter_rows()
    ]
    counts = np.asarray(recorded_flags(recording) & NOISE == 0)[recording.stack_frames]
    flat = recording.stack_frames[counts].tolist()
    ends = np.concatenate(([0], np.cumsum(counts)))[recording.stack_offsets].tolist()
    identities = []
    for begin, end in itertools.pairwise(ends):
        if begin == end:
            identities.append(EMPTY)
        else:
            text = b"".join(texts[frame] for frame in flat[begin:end])
            identities.append(hashlib.blake2b(text, digest_size=8).hexdigest())
    return identities


def identity_file(filename: str) -> str:
    """The part of a file's path that is the same on every rank."""
    name = installed_name(filename)
    if name != filename.replace("\\", "/"):
        return name
    return _GENERATED.sub("<eval_with_key>", name.rpartition("/")[2])


def shown_file(filename: str) -> str:
    """A file's name in sentences: its path below ``site-packages``, otherwise with its folder (``moe/dispatch.py``)."""
    name = installed_name(filename)
    return name if name != filename.replace("\\", "/") else "/".join(name.split("/")[-2:])
