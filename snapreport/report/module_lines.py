"""The tree of a program's modules as lines of text: numbered siblings that are built alike are one row."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from msgspec import Struct, field

from snapreport.contracts.stats import DeviceStats, ModuleMemory
from snapreport.number_format import bytes_text, share_text
from snapreport.timeline.module_tree import COLUMNS

MIN_SHARE = 0.01
"""Of the largest module: below this a row says little, and is counted instead."""
MAX_ROWS = 24
_OTHER = "other_bytes"
_KEYS = tuple(f"{name.replace(' ', '_')}_bytes" for name in COLUMNS)


class ModuleRow(Struct):
    """Modules of one place in the tree. ``name``: their part of the path, "0–9" of ten that are built alike;
    ``modules``: so many; ``depth``: rows above it.
    """

    name: str
    kind: str
    depth: int
    modules: int
    bytes: dict[str, int]
    below: list[ModuleRow] = field(default_factory=list)


def modules_title(stats: DeviceStats, of: str = "") -> str:
    """What the tree is called; "" where there is none, or none that says more than stack traces do."""
    if stats.modules_source == "recorded":
        return f"Modules at the peak{of}"
    has_layers = any(part.isdigit() for one in stats.modules or () for part in one.module.split("."))
    return f"Lines of forward at the peak{of}, layers inferred" if has_layers else ""


def module_rows(modules: list[ModuleMemory]) -> list[ModuleRow]:
    """The tops of the tree of ``modules``, which are as :func:`snapreport.timeline.module_tree.module_tree` has them.
    What stands below modules that are one row is one row, too.
    """
    children: defaultdict[str, list[ModuleMemory]] = defaultdict(list)
    for module in modules:
        children[module.module.rpartition(".")[0]].append(module)

    def rows(parents: list[str], depth: int) -> list[ModuleRow]:
        alike: defaultdict[str, list[ModuleMemory]] = defaultdict(list)
        for parent in parents:
            for child in children[parent]:
                alike[(child.like or child.module).rpartition(".")[2]].append(child)
        return [
            ModuleRow(
                name=_name(members),
                kind=members[0].kind or "",
                depth=depth,
                modules=len(members),
                bytes={key: sum(getattr(one, key) for one in members) for key in ("peak_bytes", *_KEYS, _OTHER)},
                below=rows([one.module for one in members], depth + 1),
            )
            for members in alike.values()
        ]

    return rows([""], 0)


def _name(members: list[ModuleMemory]) -> str:
    names = list(dict.fromkeys(one.module.rpartition(".")[2] for one in members))
    return names[0] if len(names) == 1 else f"{names[0]}–{names[-1]}"


def module_cells(modules: list[ModuleMemory], peak: int) -> list[list[str]]:
    """A head, and a row of cells for each module with a share of the peak that matters, parents first: indented name,
    bytes, share of ``peak``, and the bytes of each category that any of them has; last what no module made.
    """
    tops = module_rows(modules)
    least = MIN_SHARE * max((row.bytes["peak_bytes"] for row in tops), default=0)
    shown = [row for row in _all(tops) if row.bytes["peak_bytes"] >= max(least, 1)]
    if len(shown) > MAX_ROWS:  # the largest, and all above them, which are larger
        largest = sorted(shown, key=lambda row: (-row.bytes["peak_bytes"], row.depth))[:MAX_ROWS]
        kept = set(map(id, largest))
        shown = [row for row in shown if id(row) in kept]
    keys = [key for key in (*_KEYS, _OTHER) if any(row.bytes[key] for row in shown)]
    outside = peak - sum(row.bytes["peak_bytes"] for row in tops)
    cells = [
        [f"{'  ' * row.depth}{_title(row)}", *_numbers(row.bytes["peak_bytes"], peak), *_amounts(row, keys)]
        for row in shown
    ]
    if outside >= max(least, 1):
        cells.append(["without a module", *_numbers(outside, peak), *("" for _ in keys)])
    head = ["", "peak", "share", *(key.removesuffix("_bytes").replace("_", " ") for key in keys)]
    return [head, *cells]


def _numbers(size: int, peak: int) -> list[str]:
    return [bytes_text(size), share_text(size, peak)]


def _amounts(row: ModuleRow, keys: list[str]) -> list[str]:
    return [bytes_text(row.bytes[key]) if row.bytes[key] else "–" for key in keys]


def _all(rows: list[ModuleRow]) -> Iterator[ModuleRow]:
    for row in rows:
        yield row
        yield from _all(row.below)


def _title(row: ModuleRow) -> str:
    if row.name == row.kind and not row.below:  # a model has the name of its class, and stands beside its modules
        return f"{row.name} itself"
    alike = "" if "–" not in row.name and row.modules == 1 else f" × {row.modules}"
    return f"{row.name}{alike}{f'  {row.kind}' if row.kind else ''}"
