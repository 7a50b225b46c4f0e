"""How many one-line changes of the code the tests notice: ``python -m benchmarks.mutants allocator --count 60``.

Each mutant is one change of one operator, constant or condition in a copy of the package. Tests that call the changed
function run against it, quickest first, until one fails; without recordings of ``../shared``, and without those that
need a browser or another process. Which test calls what is recorded once, in the file of ``--calls``. Survivors are
printed: each is a missing test, or says the same as before.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import os
import pickle
import random
import re
import resource
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import CodeType, FrameType

# Imported before a process is forked for each mutant, which imports only the package and its tests.
import polars  # noqa: F401
import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("allocator", "findings", "jobs", "timeline")
NEEDS_MORE = re.compile(r"chromium|torch_cuda|subprocess|fake_torch|firefox|dask|mcp|hostile|ProcessPool")
Calls = dict[str, tuple[float, set[tuple[str, str]]]]  # test: seconds, and the (file, function) that it calls
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


def function_at(source: str, line: int) -> str:
    """The outermost function or method around a line, as in ``co_qualname``; "" for what runs when it is imported."""
    for node in ast.parse(source).body:
        for prefix, inner in [
            ("", node),
            *((f"{node.name}.", n) for n in getattr(node, "body", ()) if isinstance(node, ast.ClassDef)),
        ]:
            if isinstance(inner, ast.FunctionDef) and inner.lineno <= line <= (inner.end_lineno or line):
                return prefix + inner.name
    return ""


def needs_more(item: pytest.Item) -> bool:
    """Whether a test or a fixture of it needs a browser or another process."""
    if not isinstance(item, pytest.Function):
        return True
    fixtures = item._fixtureinfo.name2fixturedefs.values()
    functions = [item.function, *(definition.func for definitions in fixtures for definition in definitions)]
    return any(NEEDS_MORE.search(inspect.getsource(function)) for function in functions)


class Recorder:
    """A plugin of pytest that records which functions of the package each test calls."""

    def __init__(self, folder: Path) -> None:
        self.calls: Calls = {}
        self.failed: set[str] = set()
        self._folder = f"{folder}{os.sep}"
        self._seen: set[CodeType] = set()

    def _called(self, frame: FrameType, _event: str, _argument: object) -> None:
        self._seen.add(frame.f_code)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if not needs_more(item)]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._seen.clear()
        threading.settrace(self._called)
        sys.settrace(self._called)
        began = time.process_time()
        result = yield
        seconds = time.process_time() - began
        sys.settrace(None)
        own = [code for code in self._seen if code.co_filename.startswith(self._folder)]
        functions = {(c.co_filename[len(self._folder) :], c.co_qualname.split(".<locals>")[0]) for c in own}
        self.calls[item.nodeid] = (seconds, functions)
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:  # where it is recorded: it counts objects, for example
            self.failed.add(report.nodeid)


class Chosen:
    """A plugin of pytest that runs these tests alone, in this order."""

    def __init__(self, tests: list[str]) -> None:
        self._order = {test: place for place, test in enumerate(tests)}

    @pytest.hookimpl(wrapper=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Iterator[None]:
        result = yield
        items[:] = sorted((i for i in items if i.nodeid in self._order), key=lambda item: self._order[item.nodeid])
        return result


def forked(copy: Path, seconds: float, work: Callable[[], int]) -> int:
    """The exit code of ``work`` in another process, which may use so much of the processor; -1 if it was ended."""
    child = os.fork()
    if not child:
        code = 1
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time() + seconds) + 1,) * 2)
            with open(os.devnull, "w") as nothing:
                os.dup2(nothing.fileno(), 1)
                os.dup2(nothing.fileno(), 2)
            os.chdir(copy)
            sys.path.insert(0, str(copy))
            nowhere = str(copy / "none")
            os.environ |= {
                "PYTHONPATH": str(copy),
                "SNAPREPORT_REAL_SNAPSHOTS": nowhere,
                "SNAPREPORT_RECORDED": nowhere,
            }
            code = work()
        finally:
            os._exit(code)
    status = os.waitpid(child, 0)[1]
    return os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else -1


def record(file: str, into: Path, copy: Path) -> int:
    recorder = Recorder(copy / "snapreport")
    code = pytest.main(["-c", "tests/pytest.ini", "-p", "no:xdist", f"tests/{file}"], plugins=[recorder])
    calls = {test: called for test, called in recorder.calls.items() if test not in recorder.failed}
    into.write_bytes(pickle.dumps(calls))
    return 0 if calls else int(code)


def recorded_calls(copy: Path, known: Path) -> Calls:
    """What each test calls, from the file ``known`` or by running them, one file after another."""
    if known.exists():
        calls: Calls = pickle.loads(known.read_bytes())
        return calls
    calls = {}
    part = copy / "calls"
    for path in sorted((copy / "tests").glob("test_*.py")):
        code = forked(copy, 600, partial(record, path.name, part, copy))
        print(f"{path.name}: {'recorded' if code == 0 else 'left out, it fails or has nothing to run'}", flush=True)
        if code == 0:
            calls |= pickle.loads(part.read_bytes())
    known.write_bytes(pickle.dumps(calls))
    return calls


def run_tests(tests: list[str]) -> int:
    files = dict.fromkeys(f"tests/{test.partition('::')[0]}" for test in tests)
    return int(pytest.main(["-c", "tests/pytest.ini", "-x", "-p", "no:xdist", *files], plugins=[Chosen(tests)]))


def tests_of(calls: Calls, file: str, function: str, seconds: float) -> list[str]:
    """Tests that call a function of a file, or anything of it (""); quickest first, as many as take so long."""
    calling = {t for t, (_, called) in calls.items() if any(f == file and g == (function or g) for f, g in called)}
    # What a test of a file has computed, others of it may share.
    beside = {test.partition("::")[0] for test in calling}
    chosen: list[str] = []
    for test in sorted(calls, key=lambda test: (test not in calling, calls[test][0])):
        if test in calling or test.partition("::")[0] in beside:
            seconds -= calls[test][0]
            if chosen and seconds < 0:
                break
            chosen.append(test)
    return chosen


def survivors(package: str, options: argparse.Namespace, copy: Path, calls: Calls) -> tuple[int, int]:
    """(mutants tried, mutants that no test noticed), the latter printed."""
    files = sorted((ROOT / "snapreport" / package).glob("*.py"))
    places = [
        (path, number)
        for path in files
        if path.name in options.files or not options.files
        for number, _ in enumerate(mutants(path.read_text(encoding="utf-8")))
    ]
    chosen = random.Random(options.seed).sample(places, min(options.count, len(places)))
    survived = 0
    for turn, (path, number) in enumerate(chosen, 1):
        source = path.read_text(encoding="utf-8")
        line, change, changed = list(mutants(source))[number]
        file = str(path.relative_to(ROOT / "snapreport"))
        tests = tests_of(calls, file, function_at(source, line), options.seconds)
        target = copy / "snapreport" / file
        target.write_text(changed, encoding="utf-8")
        os.utime(target, (turn, turn))  # compiled files are told apart by their source's size and second
        limit = 20 + 4 * sum(calls[test][0] for test in tests)
        if not tests or forked(copy, limit, partial(run_tests, tests)) == 0:
            survived += 1
            print(f"survived {len(tests)} tests: {path.name}:{line}: {change}", flush=True)
        target.write_text(source, encoding="utf-8")
        os.utime(target, (0, 0))
        if turn % 10 == 0:
            print(f"{turn - survived} of {turn} noticed", flush=True)
    return len(chosen), survived


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutants", description=__doc__)
    parser.add_argument("packages", nargs="*", help=f"of {', '.join(PACKAGES)}; default all")
    parser.add_argument("--count", type=int, default=60, help="how many of each, chosen at random; default 60")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--files", nargs="*", default=[], help="of these files alone")
    parser.add_argument("--seconds", type=float, default=60, help="of processor time, for a mutant's tests; default 60")
    parser.add_argument("--calls", type=Path, default=Path(tempfile.gettempdir()) / "snapreport-calls.pickle")
    options = parser.parse_args()
    table = []
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / "copy"
        leave = shutil.ignore_patterns("node_modules", ".git", ".venv*", "__pycache__", ".mypy_cache")
        shutil.copytree(ROOT, copy, ignore=leave)
        calls = recorded_calls(copy, options.calls)
        for package in options.packages or PACKAGES:
            tried, survived = survivors(package, options, copy, calls)
            table.append(
                f"{package}: {tried - survived} of {tried} noticed, {100 * (1 - survived / max(1, tried)):.0f}%"
            )
    print("\n".join(table))


if __name__ == "__main__":
    main()
