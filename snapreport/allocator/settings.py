"""Settings of the caching allocator: PYTORCH_CUDA_ALLOC_CONF's own syntax, and what a snapshot recorded of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from snapreport.allocator.blocks import LARGE_BUFFER, MIN_LARGE_ALLOC
from snapreport.errors import SettingsError

MIB = 1 << 20
INTERVALS = 16
"""Requests from 2**n MiB to 2**(n + 1) MiB have divisions of their own; the last interval includes all beyond."""
_LARGE_BUFFER_MIB = LARGE_BUFFER // MIB
_MIN_LARGE_ALLOC_MIB = MIN_LARGE_ALLOC // MIB
NO_EFFECT = (
    "release_lock_on_cudamalloc", "pinned_use_cuda_host_register", "pinned_num_register_threads",
    "pinned_use_background_threads", "graph_capture_record_stream_reuse", "throw_on_cudamalloc_oom",
    "pinned_reserve_segment_size_mb", "pinned_max_round_threshold_mb", "pinned_max_cached_size_mb",
    "pinned_free_catch_all", "release_lock_on_hipmalloc", "pinned_use_hip_host_register",
    "expandable_segments_reserve", "expandable_segments_reserve_by_class",
)  # fmt: skip
"""Keys that PyTorch (2.6 to 2.15) knows and that do not change how much device memory is reserved: host memory, locks,
and the address space, not memory, of expandable segments.
"""
KEYS = (
    "expandable_segments", "max_split_size_mb", "max_non_split_rounding_mb", "roundup_power2_divisions",
    "garbage_collection_threshold", "per_process_memory_fraction", "large_segment_size_mb",
)  # fmt: skip


@dataclass(frozen=True)
class AllocatorSettings:
    """The settings that decide placement.

    max_split_size: bytes; blocks of at least this size are never split (None: no limit). max_non_split_rounding: bytes
    by which such a block may exceed a request. divisions: by interval of ``INTERVALS``, into how many steps a power of
    two is divided (0: sizes are rounded to 512 bytes only). memory_fraction: of the device's memory, as in
    ``torch.cuda.set_per_process_memory_fraction``; garbage collection works only with it. oldest_first: no setting, but
    how the PyTorch version chooses between free blocks of equal size: by the age of their segments (2.15), else by
    address (2.9 and older); the self-check finds out which. large_segment: bytes of a segment for requests of 1 to
    10 MiB, and of a granule of expandable segments in the large pool (large_segment_size_mb, newer than 2.9).
    """

    expandable_segments: bool = False
    max_split_size: int | None = None
    max_non_split_rounding: int = LARGE_BUFFER
    divisions: tuple[int, ...] = (0,) * INTERVALS
    garbage_collection_threshold: float = 0.0
    memory_fraction: float | None = None
    oldest_first: bool = False
    large_segment: int = LARGE_BUFFER

    def text(self) -> str:
        """As PYTORCH_CUDA_ALLOC_CONF writes them: what differs from the defaults; ``default`` where nothing does."""
        parts = []
        if self.expandable_segments:
            parts.append("expandable_segments:True")
        if self.max_split_size is not None:
            parts.append(f"max_split_size_mb:{self.max_split_size // MIB}")
        if self.max_non_split_rounding != LARGE_BUFFER:
            parts.append(f"max_non_split_rounding_mb:{self.max_non_split_rounding // MIB}")
        if self.large_segment != LARGE_BUFFER:
            parts.append(f"large_segment_size_mb:{self.large_segment // MIB}")
        if any(self.divisions):
            parts.append(f"roundup_power2_divisions:{_divisions_text(self.divisions)}")
        if self.garbage_collection_threshold:
            parts.append(f"garbage_collection_threshold:{self.garbage_collection_threshold:g}")
        if self.memory_fraction is not None:
            parts.append(f"per_process_memory_fraction:{self.memory_fraction:g}")
        return ",".join(parts) or "default"


def recorded_settings(recorded: Mapping[str, Any], expandable_seen: bool = False) -> AllocatorSettings:
    """The settings in a snapshot's ``allocator_settings``; what is absent or malformed has its default.

    expandable_seen: whether a segment of the snapshot is expandable, which says it where the settings do not.
    """
    divisions = recorded.get("roundup_power2_divisions")
    divisions = divisions if isinstance(divisions, Mapping) else {}
    split = _integer(recorded.get("max_split_size"))
    threshold = recorded.get("garbage_collection_threshold")
    expandable = recorded.get("expandable_segments")
    settings = AllocatorSettings(
        expandable_segments=expandable if isinstance(expandable, bool) else expandable_seen,
        max_split_size=split if split is not None and 0 < split < 2**62 else None,
        divisions=tuple(_division(divisions.get(str(1 << n))) for n in range(INTERVALS)),
        garbage_collection_threshold=float(threshold) if isinstance(threshold, float) and 0 < threshold < 1 else 0.0,
    )
    conf = recorded.get("PYTORCH_CUDA_ALLOC_CONF")
    if not isinstance(conf, str):
        return settings
    # These two are recorded only in the text.
    rounding = re.search(r"max_non_split_rounding_mb\s*:\s*(\d{1,9})", conf)
    if rounding:
        settings = replace(settings, max_non_split_rounding=int(rounding[1]) * MIB)
    large = re.search(r"large_segment_size_mb\s*:\s*(\d{1,9})", conf)
    if large and int(large[1]) > _MIN_LARGE_ALLOC_MIB:
        settings = replace(settings, large_segment=int(large[1]) * MIB)
    return settings


def parse_settings(texts: Iterable[str], base: AllocatorSettings) -> AllocatorSettings:
    """``base`` with settings in PYTORCH_CUDA_ALLOC_CONF's syntax on top, e.g. ``["max_split_size_mb:128"]``.

    Raises :class:`SettingsError` for what PyTorch would refuse, and for what the replay does not cover.
    """
    for text in texts:
        for part in _parts(text):
            key, found, value = part.partition(":")
            key, value = key.strip(), value.strip()
            if not found or not value:
                raise SettingsError(f"{part.strip()!r}: a setting is KEY:VALUE, e.g. expandable_segments:True")
            base = _with(base, key, value)
    return base


def _parts(text: str) -> list[str]:
    parts = [part for part in re.split(r",(?![^\[]*\])", text) if part.strip()]
    if not parts:
        raise SettingsError(f"{text!r}: a setting is KEY:VALUE, e.g. expandable_segments:True")
    return parts


def _with(base: AllocatorSettings, key: str, value: str) -> AllocatorSettings:
    if key == "expandable_segments":
        if value not in ("True", "False"):
            raise SettingsError(f"expandable_segments is True or False, not {value!r}")
        return replace(base, expandable_segments=value == "True")
    if key in ("max_split_size_mb", "max_non_split_rounding_mb"):
        size = _number(key, value)
        if size <= _LARGE_BUFFER_MIB:
            raise SettingsError(f"{key} must be greater than {_LARGE_BUFFER_MIB}, not {value}")
        if key == "max_split_size_mb":
            return replace(base, max_split_size=size * MIB)
        return replace(base, max_non_split_rounding=size * MIB)
    if key == "large_segment_size_mb":
        size = _number(key, value)
        if size <= _MIN_LARGE_ALLOC_MIB:
            raise SettingsError(f"{key} must be greater than {_MIN_LARGE_ALLOC_MIB}, not {value}")
        return replace(base, large_segment=size * MIB)
    if key == "roundup_power2_divisions":
        return replace(base, divisions=_parse_divisions(value))
    if key in ("garbage_collection_threshold", "per_process_memory_fraction"):
        share = _share(key, value)
        if key == "garbage_collection_threshold":
            return replace(base, garbage_collection_threshold=share)
        return replace(base, memory_fraction=share)
    if key == "backend" and value != "native":
        raise SettingsError(f"backend:{value}: only PyTorch's native allocator can be replayed")
    if key == "backend" or key in NO_EFFECT:
        return base
    raise SettingsError(f"{key!r} is no setting that can be replayed; there are {', '.join(KEYS)}")


def _number(key: str, value: str) -> int:
    if not re.fullmatch(r"\d{1,9}", value):
        raise SettingsError(f"{key} is a whole number, not {value!r}")
    return int(value)


def _share(key: str, value: str) -> float:
    if not re.fullmatch(r"\d*\.?\d+", value) or len(value) > 20:
        raise SettingsError(f"{key} is a number between 0 and 1, not {value!r}")
    share = float(value)
    if not 0 < share < 1 and not (share == 1 and key == "per_process_memory_fraction"):
        raise SettingsError(f"{key} is a number between 0 and 1, not {value}")
    return share


def _parse_divisions(value: str) -> tuple[int, ...]:
    """``4`` for all sizes, or ``[256:1,512:2,>:4]`` by size in MiB, as PyTorch reads it."""
    if not value.startswith("["):
        return (_power("roundup_power2_divisions", value),) * INTERVALS
    if not value.endswith("]"):
        raise SettingsError(f"roundup_power2_divisions: {value!r} has no closing bracket")
    divisions = [0] * INTERVALS
    last, first = 0, True
    for pair in value[1:-1].split(","):
        size, found, count = (text.strip() for text in pair.partition(":"))
        if not found:
            raise SettingsError(f"roundup_power2_divisions: {pair!r} is not SIZE:DIVISIONS")
        steps = _power("roundup_power2_divisions", count)
        if size == ">":
            divisions[last:] = [steps] * (INTERVALS - last)
            continue
        index = min(_power("roundup_power2_divisions", size).bit_length() - 1, INTERVALS - 1)
        if first:
            divisions[:index] = [steps] * index
            first = False
        divisions[index] = steps
        last = index
    return tuple(divisions)


def _power(key: str, value: str) -> int:
    number = _number(key, value)
    if not number or number & (number - 1):
        raise SettingsError(f"{key} takes powers of two, not {value}")
    return number


def _divisions_text(divisions: tuple[int, ...]) -> str:
    if len(set(divisions)) == 1:
        return str(divisions[0])
    return "[" + ",".join(f"{1 << n}:{steps}" for n, steps in enumerate(divisions)) + "]"


def _integer(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _division(value: Any) -> int:
    number = _integer(value)
    return number if number is not None and 0 < number <= 2**20 else 0
