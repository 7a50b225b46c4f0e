"""Programs of known truth: memory snapshots made without torch or a GPU, the same on every machine.

A faithful model of PyTorch's caching allocator runs a simulated training or serving program in which a cause is
planted; see `Options` for the parameters and `PRESETS` for named starting points.

    snapshot = generator.make("oom", seed=1)
    generator.write("run.pickle", "training", steps=2)
"""

from generator.build import make, write
from generator.job import KINDS, JobOptions, write_job, write_rank

__all__ = ["KINDS", "JobOptions", "make", "write", "write_job", "write_rank"]
