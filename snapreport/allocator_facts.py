"""What the allocator's model shares with its twin in the page: ``allocator_facts.json``, which the bundle includes.

``CONSTANTS``: bytes: kMinBlockSize, kSmallSize, kSmallBuffer, kLargeBuffer, kMinLargeAlloc and kRoundLarge of
c10/cuda/CUDACachingAllocator.cpp, the same in PyTorch 2.6 to 2.15. ``intervals``: requests from 2**n MiB to 2**(n + 1)
MiB have divisions of their own; the last interval includes all beyond. ``DEFAULTS``: the settings where none is set.
``SETTINGS``: those that can be replayed, with the least MiB that PyTorch takes. ``SETTINGS_WITHOUT_EFFECT``: keys that
PyTorch (2.6 to 2.15) knows and that do not change how much device memory is reserved: host memory, locks, and the
address space, not memory, of expandable segments. ``NEW_SETTINGS``: recorded by PyTorch 2.12 to 2.15, not by 2.9.
``TRIED_SETTINGS``: those that are tried where the user names none. ``REPLAYS``: how many placements of new segments
are tried (fewer for traces of ``long_trace`` operations and more, each of which takes a second), the bytes of a device
of unknown size, and the search for the minimum memory: in steps of 2 MiB, since segments are multiples of it, with some
steps around the result, since with more memory a trace may, rarely, fail again.
"""

from __future__ import annotations

import json
from importlib import resources
from typing import Any, Literal

_DATA: dict[str, Any] = json.loads(resources.files("snapreport").joinpath("allocator_facts.json").read_text("utf-8"))

CONSTANTS: dict[str, int] = _DATA["constants"]
DEFAULTS: dict[str, Any] = _DATA["defaults"]
SETTINGS: dict[str, dict[str, int]] = _DATA["settings"]
SETTINGS_WITHOUT_EFFECT = frozenset(_DATA["settings_without_effect"])
NEW_SETTINGS = frozenset(_DATA["settings_of_new_versions"])
TRIED_SETTINGS: tuple[str, ...] = tuple(_DATA["tried_settings"])
REPLAYS: dict[str, int] = _DATA["replays"]
CARDS: list[dict[str, Any]] = _DATA["cards"]
CONTEXT_GIB: float = _DATA["context_gib"]
REFUSALS: dict[str, str] = _DATA["refusals"]

Group = Literal["setting_errors", "refusals", "limits", "notes"]


def sentence(group: Group, key: str, /, **values: object) -> str:
    """A sentence of ``allocator_facts.json`` with its values put in."""
    text: str = _DATA[group][key].format(**values)
    return text
