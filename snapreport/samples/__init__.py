"""Recordings to try things with. Their programs are in the folder ``sample_programs`` of the repository; they ran on
PyTorch's own allocator, over a driver that needs no GPU.
"""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).resolve().parent
SAMPLES = {
    "training": "a language model runs out of memory in its attention, on a batch of long documents",
    "fragmentation": "an evaluation runs out of memory with gigabytes cached",
    "leak": "every training step keeps a tensor",
    "healthy": "the same training without the leak",
    "logits": "a large vocabulary: the peak is in the loss",
    "late": "recording began after two steps",
    "cycles": "objects that refer to each other hold memory until the garbage collector runs",
    "churn": "empty_cache() in every step",
    "serving": "requests whose caches of keys and values grow, and a CUDA graph",
    "two_devices": "a model on two devices with expandable segments; the second runs out of memory",
    "job": "four ranks of a job, of which one gets more documents and runs out of memory",
}


def recordings(name: str) -> list[Path]:
    """The files of a sample: one, or those of a job's ranks in order. KeyError for another name."""
    SAMPLES[name]
    return sorted((FOLDER / name).glob("*.pickle.xz")) or [FOLDER / f"{name}.pickle.xz"]
