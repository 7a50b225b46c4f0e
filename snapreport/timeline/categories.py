"""What each allocation is for: by the stack that made it, then by how long it lived. The rules are data, ``categories.toml``."""

from __future__ import annotations

import functools
import re
import tomllib
from dataclasses import dataclass
from importlib import resources

import numpy as np
import polars as pl

from snapreport.reading.events import enum_series
from snapreport.reading.recording import Recording

CATEGORIES = (
    "unknown", "parameter", "gradient", "optimizer state", "activation", "temporary", "input", "communication",
)  # fmt: skip
# What others call these in a snapshot's own ``category``, lower case.
_SYNONYMS = {
    "parameters": "parameter", "params": "parameter", "weight": "parameter", "weights": "parameter", "param": "parameter",
    "gradients": "gradient", "grad": "gradient", "grads": "gradient",
    "optimizer_state": "optimizer state", "optimizer": "optimizer state", "optimizer_states": "optimizer state",
    "activations": "activation", "temp": "temporary", "temporaries": "temporary", "inputs": "input",
    "autograd_detail": "temporary",
}  # fmt: skip


@dataclass(frozen=True)
class Rule:
    """A stack that has a frame matching both patterns is of ``category``, or ``short`` for those that live shortly."""

    file: re.Pattern[str]
    function: re.Pattern[str]
    category: int
    short: int


@dataclass(frozen=True)
class Rules:
    short_lived_events: int
    rules: tuple[Rule, ...]


def parse_rules(text: str) -> Rules:
    """Rules from the text of a TOML file like ``categories.toml``. Raises ValueError (also KeyError, re.error) for bad ones."""
    data = tomllib.loads(text)
    rules = []
    for rule in data["rule"]:
        category = CATEGORIES.index(rule["category"])
        short = CATEGORIES.index(rule["short"]) if "short" in rule else category
        rules.append(Rule(re.compile(rule.get("file", "")), re.compile(rule.get("function", "")), category, short))
    return Rules(int(data["short_lived_events"]), tuple(rules))


@functools.cache
def default_rules() -> Rules:
    return parse_rules(resources.files("snapreport.timeline").joinpath("categories.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class StackCategories:
    """UInt8 category of each stack: ``long``, and ``short`` for what lives at most ``short_lived_events`` events."""

    long: np.ndarray
    short: np.ndarray
    short_lived_events: int


def stack_categories(recording: Recording, rules: Rules | None = None) -> StackCategories:
    """What the rules (ours where none are given) say of each stack. Patterns run once for each distinct frame."""
    rules = rules or default_rules()
    files = recording.frames["filename"].str.replace_all("\\", "/", literal=True).to_list()
    names = recording.frames["name"].to_list()
    stacks = len(recording.stack_offsets) - 1
    long, short = np.zeros(stacks, np.uint8), np.zeros(stacks, np.uint8)
    undecided = np.ones(stacks, bool)
    of_stack = np.repeat(np.arange(stacks), np.diff(recording.stack_offsets))
    for rule in rules.rules:
        in_file, in_function = rule.file.search, rule.function.search
        hit = np.fromiter(
            (bool(in_function(name) and in_file(file)) for file, name in zip(files, names, strict=True)), bool, len(files)
        )
        matched = np.zeros(stacks, bool)
        matched[of_stack[hit[recording.stack_frames]]] = True
        matched &= undecided
        long[matched], short[matched] = rule.category, rule.short
        undecided &= ~matched
    return StackCategories(long, short, rules.short_lived_events)


def categorise(by_stack: StackCategories, stack: np.ndarray, lifetime: np.ndarray, own: pl.Series) -> pl.Series:
    """Enum(``CATEGORIES``) for each allocation.

    stack: ids. lifetime: events lived, 0 or less where birth or death is not in the trace. own: the snapshot's own
    ``category`` texts, null where there are none; those that name none of ours count as unknown.
    """
    is_short = (lifetime > 0) & (lifetime <= by_stack.short_lived_events)
    codes = np.where(is_short, by_stack.short[stack], by_stack.long[stack])
    if own.null_count() < len(own):
        known = {name: i for i, name in enumerate(CATEGORIES)}
        names = own.drop_nulls().unique().to_list()
        mapped = {name: known.get(_SYNONYMS.get(name.lower(), name.lower()), 0) for name in names}
        given = own.replace_strict(mapped, default=None, return_dtype=pl.UInt8)
        codes = given.fill_null(pl.Series(codes)).to_numpy()
    return enum_series("category", codes, CATEGORIES)
