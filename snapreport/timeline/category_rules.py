"""The rules that give memory a category by the frames of its stack: data, ``categories.toml`` and a user's file."""

from __future__ import annotations

import functools
import os
import re
import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from snapreport.errors import SnapshotError
from snapreport.timeline.phases import PHASES
from snapreport.vocabulary import CATEGORIES

(
    UNKNOWN_CATEGORY, PARAMETER, GRADIENT, OPTIMIZER_STATE, ACTIVATION, TEMPORARY, INPUT, COMMUNICATION,
    WORKSPACE, KV_CACHE,
) = range(len(CATEGORIES))  # fmt: skip


class Rule(Struct, frozen=True):
    """A stack with a frame that matches both patterns has ``category``, or ``short`` for short-lived allocations.

    events: maximum events of a short life; None: the file's ``short_lived_events``. phase: instead of patterns, the
    phase (an index into ``PHASES``) that a frame belongs to; 0: none. first: if one function has several matching
    lines, the category of the first line; 0: the same. certain: whether such a frame proves the category.
    """

    file: re.Pattern[str]
    function: re.Pattern[str]
    category: int
    short: int
    events: int | None = None
    phase: int = 0
    first: int = 0
    certain: bool = True


class Rules(Struct, frozen=True):
    """rules: by the allocating stack; the innermost matching frame decides. freed: by the freeing stack, for memory
    that ``rules`` leave unknown. own: a user's rules, applied before all others; the first to match any frame decides.
    """

    short_lived_events: int
    rules: tuple[Rule, ...]
    freed: tuple[Rule, ...] = ()
    own: tuple[Rule, ...] = ()

    def before(self, later: Rules) -> Rules:
        """These rules as a user's own, then those of ``later``."""
        own = tuple(replace(r, events=self.short_lived_events if r.events is None else r.events) for r in self.rules)
        return Rules(later.short_lived_events, later.rules, self.freed + later.freed, own)


_MOST_TEXT = 1 << 20  # characters of a user's file
_RULE_KEYS = {"file", "function", "category", "short", "short_lived_events"}
_BUILT_IN_KEYS = _RULE_KEYS | {"phase", "first", "certain"}


def parse_rules(text: str, keys: set[str] = _RULE_KEYS) -> Rules:
    """Rules from the text of a TOML file like ``categories.toml``. Raises ValueError with the error and its place.
    keys: allowed keys of a rule.
    """
    data = tomllib.loads(text)
    if unknown := sorted(data.keys() - {"short_lived_events", "rule", "freed"}):
        raise ValueError(f"{unknown[0]}: no such setting; there are short_lived_events, rule and freed")
    if not data.get("rule") and not data.get("freed"):
        raise ValueError("no [[rule]] in it")
    default = (
        _events(data, "short_lived_events") if "short_lived_events" in data else default_rules().short_lived_events
    )
    return Rules(default, _rules(data, "rule", keys), _rules(data, "freed", keys))


def _rules(data: dict[str, Any], table: str, keys: set[str]) -> tuple[Rule, ...]:
    rows = data.get(table, [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError(f"{table}: not a list of tables; write [[{table}]]")
    result = []
    for number, row in enumerate(rows, 1):
        try:
            result.append(_rule(row, keys))
        except ValueError as error:
            raise ValueError(f"{table} {number}: {error}") from None
    return tuple(result)


def _rule(row: dict[str, Any], keys: set[str]) -> Rule:
    if unknown := sorted(row.keys() - keys):
        raise ValueError(f"{unknown[0]}: no such key; there are {', '.join(sorted(keys))}")
    if "category" not in row:
        raise ValueError("no category")
    if not row.keys() & {"file", "function", "phase"}:
        raise ValueError("neither file nor function: it would match every stack")
    category = _category(row, "category")
    events = _events(row, "short_lived_events") if "short_lived_events" in row else None
    short = _category(row, "short") if "short" in row else category
    phase = PHASES.index(row["phase"]) if "phase" in row else 0
    first = _category(row, "first") if "first" in row else 0
    patterns = _pattern(row, "file"), _pattern(row, "function")
    return Rule(*patterns, category, short, events, phase, first, row.get("certain", True))


def _category(row: dict[str, Any], key: str) -> int:
    if row[key] not in CATEGORIES:
        raise ValueError(f"{key} is {row[key]!r}; it can be {', '.join(CATEGORIES)}")
    return CATEGORIES.index(row[key])


def _events(row: dict[str, Any], key: str) -> int:
    events: int = row[key]
    if type(events) is not int or not 0 <= events < 2**31:
        raise ValueError(f"{key} is {events!r}, not a number of events")
    return events


def _pattern(row: dict[str, Any], key: str) -> re.Pattern[str]:
    text = row.get(key, "")
    if not isinstance(text, str):
        raise ValueError(f"{key} is {text!r}, not a text")
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"{key}: {error}") from None


def load_rules(path: str | os.PathLike[str]) -> Rules:
    """A user's rules, which apply before the built-in ones. Raises :class:`SnapshotError` for an invalid file."""
    try:
        with Path(path).open(encoding="utf-8") as file:
            text = file.read(_MOST_TEXT + 1)
    except (OSError, ValueError) as error:
        raise SnapshotError(f"{os.fspath(path)}: {getattr(error, 'strerror', None) or 'not a text in UTF-8'}") from None
    try:
        if len(text) > _MOST_TEXT:
            raise ValueError(f"more than {_MOST_TEXT >> 20} MiB of rules")
        own = parse_rules(text)
    except RecursionError:
        raise SnapshotError(f"{os.fspath(path)}: values are nested too deep") from None
    except ValueError as error:
        raise SnapshotError(f"{os.fspath(path)}: {error}") from None
    return own.before(default_rules())


@functools.cache
def default_rules() -> Rules:
    text = resources.files("snapreport.timeline").joinpath("categories.toml").read_text(encoding="utf-8")
    return parse_rules(text, _BUILT_IN_KEYS)
