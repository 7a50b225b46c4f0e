"""The options of the sample generator, their presets and their validation."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

MIB = 1024**2
GIB = 1024**3

CHOICES: dict[str, tuple[str, ...]] = {
    "workload": ("training", "serving", "overlap"),
    "attention": ("flash", "eager"),
    "optimizer": ("foreach", "loop"),
    "oom": ("none", "demand", "fragmentation"),
    "context": ("all", "alloc", "state", "none"),
    "stacks": ("python", "all"),
    "layout": ("2.1", "2.5", "2.8", "2.12"),
    "regression_in": ("embedding", "attention", "mlp", "norm", "gelu", "loss", "head", "cache"),
}


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of one sample; sizes in bytes, times in microseconds. Equal options give equal snapshots.

    How much: `events` per device (the snapshot is taken when they are reached, in the middle of a step) or `steps`;
    with both, whichever comes first. `record_from` is the step at which recording begins: memory live then was
    allocated before the trace. `max_entries` is the size of the recorder's ring buffer: the oldest entries beyond it
    are lost.

    Planted causes: `oom` ends the trace with an OOM of the named kind, on `oom_device` (-1: the last), after the steps,
    for which `memory` must suffice; fragmentation needs expandable and max_split_size to be off; `leak` bytes leaked by
    `metrics.py log_step` in every step; `churn` buffers of 32 MiB allocated and freed in each step whose segments
    return to the device; `cycles` steps between collections of reference cycles that hold 8 MiB each; `cache_steps`
    steps in which a cache grows by 4 MiB, and then stops (no leak); `regression` a factor on the sizes that the
    functions of the area `regression_in` allocate.

    Recording: `context` and `stacks` as in `torch.cuda.memory._record_memory_history`, `depth` more frames
    below the program (launchers), `own_stacks` a stack list for every allocation and free as torch writes it (otherwise
    equal stacks are one list), `layout` the PyTorch version whose keys are written, `host` adds pinned host memory.
    """

    seed: int = 0
    workload: str = "training"
    events: int | None = None
    steps: int | None = None
    devices: int = 1
    streams: int = 1
    private_pools: int = 0
    memory: int = 24 * GIB
    expandable: bool = False
    max_split_size: int | None = None
    max_entries: int | None = None
    record_from: int = 0
    snapshot_every: int = 0

    layers: int = 12
    hidden: int = 768
    heads: int = 12
    sequence: int = 1024
    batch: int = 8
    vocabulary: int = 50304
    vary: float = 0.0
    attention: str = "flash"
    checkpointing: bool = False
    optimizer: str = "foreach"
    window: int = 20_000

    oom: str = "none"
    oom_device: int = -1
    leak: int = 0
    churn: int = 0
    cycles: int = 0
    cache_steps: int = 0
    regression: float = 1.0
    regression_in: str = "mlp"

    context: str = "all"
    stacks: str = "python"
    depth: int = 0
    own_stacks: bool = True
    times: bool = True
    metadata: bool = False
    compiled: bool = False
    layout: str = "2.12"
    host: bool = False

    def __post_init__(self) -> None:
        for name, choices in CHOICES.items():
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} is {getattr(self, name)!r}; it can be {', '.join(choices)}")
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"{name} is {value}; it must be at least {least}")
        for name, most in _MOST.items():
            value = getattr(self, name)
            if value is not None and not value <= most:
                raise ValueError(f"{name} is {value}; it can be at most {most}")
        if not 0 <= self.vary < 1:
            raise ValueError(f"vary is {self.vary}; it must be at least 0 and less than 1")
        if self.hidden % self.heads:
            raise ValueError(f"hidden ({self.hidden}) must be a multiple of heads ({self.heads})")
        if self.oom_device >= self.devices:
            raise ValueError(f"oom_device is {self.oom_device}, but there are {self.devices} devices, from 0")
        if self.oom != "none" and self.workload == "overlap":
            raise ValueError("the overlap workload has no out-of-memory")


_LEAST: dict[str, float] = {
    "seed": 0, "events": 1, "steps": 1, "devices": 1, "streams": 1, "private_pools": 0, "memory": GIB,
    "max_split_size": 20 * MIB, "max_entries": 1, "record_from": 0, "snapshot_every": 0, "layers": 1, "hidden": 8,
    "heads": 1, "sequence": 8, "batch": 1, "vocabulary": 16, "window": 2, "depth": 0, "leak": 0, "churn": 0,
    "cycles": 0, "cache_steps": 0, "regression": 0.01,
}  # fmt: skip

# No machine can make a larger sample; the resulting sizes fit into 63 bits.
_MOST: dict[str, float] = {
    "seed": 1 << 63, "events": 100_000_000, "steps": 10_000_000, "devices": 128, "streams": 64, "private_pools": 1024,
    "memory": 1 << 46, "max_split_size": 1 << 46, "max_entries": 1 << 53, "record_from": 10_000_000,
    "snapshot_every": 10_000_000, "layers": 10_000, "hidden": 1 << 17, "heads": 1 << 17, "sequence": 1 << 22,
    "batch": 1 << 16, "vocabulary": 1 << 24, "window": 10_000_000, "depth": 10_000, "leak": 1 << 46,
    "churn": 1 << 20, "cycles": 10_000_000, "cache_steps": 10_000_000, "regression": 1000.0,
}  # fmt: skip

PRESETS: dict[str, dict[str, Any]] = {
    "training": {"steps": 4},
    "small": {"steps": 3, "layers": 4, "hidden": 256, "heads": 8, "sequence": 256, "batch": 4, "vocabulary": 8192},
    "serving": {"workload": "serving", "events": 30_000, "layers": 8, "hidden": 2048, "heads": 16, "sequence": 4096},
    "oom": {"steps": 4, "oom": "demand", "attention": "eager", "memory": 16 * GIB},
    "fragmentation": {"steps": 2, "oom": "fragmentation", "memory": 16 * GIB},
    "leak": {"steps": 12, "layers": 4, "leak": 3 * MIB},
    "churn": {"steps": 10, "layers": 4, "churn": 4},
    "expandable": {"steps": 4, "expandable": True, "vary": 0.5, "streams": 2},
    "multi-gpu": {"steps": 3, "devices": 4, "streams": 3, "expandable": True, "oom": "demand", "memory": 16 * GIB},
    "pools": {"events": 9_000, "private_pools": 2, "streams": 3, "vary": 0.3},
    "truncated": {"steps": 8, "max_entries": 10_000},
    "pinned": {"steps": 8, "layers": 4, "host": True},
    "late": {"steps": 3, "record_from": 2, "vary": 0.3},
    "checkpointing": {"steps": 4, "checkpointing": True},
    "compiled": {"steps": 4, "compiled": True, "metadata": True, "stacks": "all"},
    "overlap": {"workload": "overlap", "events": 60_000},
    "large": {"events": 920_183, "vary": 0.4, "depth": 4},
    "huge": {"events": 2_830_000, "vary": 0.4, "stacks": "all", "depth": 32, "checkpointing": True},
}
"""Named starting points; every option can still be set. `large` and `huge` are the benchmark's inputs."""


def make_options(preset: str | None = None, **changes: Any) -> Options:
    """The options of a preset with changes; raises ValueError for an unknown name or an invalid value."""
    base: dict[str, Any] = {}
    if preset is not None:
        if preset not in PRESETS:
            raise ValueError(f"no preset is called {preset!r}; there are {', '.join(PRESETS)}")
        base = PRESETS[preset]
    known = {field.name for field in fields(Options)}
    for name in changes:
        if name not in known:
            raise ValueError(f"no option is called {name!r}")
    merged = {**base, **changes}
    # If events are given, a preset's steps are no limit, and vice versa.
    if "events" in changes and "steps" not in changes:
        merged.pop("steps", None)
    if "steps" in changes and "events" not in changes:
        merged.pop("events", None)
    if merged.get("events") is None and merged.get("steps") is None:
        merged["steps"] = PRESETS["training"]["steps"]
    return replace(Options(), **merged)
