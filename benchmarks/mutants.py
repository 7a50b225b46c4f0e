"""How many one-line changes of the code the tests notice: ``python -m benchmarks.mutants allocator --count 40``.

Each mutant is one change of one operator, constant or condition in a copy of the package, with the test files of its
package run against it, without recordings of ``../shared``. Survivors are printed: each is a missing test, or says the
same as before.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Files that state what a package does; all others test it only through the rest.
TESTS = {
    "allocator": ["allocator_model", "whatif", "exact_limits"],
    "timeline": ["levels", "blocks", "annotations", "graphs", "repeated_tensors", "categories", "steps_of_optimizers",
                 "activity", "exact_limits"],
    "jobs": ["jobs", "jobs_gate", "jobs_command", "exact_limits"],
    "findings": ["findings_fragmentation", "findings_leaks", "findings_oom", "findings_peak", "advice_rules",
                 "findings_advice", "opening", "exact_limits", "witnesses"],
}  # fmt: skip
COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}  # fmt: skip


def mutants(source: str) -> Iterator[tuple[int, str, str]]:
    """(line, what changed, the changed source) for each place that can be changed; annotations are left alone."""
    tree = ast.parse(source)
    ignored = {id(part) for node in ast.walk(tree) for part in _annotations(node)}
    for node in ast.walk(tree):
        if id(node) in ignored:
            continue
        before = ast.unparse(node) if isinstance(node, ast.expr) else ""
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in COMPARED:
            operator = node.ops[0]
            node.ops = [COMPARED[type(operator)]()]
            yield node.lineno, f"{before} -> {ast.unparse(node)}", ast.unparse(tree)
            node.ops = [operator]
        elif isinstance(node, ast.BinOp) and type(node.op) in COMPUTED:
            computed, node.op = node.op, COMPUTED[type(node.op)]()
            yield node.lineno, f"{before} -> {ast.unparse(node)}", ast.unparse(tree)
            node.op = computed
        elif isinstance(node, ast.BoolOp):
            joined, node.op = node.op, ast.Or() if isinstance(node.op, ast.And) else ast.And()
            yield node.lineno, f"{before} -> {ast.unparse(node)}", ast.unparse(tree)
            node.op = joined
        elif isinstance(node, ast.Constant) and type(node.value) in (int, float, bool):
            value = node.value
            node.value = not value if type(value) is bool else value + 1 if type(value) is int else value / 4
            yield node.lineno, f"{before} -> {ast.unparse(node)}", ast.unparse(tree)
            node.value = value


def _annotations(node: ast.AST) -> Iterator[ast.AST]:
    """What only a type checker reads."""
    for name in ("annotation", "returns"):
        part = getattr(node, name, None)
        if isinstance(part, ast.AST):
            yield from ast.walk(part)


def killed(copy: Path, tests: list[str]) -> bool:
    """Whether the tests fail on the package in ``copy``; a run that never ends counts as failed."""
    nothing = str(copy / "none")
    variables = {"PYTHONPATH": str(copy), "SNAPREPORT_REAL_SNAPSHOTS": nothing, "SNAPREPORT_RECORDED": nothing}
    call = [
        sys.executable,
        "-m",
        "pytest",
        "-c",
        "tests/pytest.ini",
        "-x",
        *(f"tests/test_{name}.py" for name in tests),
    ]
    try:
        done = subprocess.run(
            call, cwd=copy, env={**os.environ, **variables}, capture_output=True, timeout=900, check=False
        )
    except subprocess.TimeoutExpired:
        return True
    return done.returncode != 0


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutants", description=__doc__)
    parser.add_argument("package", choices=sorted(TESTS))
    parser.add_argument("--count", type=int, default=40, help="how many, chosen at random; default 40")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--files", nargs="*", default=[], help="of these files of the package alone")
    options = parser.parse_args()
    files = sorted((ROOT / "snapreport" / options.package).glob("*.py"))
    places = [
        (path, number)
        for path in files
        if path.name in options.files or not options.files
        for number, _ in enumerate(mutants(path.read_text(encoding="utf-8")))
    ]
    chosen = random.Random(options.seed).sample(places, min(options.count, len(places)))
    found = 0
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / "copy"
        leave = shutil.ignore_patterns("node_modules", ".git", ".venv*", "__pycache__")
        shutil.copytree(ROOT, copy, ignore=leave)
        if killed(copy, TESTS[options.package]):
            sys.exit("the tests fail without a change")
        for done, (path, number) in enumerate(chosen, 1):
            source = path.read_text(encoding="utf-8")
            line, change, changed = list(mutants(source))[number]
            target = copy / path.relative_to(ROOT)
            target.write_text(changed, encoding="utf-8")
            if killed(copy, TESTS[options.package]):
                found += 1
            else:
                print(f"survived: {path.name}:{line}: {change}", flush=True)
            target.write_text(source, encoding="utf-8")
            if done % 10 == 0:
                print(f"{found} of {done} noticed", flush=True)
    print(f"{options.package}: {found} of {len(chosen)} noticed, {100 * found / max(1, len(chosen)):.0f}%")


if __name__ == "__main__":
    main()
