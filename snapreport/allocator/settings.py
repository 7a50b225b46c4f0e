"""Settings of the caching allocator: PYTORCH_CUDA_ALLOC_CONF's own syntax, and what a snapshot recorded of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from snapreport.allocator_facts import DEFAULTS, NEW_SETTINGS, SETTINGS, SETTINGS_WITHOUT_EFFECT, sentence
from snapreport.errors import SettingsError
from snapreport.reading.recording import Recording
from snapreport.timeline.rounding import INTERVALS, allocator_rules

MIB = 1 << 20
DEFAULT = sentence("notes", "default")
"""The text of settings that are all as PyTorch has them."""
ADDRESS, BLOCK, SEGMENT = TIE_BREAKS = ("address", "block", "segment")
"""What decides between free blocks of equal size: their addresses (PyTorch 2.6 and 2.9), the age of the blocks, where
what remains of a split is the older part (2.12), or the age of their segments, then the address (2.15)."""
_SINCE_2_9 = "graph_capture_record_stream_reuse"


class AllocatorSettings(Struct, frozen=True):
    """The settings that decide placement.

    max_split_size: bytes; blocks of at least this size are never split (None: no limit). max_non_split_rounding: bytes
    by which such a block may exceed a request. divisions: by interval of ``INTERVALS``, into how many steps a power of
    two is divided (0: sizes are rounded to 512 bytes only). memory_fraction: of the device's memory, as in
    ``torch.cuda.set_per_process_memory_fraction``; garbage collection works only with it. tie_break: no setting, but
    by what the PyTorch version chooses between free blocks of equal size, see :data:`TIE_BREAKS`; the self-check finds
    out which. large_segment: bytes of a segment for requests of 1 to
    10 MiB, and of a granule of expandable segments in the large pool (large_segment_size_mb, newer than 2.9).
    since_2_10: no setting either, but whether values are read as by PyTorch 2.10 to 2.15, or as by 2.6 to 2.9 (see
    ``parse_settings``); None where it is not known which of them recorded.
    """

    expandable_segments: bool = DEFAULTS["expandable_segments"]
    max_split_size: int | None = DEFAULTS["max_split_size"]
    max_non_split_rounding: int = DEFAULTS["max_non_split_rounding"]
    divisions: tuple[int, ...] = (DEFAULTS["divisions"],) * INTERVALS
    garbage_collection_threshold: float = DEFAULTS["garbage_collection_threshold"]
    memory_fraction: float | None = DEFAULTS["memory_fraction"]
    tie_break: str = DEFAULTS["tie_break"]
    large_segment: int = DEFAULTS["large_segment"]
    since_2_10: bool | None = DEFAULTS["since_2_10"]

    def text(self) -> str:
        """As PYTORCH_CUDA_ALLOC_CONF writes them: what differs from the defaults; ``default`` where nothing does.
        ``parse_settings`` reads it back.
        """
        parts = []
        if self.expandable_segments:
            parts.append("expandable_segments:True")
        if self.max_split_size is not None:
            parts.append(f"max_split_size_mb:{self.max_split_size // MIB}")
        if self.max_non_split_rounding != DEFAULTS["max_non_split_rounding"]:
            parts.append(f"max_non_split_rounding_mb:{self.max_non_split_rounding // MIB}")
        if self.large_segment != DEFAULTS["large_segment"]:
            parts.append(f"large_segment_size_mb:{self.large_segment // MIB}")
        if any(self.divisions):
            parts.append(f"roundup_power2_divisions:{_divisions_text(self.divisions)}")
        if self.garbage_collection_threshold:
            parts.append(f"garbage_collection_threshold:{_decimal(self.garbage_collection_threshold)}")
        if self.memory_fraction is not None:
            parts.append(f"per_process_memory_fraction:{_decimal(self.memory_fraction)}")
        return ",".join(parts) or DEFAULT


def recorded_settings(recorded: Mapping[str, Any], expandable_seen: bool = False) -> AllocatorSettings:
    """The settings in a snapshot's ``allocator_settings``; what is absent or malformed has its default.

    expandable_seen: whether a segment of the snapshot is expandable, which says it where the settings do not.
    """
    rules = allocator_rules(recorded)
    threshold = recorded.get("garbage_collection_threshold")
    expandable = recorded.get("expandable_segments")
    settings = AllocatorSettings(
        expandable_segments=expandable if isinstance(expandable, bool) else expandable_seen,
        max_split_size=rules.max_split_size,
        divisions=rules.divisions,
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
    if large and int(large[1]) >= SETTINGS["large_segment_size_mb"]["least"]:
        settings = replace(settings, large_segment=int(large[1]) * MIB)
    return settings


def parse_settings(texts: Iterable[str], base: AllocatorSettings) -> AllocatorSettings:
    """``base`` with settings in PYTORCH_CUDA_ALLOC_CONF's syntax on top, e.g. ``["max_split_size_mb:128"]``;
    ``default`` are PyTorch's defaults.

    In a list of roundup_power2_divisions, ``>`` begins after the last size since 2.10 and with it before: of
    ``[64:8,256:4,>:2]``, requests from 256 to 512 MiB have 4 divisions there and 2 here. 0 divisions are none, in lists
    alone. max_split_size_mb may be 20 since 2.10. All seen in 2.6.0, 2.9.1, 2.10.0, 2.11.0, 2.12.1 and 2.15.0.

    Raises :class:`SettingsError` for what PyTorch would refuse, and for what the replay does not cover.
    """
    for text in texts:
        parts = [part.strip() for part in re.split(r",(?![^\[]*\])", text) if part.strip()]
        for part in parts or [text]:
            if part == DEFAULT:
                base = AllocatorSettings(tie_break=base.tie_break, since_2_10=base.since_2_10)
                continue
            key, _, value = (word.strip() for word in part.partition(":"))
            if not value:
                raise _error("pair", part=part)
            base = _with_setting(base, key, value)
    return base


def _error(kind: str, **values: object) -> SettingsError:
    return SettingsError(sentence("setting_errors", kind, **values))


def _with_setting(base: AllocatorSettings, key: str, value: str) -> AllocatorSettings:
    if key == "expandable_segments":
        if value not in ("True", "False"):
            raise _error("flag", key=key, value=value)
        return replace(base, expandable_segments=value == "True")
    if key == "max_split_size_mb":
        return replace(base, max_split_size=_mebibytes(base, key, value))
    if key == "max_non_split_rounding_mb":
        return replace(base, max_non_split_rounding=_mebibytes(base, key, value))
    if key == "large_segment_size_mb":
        return replace(base, large_segment=_mebibytes(base, key, value))
    if key == "roundup_power2_divisions":
        return replace(base, divisions=_parse_divisions(base, key, value))
    if key == "garbage_collection_threshold":
        return replace(base, garbage_collection_threshold=_share(key, value))
    if key == "per_process_memory_fraction":
        return replace(base, memory_fraction=_share(key, value))
    if key == "backend" and value != "native":
        raise _error("backend", value=value)
    if key == "backend" or key in SETTINGS_WITHOUT_EFFECT:
        return base
    raise _error("unknown", key=key, known=", ".join(SETTINGS))


def _whole(key: str, value: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", value):
        raise _error("whole", key=key, value=value)
    return int(value)


def _mebibytes(base: AllocatorSettings, key: str, value: str) -> int:
    """Bytes of a setting in MiB."""
    size, least = _whole(key, value), SETTINGS[key]["least_before_2_10" if base.since_2_10 is False else "least"]
    if size < least:
        raise _error("least", key=key, value=value, least=least)
    return size * MIB


def _share(key: str, value: str) -> float:
    share = float(value) if re.fullmatch(r"[0-9]*\.?[0-9]+", value) and len(value) <= 40 else 0.0
    if not 0 < share < 1 and not (share == 1 and key == "per_process_memory_fraction"):
        raise _error("share", key=key, value=value)
    return share


def _parse_divisions(base: AllocatorSettings, key: str, value: str) -> tuple[int, ...]:
    """``4`` for all sizes, or ``[256:1,512:2,>:4]`` by size in MiB, as PyTorch reads it."""
    if not value.startswith("["):
        return (_power(key, value),) * INTERVALS
    if not value.endswith("]"):
        raise _error("bracket", key=key, value=value)
    divisions = [0] * INTERVALS
    last, first = 0, True
    for pair in filter(None, value[1:-1].split(",")):
        size, found, count = (text.strip() for text in pair.partition(":"))
        if not found:
            raise _error("divisions", key=key, pair=pair)
        steps = 0 if count == "0" else _power(key, count)
        if size == ">":
            begin = last if base.since_2_10 is False else last + 1
            divisions[begin:] = [steps] * (INTERVALS - begin)
            continue
        index = min(_power(key, size).bit_length() - 1, INTERVALS - 1)
        if first:
            divisions[:index] = [steps] * index
            first = False
        divisions[index] = steps
        last = index
    return tuple(divisions)


def _power(key: str, value: str) -> int:
    number = _whole(key, value)
    if not number or number & (number - 1):
        raise _error("power", key=key, value=value)
    return number


def both_readings(texts: Sequence[str], base: AllocatorSettings) -> dict[str, AllocatorSettings]:
    """``parse_settings`` by the name of the note that says whose reading it is: two where it is not known which PyTorch
    recorded and the readings differ, else one, named "".
    """
    if base.since_2_10 is not None:
        return {"": parse_settings(texts, base)}
    old, new = (parse_settings(texts, replace(base, since_2_10=since)) for since in (False, True))
    if replace(old, since_2_10=True) == new:
        return {"": replace(new, since_2_10=None)}
    return {"before_2_10": old, "since_2_10": new}


def read_since_2_10(recording: Recording) -> bool | None:
    """Whether a recording's settings were read as by PyTorch 2.10 to 2.15; None where nothing in it tells.

    The version that our recorder noted decides, or a setting that only new versions record, or one that 2.9 does and
    this recording does not have, or its own divisions, if they differ by version.
    """
    version = re.match(r"(\d+)\.(\d+)", recording.recorder.versions.get("torch", "") if recording.recorder else "")
    if version:
        return (int(version[1]), int(version[2])) >= (2, 10)
    settings = recording.settings
    if not NEW_SETTINGS.isdisjoint(settings):
        return True
    if settings and _SINCE_2_9 not in settings:
        return False
    conf = re.search(r"roundup_power2_divisions\s*:\s*\[[^]]*\]", str(settings.get("PYTORCH_CUDA_ALLOC_CONF", "")))
    if conf:
        for since in (False, True):
            with suppress(SettingsError):
                read = parse_settings([conf[0]], AllocatorSettings(since_2_10=since))
                other = parse_settings([conf[0]], AllocatorSettings(since_2_10=not since))
                if read.divisions == allocator_rules(settings).divisions != other.divisions:
                    return since
    return None


def _decimal(number: float) -> str:
    """Exactly this number, without an exponent."""
    return np.format_float_positional(number, trim="-")


def _divisions_text(divisions: tuple[int, ...]) -> str:
    if len(set(divisions)) == 1:
        return str(divisions[0])
    return "[" + ",".join(f"{1 << n}:{steps}" for n, steps in enumerate(divisions)) + "]"
