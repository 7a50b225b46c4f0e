"""What each allocation is for: by the stack that made it, then by how long it lived. The rules are data,
``categories.toml``.
"""

from __future__ import annotations

import functools
import os
import re
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from snapreport.errors import SnapshotError
from snapreport.reading.events import enum_series
from snapreport.reading.recording import Recording

CATEGORIES = (
    "unknown", "parameter", "gradient", "optimizer state", "activation", "temporary", "input", "communication",
)  # fmt: skip
# What others call these in a snapshot's own ``category``, lower case.
_SYNONYMS = {
    "parameters": "parameter", "params": "parameter", "weight": "parameter", "weights": "parameter",
    "param": "parameter",
    "gradients": "gradient", "grad": "gradient", "grads": "gradient",
    "optimizer_state": "optimizer state", "optimizer": "optimizer state", "optimizer_states": "optimizer state",
    "activations": "activation", "temp": "temporary", "temporaries": "temporary", "inputs": "input",
    "autograd_detail": "temporary",
}  # fmt: skip


@dataclass(frozen=True)
class Rule:
    """A stack that has a frame matching both patterns is of ``category``, or ``short`` for those that live shortly.

    events: how many events a life is short of; None: the file's ``short_lived_events``.
    """

    file: re.Pattern[str]
    function: re.Pattern[str]
    category: int
    short: int
    events: int | None = None


@dataclass(frozen=True)
class Rules:
    """rules: by the stack that allocated. freed: by the stack that freed, for what the first leave unknown."""

    short_lived_events: int
    rules: tuple[Rule, ...]
    freed: tuple[Rule, ...] = ()

    def before(self, later: Rules) -> Rules:
        """These rules, then those of ``later``, whose own ``short_lived_events`` hold for them."""
        kept = tuple(replace(r, events=later.short_lived_events if r.events is None else r.events) for r in later.rules)
        return Rules(self.short_lived_events, self.rules + kept, self.freed + later.freed)


_RULE_KEYS = {"file", "function", "category", "short", "short_lived_events"}


def parse_rules(text: str) -> Rules:
    """Rules from the text of a TOML file like ``categories.toml``. Raises ValueError that says what is wrong, and
    where.
    """
    data = tomllib.loads(text)
    if unknown := sorted(data.keys() - {"short_lived_events", "rule", "freed"}):
        raise ValueError(f"{unknown[0]}: no such setting; there are short_lived_events, rule and freed")
    if not data.get("rule") and not data.get("freed"):
        raise ValueError("no [[rule]] in it")
    default = (
        _events(data, "short_lived_events") if "short_lived_events" in data else default_rules().short_lived_events
    )
    return Rules(default, _rules(data, "rule"), _rules(data, "freed"))


def _rules(data: dict[str, Any], table: str) -> tuple[Rule, ...]:
    rows = data.get(table, [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError(f"{table}: not a list of tables; write [[{table}]]")
    result = []
    for number, row in enumerate(rows, 1):
        try:
            result.append(_rule(row))
        except ValueError as error:
            raise ValueError(f"{table} {number}: {error}") from None
    return tuple(result)


def _rule(row: dict[str, Any]) -> Rule:
    if unknown := sorted(row.keys() - _RULE_KEYS):
        raise ValueError(f"{unknown[0]}: no such key; there are {', '.join(sorted(_RULE_KEYS))}")
    if "category" not in row:
        raise ValueError("no category")
    if "file" not in row and "function" not in row:
        raise ValueError("neither file nor function: it would match every stack")
    category = _category(row, "category")
    events = _events(row, "short_lived_events") if "short_lived_events" in row else None
    short = _category(row, "short") if "short" in row else category
    return Rule(_pattern(row, "file"), _pattern(row, "function"), category, short, events)


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
    except re.error as error:
        raise ValueError(f"{key}: {error}") from None


def load_rules(path: str | os.PathLike[str]) -> Rules:
    """A user's rules, which are asked before the built-in ones. Raises :class:`SnapshotError` for a file that is
    none.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise SnapshotError(f"{os.fspath(path)}: {getattr(error, 'strerror', None) or 'not a text in UTF-8'}") from None
    try:
        own = parse_rules(text)
    except ValueError as error:
        raise SnapshotError(f"{os.fspath(path)}: {error}") from None
    return own.before(default_rules())


@functools.cache
def default_rules() -> Rules:
    return parse_rules(resources.files("snapreport.timeline").joinpath("categories.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class StackCategories:
    """What the rules say of each stack.

    long: UInt8 category; short: of what lives at most ``events`` (Int32) events; freed: of what is unknown by these and
    was freed by the stack.
    """

    long: np.ndarray
    short: np.ndarray
    events: np.ndarray
    freed: np.ndarray


def stack_categories(recording: Recording, rules: Rules | None = None) -> StackCategories:
    """What the rules (ours where none are given) say of each stack. Patterns run once for each distinct frame."""
    rules = rules or default_rules()
    first = _first_match(recording, rules.rules)
    freed = _first_match(recording, rules.freed)

    def of(table: tuple[Rule, ...], match: np.ndarray, value: Callable[[Rule], int], dtype: type) -> np.ndarray:
        values: np.ndarray = np.array([*map(value, table), 0], dtype)[match]  # no match is the last
        return values

    def events(rule: Rule) -> int:
        return rules.short_lived_events if rule.events is None else rule.events

    return StackCategories(
        of(rules.rules, first, lambda r: r.category, np.uint8),
        of(rules.rules, first, lambda r: r.short, np.uint8),
        of(rules.rules, first, events, np.int32),
        of(rules.freed, freed, lambda r: r.category, np.uint8),
    )


def _first_match(recording: Recording, rules: Sequence[Rule]) -> np.ndarray:
    """Int64 number of the first rule that matches each stack, ``len(rules)`` where none does."""
    files = recording.frames["filename"].str.replace_all("\\", "/", literal=True).to_list()
    names = recording.frames["name"].to_list()
    stacks = len(recording.stack_offsets) - 1
    result = np.full(stacks, len(rules))
    of_stack = np.repeat(np.arange(stacks), np.diff(recording.stack_offsets))
    for number, rule in reversed(list(enumerate(rules))):
        in_file, in_function = rule.file.search, rule.function.search
        hit = np.fromiter(
            (bool(in_function(name) and in_file(file)) for file, name in zip(files, names, strict=True)),
            bool,
            len(files),
        )
        result[of_stack[hit[recording.stack_frames]]] = number
    return result


def categorise(
    by_stack: StackCategories, stack: np.ndarray, free_stack: np.ndarray, lifetime: np.ndarray, own: pl.Series
) -> pl.Series:
    """Enum(``CATEGORIES``) for each allocation.

    stack, free_stack: ids, 0 where not known. lifetime: events lived, 0 or less where birth or death is not in the
    trace. own: the snapshot's own ``category`` texts, null where there are none; those that name none of ours count as
    unknown.
    """
    is_short = (lifetime > 0) & (lifetime <= by_stack.events[stack])
    codes = np.where(is_short, by_stack.short[stack], by_stack.long[stack])
    # A recorder that keeps no stacks of frees gives a free the stack of its alloc, which says nothing of the free.
    codes = np.where((codes == 0) & (free_stack != stack), by_stack.freed[free_stack], codes)
    if own.null_count() < len(own):
        known = {name: i for i, name in enumerate(CATEGORIES)}
        names = own.drop_nulls().unique().to_list()
        mapped = {name: known.get(_SYNONYMS.get(name.lower(), name.lower()), 0) for name in names}
        given = own.replace_strict(mapped, default=None, return_dtype=pl.UInt8)
        codes = given.fill_null(pl.Series(codes)).to_numpy()
    return enum_series("category", codes, CATEGORIES)
