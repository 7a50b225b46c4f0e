"""Samples: realistic memory snapshots generated without torch or a GPU, the same on every machine.

A faithful model of PyTorch's caching allocator runs a simulated training or serving program; see `Options` for the
parameters and `PRESETS` for named starting points.

    snapshot = snapreport.samples.make("oom", seed=1)
    snapreport.samples.write("sample.pickle.gz", "training", steps=2)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from snapreport.samples.build import make, make_snapshot, write, write_snapshot
    from snapreport.samples.job import KINDS, JobOptions, make_job, write_job, write_rank
    from snapreport.samples.options import PRESETS, Options, make_options

__all__ = [
    "KINDS",
    "PRESETS", "JobOptions", "Options", "make", "make_job", "make_options", "make_snapshot", "write", "write_job",
    "write_rank", "write_snapshot",
]  # fmt: skip

_HOMES = {
    "make": "build", "make_snapshot": "build", "write": "build", "write_snapshot": "build",
    "KINDS": "job", "JobOptions": "job", "make_job": "job", "write_job": "job", "write_rank": "job",
    "Options": "options", "PRESETS": "options", "make_options": "options",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{home}"), name)
