"""Names and units that Python and the page share: ``vocabulary.json``, which the page's bundle holds, too.

``QUERY_FIELDS``: field of the query language → what its value is, in the order of messages. ``CATEGORIES``,
``CATEGORY_SOURCES``, ``ORIGINS``: in the order of their codes in columns. ``SIZE_UNITS`` (bytes, lower case without the
final b) and ``TIME_UNITS_US`` (µs) are those that queries may use; ``SHOWN_UNITS`` are those that are written, each
1,024 times the one before. ``QUERY_OPERATORS``: what is no operator, and what to write
instead. ``PART_SEPARATORS``: of the fields whose texts consist of parts, what is between two of them.
``QUERY_ERRORS``, ``QUERY_NOTES``: why a query cannot be read, and why a term of it matches
nothing; {names} are put in.
"""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

_DATA: dict[str, Any] = json.loads(resources.files("snapreport").joinpath("vocabulary.json").read_text("utf-8"))

QUERY_FIELDS: dict[str, str] = _DATA["query_fields"]
PART_SEPARATORS: dict[str, str] = _DATA["part_separators"]
CATEGORIES: tuple[str, ...] = tuple(_DATA["categories"])
CATEGORY_SOURCES: tuple[str, ...] = tuple(_DATA["category_sources"])
ORIGINS: tuple[str, ...] = tuple(_DATA["origins"])
MOMENTS: tuple[str, ...] = tuple(_DATA["moments"])
POOLS: tuple[str, ...] = tuple(_DATA["pools"])
SHOWN_UNITS: tuple[str, ...] = tuple(_DATA["shown_units"])
SIZE_UNITS: dict[str, int] = _DATA["size_units"]
TIME_UNITS_US: dict[str, float] = _DATA["time_units_us"]
QUERY_ERRORS: dict[str, str] = _DATA["query_errors"]
QUERY_OPERATORS: dict[str, str] = _DATA["query_operators"]
QUERY_NOTES: dict[str, str] = _DATA["query_notes"]

DEFAULT_POOL = "(0, 0)"
"""The pool id of segments that belong to no CUDA graph and no ``torch.cuda.MemPool``."""
