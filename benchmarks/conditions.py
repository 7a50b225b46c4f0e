"""Parts of conditions that decide nothing: ``python -m benchmarks.conditions findings timeline``.

While the findings of recordings are computed, each ``and``, ``or``, ``&`` and ``|`` of a package is computed without
each of its parts as well, and each ``if`` is counted by its outcome. Printed is what never changed a result: a part
that the others imply, a branch that is always or never taken. Such a part goes, unless it guards what follows (a
division, an index) or a test with a made input says what it is for. Two parts that imply each other are both printed:
only one of them can go. Recordings: those in the repository, and of the folders that are named.

``--less`` prints, of all recordings that tests/less.py makes of those in the repository, the few in which conditions
decide that do so in no whole one: what tests/recordings/less.txt lists.
"""

from __future__ import annotations

import argparse
import ast
import importlib.abc
import importlib.machinery
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import numpy as np

RECORDINGS = Path(__file__).resolve().parent.parent / "tests" / "recordings"
ENOUGH = 20
"""Times that a part has decided something: it is not looked at any more."""
NAME = "conditions_that_decide"
JOINS = {ast.And: "all_of", ast.Or: "any_of", ast.BitAnd: "both", ast.BitOr: "either"}

texts: dict[str, list[str]] = {}
"""By place (``findings/leaks.py:58:7 and``): the text of each part."""
decided: defaultdict[str, Counter[int | str]] = defaultdict(Counter)
"""By place: how often each part, by number, decided; of a test, how often it was "true" and "false"."""


def all_of(place: str, *parts: Callable[[], Any]) -> Any:
    return _joined(place, parts, stops_at=False)


def any_of(place: str, *parts: Callable[[], Any]) -> Any:
    return _joined(place, parts, stops_at=True)


def _joined(place: str, parts: Sequence[Callable[[], Any]], *, stops_at: bool) -> Any:
    """What ``and`` (stops_at: False) or ``or`` gives. The part that it stops at decides if no later one would."""
    value, counts = None, decided[place]
    counts["runs"] += 1
    for number, part in enumerate(parts):
        value = part()
        if bool(value) is stops_at:
            if counts[number] < ENOUGH and not any(_is(later, stops_at) for later in parts[number + 1 :]):
                counts[number] += 1
            break
    return value


def _is(part: Callable[[], Any], outcome: bool) -> bool:
    """Whether a later part has an outcome; not where the part before guards it from an error."""
    try:
        return bool(part()) is outcome
    except Exception:  # noqa: BLE001  whatever it may be, it has no outcome
        return False


def both(place: str, *parts: Any) -> Any:
    return _masked(place, parts, np.logical_and, lambda one, two: one & two)


def either(place: str, *parts: Any) -> Any:
    return _masked(place, parts, np.logical_or, lambda one, two: one | two)


def _masked(place: str, parts: Sequence[Any], join: np.ufunc, operator: Callable[[Any, Any], Any]) -> Any:
    value, counts = parts[0], decided[place]
    for part in parts[1:]:
        value = operator(value, part)
    if all(getattr(part, "dtype", None) == np.bool_ for part in parts):
        counts["runs"] += 1
        for number in range(len(parts)):
            others = [part for at, part in enumerate(parts) if at != number]
            if counts[number] < ENOUGH and (join.reduce(np.broadcast_arrays(*others)) != value).any():
                counts[number] += 1
    return value


def outcome(place: str, value: Any) -> Any:
    decided[place]["runs"] += 1
    decided[place]["true" if value else "false"] += 1
    return value


class Instrumented(ast.NodeTransformer):
    """A module whose conditions are calls of the functions above."""

    def __init__(self, file: str) -> None:
        self._file = file

    def _call(self, node: ast.expr, function: str, parts: Sequence[str], given: Sequence[ast.expr]) -> ast.expr:
        place = f"{self._file}:{node.lineno}:{node.col_offset} {function}"
        texts[place] = list(parts)
        called = ast.Attribute(ast.Name(NAME, ast.Load()), function, ast.Load())
        return ast.copy_location(ast.Call(called, [ast.Constant(place), *given], []), node)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        if any(isinstance(inner, ast.NamedExpr) for inner in ast.walk(node)):
            return node  # a name that a lambda gives is not seen outside of it
        nothing = ast.arguments([], [], None, [], [], None, [])
        parts = [ast.unparse(part) for part in node.values]
        later: list[ast.expr] = [ast.Lambda(nothing, self.visit(part)) for part in node.values]
        return self._call(node, JOINS[type(node.op)], parts, later)

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        if type(node.op) not in JOINS or "None" in ast.unparse(node):
            return self.generic_visit(node)
        parts = list(_chain(node, type(node.op)))
        written = [ast.unparse(part) for part in parts]
        return self._call(node, JOINS[type(node.op)], written, [self.visit(part) for part in parts])

    def visit_If(self, node: ast.If) -> ast.AST:
        before, written = node.test, ast.unparse(node.test)
        self.generic_visit(node)
        node.test = self._call(before, "outcome", [written], [node.test])
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        before, written = node.test, ast.unparse(node.test)
        self.generic_visit(node)
        node.test = self._call(before, "outcome", [written], [node.test])
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.value = self.visit(node.value) if node.value else None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.body = [self.visit(each) for each in node.body]  # neither its annotations nor its decorators
        return node


def _chain(node: ast.expr, operator: type[ast.operator]) -> Iterator[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, operator):
        yield from (*_chain(node.left, operator), node.right)
    else:
        yield node


class Loader(importlib.machinery.SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        file = "/".join(Path(self.path).parts[-2:])
        tree = Instrumented(file).visit(ast.parse(Path(self.path).read_text(encoding="utf-8")))
        return compile(ast.fix_missing_locations(tree), self.path, "exec")

    def exec_module(self, module: ModuleType) -> None:
        vars(module)[NAME] = sys.modules[__name__]
        super().exec_module(module)


class Finder(importlib.abc.MetaPathFinder):
    def __init__(self, packages: Sequence[str]) -> None:
        self._prefixes = tuple(f"snapreport.{package}." for package in packages)

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: object = None) -> ModuleSpec | None:
        spec = importlib.machinery.PathFinder.find_spec(fullname, path) if fullname.startswith(self._prefixes) else None
        if spec and spec.origin:
            spec.loader = Loader(fullname, spec.origin)
        return spec


def undecided() -> Iterator[str]:
    for place, parts in sorted(texts.items()):
        counts = decided[place]
        if not counts["runs"]:
            continue
        if place.endswith("outcome"):
            yield from (f"{place}: never {one}: {parts[0]}" for one in ("true", "false") if not counts[one])
        else:
            yield from (f"{place}: {part}" for number, part in enumerate(parts) if not counts[number])


def outcomes() -> set[tuple[str, int | str]]:
    """(place, part or outcome) of all that has decided something."""
    return {(place, part) for place, counts in decided.items() for part in counts if part != "runs"}


def of_less(known: set[tuple[str, int | str]]) -> Iterator[str]:
    """The recordings that show less in which most decides that is not ``known`` yet, until all does that can."""
    import answers
    import less

    shown: dict[str, set[tuple[str, int | str]]] = {}
    for path in answers.paths():
        for way in less.WAYS:
            decided.clear()
            answers.findings(answers.snapreport.load(less.made(path, way)))
            shown[f"{answers.name_of(path)}, {way}"] = outcomes() - known
    while (name := max(shown, key=lambda each: len(shown[each]))) and (new := shown[name]):
        yield f"{name}: {len(new)}"
        shown = {each: shows - new for each, shows in shown.items()}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.conditions", description=__doc__)
    parser.add_argument("packages", nargs="+", help="findings, timeline")
    parser.add_argument("--recordings", nargs="*", type=Path, default=[], help="folders of more of them")
    parser.add_argument("--less", action="store_true", help="of recordings that show less, in about ten minutes")
    options = parser.parse_args()
    sys.meta_path.insert(0, Finder(options.packages))

    import snapreport
    from snapreport.errors import SnapshotError
    from snapreport.findings.run import findings

    count = 0
    for folder in (RECORDINGS, *options.recordings):
        for path in sorted(folder.rglob("*.pickle*")):
            try:
                findings(snapreport.load(path))
                count += 1
            except SnapshotError as error:
                print(f"{path.name}: {error}", file=sys.stderr)
    if options.less:
        print("\n".join(of_less(outcomes())))
        return
    lines = list(undecided())
    print("\n".join(lines))
    print(f"{len(lines)} parts and branches of {len(texts)} conditions decide nothing in {count} recordings")


if __name__ == "__main__":
    main()
