"""The tree of a program's modules, with the memory of each at the peak."""

from __future__ import annotations

from collections import defaultdict
from typing import Literal

import polars as pl
from msgspec import UNSET, UnsetType, convert, to_builtins

from snapreport.contracts.stats import ModuleMemory
from snapreport.timeline.interface import Timeline
from snapreport.timeline.lifetimes import is_live_at

# The categories that a module has columns for; the bytes of others are ``other_bytes``.
COLUMNS = ("parameter", "gradient", "optimizer state", "activation", "temporary")


def module_tree(timeline: Timeline) -> list[ModuleMemory]:
    """A row for each module that allocated, or below which one did, parents first and in the program's order; where
    the recorder noted none, for each line of a ``forward`` (:func:`layer_paths`) in order of their first allocations.
    """
    own = (
        timeline.allocations.filter(pl.col("module").is_not_null())
        .with_columns(live=is_live_at(timeline.peak_event))
        .group_by("module", "category", maintain_order=True)
        .agg(bytes=pl.col("size").filter("live").sum(), count=pl.len())
    )
    sums: dict[str, defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
    for module, category, size, count in own.iter_rows():
        parts = module.split(".")
        for end in range(1, len(parts) + 1):
            row = sums[".".join(parts[:end])]
            row[_key(category)] += size
            row["peak_bytes"] += size
            row["allocations"] += count
    recorder = timeline.recording.recorder
    named = dict(recorder.modules.iter_rows()) if recorder else {}
    # The order of named_modules(), then what was only seen running.
    order = {path: number for number, path in enumerate(_with_parents([*named, *(sorted(sums) if named else sums)]))}
    keys: dict[str, tuple[int, ...]] = {}
    for path in sums:  # after those above it
        parent, dot, _ = path.rpartition(".")
        keys[path] = (*(keys[parent] if dot else ()), order[path])
    paths = sorted(sums, key=keys.__getitem__)
    identical = _identical(paths, named, sums)
    return [
        convert({"module": path, "kind": named.get(path), "like": identical.get(path), **sums[path]}, ModuleMemory)
        for path in paths
    ]


def modules_source(timeline: Timeline) -> Literal["recorded", "inferred"] | UnsetType:
    """How the modules of a device are known; unset where none are."""
    source = timeline.allocations["module_source"].drop_nulls()
    return convert(source[0], Literal["recorded", "inferred"]) if len(source) else UNSET


def numbered_modules(modules: pl.Series, sizes: pl.Series) -> list[str]:
    """The numbered siblings ("layers.0", "layers.1", …) in which these allocations were made; empty where less than
    nine tenths of their bytes lie in one such family, or the family has one member.
    """
    found = pl.DataFrame({"member": modules.str.extract(r"^((?:.*?\.)?\d+)(?:\.|$)"), "size": sizes}).drop_nulls()
    found = found.with_columns(family=pl.col("member").str.replace(r"\d+$", ""))
    families = found.group_by("family").agg(pl.col("size").sum(), pl.col("member").unique()).sort("size")
    if not len(families):
        return []
    _, size, members = families.row(-1)
    is_one = 10 * size >= 9 * int(sizes.sum()) and len(members) > 1
    return sorted(members, key=lambda name: int(name.rpartition(".")[2])) if is_one else []


def modules_table(rows: list[ModuleMemory]) -> pl.DataFrame:
    """The rows as a frame, with the columns of :class:`ModuleMemory`."""
    text = {"module": pl.String, "kind": pl.String, "like": pl.String}
    schema = {name: text.get(name, pl.Int64) for name in ModuleMemory.__struct_fields__}
    return pl.DataFrame([to_builtins(row) for row in rows], schema)


def _key(category: str) -> str:
    return f"{category.replace(' ', '_')}_bytes" if category in COLUMNS else "other_bytes"


def _with_parents(paths: list[str]) -> list[str]:
    """``paths``, each after those above it, without repetitions."""
    found: dict[str, None] = {}
    for path in paths:
        parts = path.split(".")
        found.update((".".join(parts[:end]), None) for end in range(1, len(parts) + 1))
    return list(found)


def _identical(paths: list[str], named: dict[str, str], sums: dict[str, defaultdict[str, int]]) -> dict[str, str]:
    """Of numbered siblings, those built like an earlier one → the first such: the same classes and bytes of parameters
    at the same places below.
    """
    below: dict[str, list[tuple[str, str | None, int]]] = defaultdict(list)
    for path in paths:
        parts = path.split(".")
        for end in range(1, len(parts) + 1):
            if parts[end - 1].isdigit():
                inner = ".".join(parts[end:])
                below[".".join(parts[:end])].append((inner, named.get(path), sums[path]["parameter_bytes"]))
    firsts: dict[tuple[object, ...], str] = {}
    result = {}
    for path in paths:
        if path in below:
            parent = path.rpartition(".")[0]
            first = firsts.setdefault((parent, *sorted(below[path], key=str)), path)
            if first != path:
                result[path] = first
    return result
