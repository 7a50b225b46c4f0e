"""How many one-line changes of the code the tests notice: ``python -m benchmarks.mutants allocator --count 60``.

Each mutant is one change of one operator, constant or condition in a copy of the package. Tests that run the changed
line do so against it until one fails; without recordings of ``../shared``, and without those that need a browser or
another process. Which test runs which lines is recorded once for each file of tests, in the folder of ``--calls``. All
tests are collected once: each mutant is a fork, in which functions get their changed code. What runs on import is
changed on disk, and a new interpreter runs the tests of the lines that name it. A test that fails without the change as
well notices nothing. Survivors are printed: each is a missing test, or says the same as before.
"""

from __future__ import annotations

import argparse
import ast
import gc
import importlib
import inspect
import os
import pickle
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import CodeType, FunctionType

# Imported before a process is forked for each file of tests, which imports only the package and these tests.
import coverage
import polars  # noqa: F401
import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("allocator", "findings", "jobs", "timeline")
NEEDS_MORE = re.compile(
    r"chromium|torch_cuda|subprocess|fake_torch|firefox|dask|mcp|hostile|ProcessPool|(?<!in_)process\("
)
ARGUMENTS = ["-c", "tests/pytest.ini", "-x", "-p", "no:xdist"]
MEMORY = 12 << 30
"""Bytes of address space for the tests of a mutant, some of which would fill the machine."""
Lines = dict[str, int]  # by file of the package: a bit for each line
Calls = dict[str, tuple[float, Lines]]  # test: seconds, and the lines that it runs
COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}  # fmt: skip


def mutants(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, what changed) for each place that can be changed, while it is changed; annotations are left alone."""
    ignored = {id(part) for node in ast.walk(tree) for part in _annotations(node)}
    for node in ast.walk(tree):
        if id(node) in ignored:
            continue
        before = ast.unparse(node) if isinstance(node, ast.expr) else ""
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in COMPARED:
            operator = node.ops[0]
            node.ops = [COMPARED[type(operator)]()]
            yield node.lineno, f"{before} -> {ast.unparse(node)}"
            node.ops = [operator]
        elif isinstance(node, ast.BinOp) and type(node.op) in COMPUTED:
            computed, node.op = node.op, COMPUTED[type(node.op)]()
            yield node.lineno, f"{before} -> {ast.unparse(node)}"
            node.op = computed
        elif isinstance(node, ast.BoolOp):
            joined, node.op = node.op, ast.Or() if isinstance(node.op, ast.And) else ast.And()
            yield node.lineno, f"{before} -> {ast.unparse(node)}"
            node.op = joined
        elif isinstance(node, ast.Constant) and type(node.value) in (int, float, bool):
            value = node.value
            node.value = not value if type(value) is bool else value + 1 if type(value) is int else value / 4 or 1.0
            yield node.lineno, f"{before} -> {ast.unparse(node)}"
            node.value = value


def _annotations(node: ast.AST) -> Iterator[ast.AST]:
    """What only a type checker reads, and whether a class is ``frozen``: no value of a program shows that."""
    if isinstance(node, ast.ClassDef):
        yield from (part for keyword in node.keywords for part in ast.walk(keyword))
    for name in ("annotation", "returns"):
        part = getattr(node, name, None)
        if isinstance(part, ast.AST):
            yield from ast.walk(part)


def lines_of(folder: Path, path: Path, line: int) -> Lines:
    """What a test runs if it needs the statement at a line: its own lines in a function, and for what runs on import
    those that name it, in all files.
    """
    source = path.read_text(encoding="utf-8")
    around = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.stmt) and n.lineno <= line <= _end(n)]
    inner = around[-1]  # ast.walk goes from the outside inwards
    functions = [node for node in around if isinstance(node, ast.FunctionDef)]
    if functions and functions[0] is not inner:
        last = inner.body[0].lineno - 1 if getattr(inner, "body", None) else _end(inner)  # type: ignore[attr-defined]
        return {str(path.relative_to(folder)): _bits(range(inner.lineno, max(last, inner.lineno) + 1))}
    if isinstance(around[0], ast.FunctionDef | ast.ClassDef):
        names = [around[0].name]
    else:
        names = [n.id for n in ast.walk(around[0]) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    named = re.compile("|".join(rf"\b{name}\b" for name in names) or "$.")
    found = {}
    for other in folder.rglob("*.py"):
        numbered = enumerate(other.read_text(encoding="utf-8").splitlines(), 1)
        found[str(other.relative_to(folder))] = _bits(number for number, text in numbered if named.search(text))
    if isinstance(inner, ast.FunctionDef):
        found[str(path.relative_to(folder))] |= _bits(range(inner.lineno, _end(inner) + 1))
    return {file: bits for file, bits in found.items() if bits}


def _end(node: ast.stmt) -> int:
    return node.end_lineno or node.lineno


def _bits(numbers: Iterable[int]) -> int:
    """Each number as a bit."""
    return sum(1 << number for number in set(numbers))


def codes(code: CodeType) -> Iterator[CodeType]:
    """The code of a module, and of all functions and classes in it, in order."""
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from codes(inner)


def changed_functions(path: Path, changed: ast.Module) -> list[tuple[FunctionType, CodeType]]:
    """(function of a loaded module, its changed code); none where the change runs on import."""
    new = codes(compile(changed, path, "exec"))
    old = codes(compile(path.read_text(encoding="utf-8"), path, "exec"))
    changes = {before: after for before, after in zip(old, new, strict=True) if before != after}
    own = str(path)
    return [
        (one, changes[one.__code__])
        for one in gc.get_objects()
        if isinstance(one, FunctionType) and one.__code__.co_filename == own and one.__code__ in changes
    ]


def needs_more(item: pytest.Item) -> bool:
    """Whether a test or a fixture of it needs a browser or another process."""
    if not isinstance(item, pytest.Function):
        return True
    fixtures = item._fixtureinfo.name2fixturedefs.values()
    functions = [item.function, *(definition.func for definitions in fixtures for definition in definitions)]
    return any(NEEDS_MORE.search(inspect.getsource(function)) for function in functions)


class Recorder:
    """A plugin of pytest that records which lines of the package each test runs."""

    def __init__(self, folder: Path) -> None:
        self.calls: Calls = {}
        self.failed: set[str] = set()
        self._folder = folder
        # Python's own sys.settrace takes minutes for tests whose oracles walk through all events.
        self._coverage = coverage.Coverage(data_file=None, include=[f"{folder}/*"], messages=False)
        self._coverage.set_option("run:disable_warnings", ["no-data-collected"])  # of a test that is skipped

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if not needs_more(item)]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        began = time.process_time()
        with self._coverage.collect():
            result = yield
        seconds = time.process_time() - began
        data = self._coverage.get_data()
        ran = {str(Path(file).relative_to(self._folder)): data.lines(file) or [] for file in data.measured_files()}
        self.calls[item.nodeid] = (seconds, {file: _bits(lines) for file, lines in ran.items()})
        self._coverage.erase()
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:  # where it is recorded: it counts objects, for example
            self.failed.add(report.nodeid)


def forked(seconds: float, work: Callable[[], None]) -> bool:
    """Whether ``work`` returned in another process, which may use so much of the processor and thrice the time."""
    child = os.fork()
    if not child:
        code = 1
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1,) * 2)
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            signal.alarm(int(3 * seconds) + 10)
            with open(os.devnull, "w") as nothing:
                os.dup2(nothing.fileno(), 1)
                os.dup2(nothing.fileno(), 2)
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1] == 0


def record(file: str, into: Path, copy: Path) -> None:
    recorder = Recorder(copy / "snapreport")
    pytest.main([*ARGUMENTS[:2], *ARGUMENTS[3:], f"tests/{file}"], plugins=[recorder])
    calls = {test: called for test, called in recorder.calls.items() if test not in recorder.failed}
    into.write_bytes(pickle.dumps((calls, checksums(copy / "snapreport"))))


def checksums(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): zlib.crc32(path.read_bytes()) for path in folder.rglob("*.py")}


def recorded_calls(copy: Path, known: Path, patterns: list[str]) -> Calls:
    """What each test calls, from files in the folder ``known``; test files newer than theirs are run. Where a file of
    the package has changed since then, tests that ran any line of it are taken to run all.
    """
    known.mkdir(parents=True, exist_ok=True)
    calls: Calls = {}
    own = checksums(copy / "snapreport")
    for path in sorted({path for pattern in patterns for path in (copy / "tests").glob(f"test_{pattern}.py")}):
        part = known / f"{path.stem}.pickle"
        if not part.exists() or part.stat().st_mtime < path.stat().st_mtime:
            part.write_bytes(pickle.dumps(({}, {})))  # what it stays if the tests take too long
            name = path.name
            forked(600, lambda name=name, part=part: record(name, part, copy))  # type: ignore[misc]
            print(f"{path.name}: {len(pickle.loads(part.read_bytes())[0])} tests recorded", flush=True)
        recorded, sums = pickle.loads(part.read_bytes())
        for test, (seconds, ran) in recorded.items():
            calls[test] = (seconds, {file: bits if sums[file] == own.get(file) else -1 for file, bits in ran.items()})
    return calls


def tests_of(calls: Calls, lines: Lines, seconds: float) -> list[str]:
    """Tests that run any of these lines: the quickest, as many as take so long, by file."""
    calling = {test for test, (_, ran) in calls.items() if any(ran.get(file, 0) & bits for file, bits in lines.items())}
    # What a test of a file has computed, others of it may share.
    beside = {test.partition("::")[0] for test in calling}
    chosen: dict[str, list[str]] = {}
    for test in sorted(calls, key=lambda test: (test not in calling, calls[test][0])):
        name = test.partition("::")[0]
        if test in calling or name in beside:
            seconds -= calls[test][0]
            if chosen and seconds < 0:
                break
            chosen.setdefault(name, []).append(test)
    return [test for tests in chosen.values() for test in tests]


class Trials:
    """A plugin of pytest that runs collected tests against each mutant in a fork."""

    def __init__(self, options: argparse.Namespace, copy: Path, calls: Calls) -> None:
        self.table: list[str] = []
        self._options, self._copy, self._calls = options, copy, calls
        self._items: dict[str, pytest.Item] = {}
        self._sound: set[str] = set()  # tests that pass without a change
        self._failed = copy / "failed"

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        self._items = {item.nodeid: item for item in items if item.nodeid in self._calls}
        self._calls = {test: self._calls[test] for test in self._items}

    def pytest_runtestloop(self) -> bool:
        import corpus  # of the tests

        gc.unfreeze()  # what conftest.py hides from the collector is hidden from changed_functions(), too
        for name in corpus.GENERATED:  # each mutant would make them again
            corpus.path_of(name)
        for package in self._options.packages or PACKAGES:
            tried, survived = self._survivors(package)
            share = 100 * (1 - survived / max(1, tried))
            self.table.append(f"{package}: {tried - survived} of {tried} noticed, {share:.0f}%")
        return True

    def _survivors(self, package: str) -> tuple[int, int]:
        """(mutants tried, mutants that no test noticed), the latter printed."""
        places = []
        for path in sorted((self._copy / "snapreport" / package).glob("*.py")):
            if path.name in self._options.files or not self._options.files:
                importlib.import_module(f"snapreport.{package}.{path.stem}")
                tree = ast.parse(path.read_text(encoding="utf-8"))
                places += [(path, number) for number, _ in enumerate(mutants(tree))]
        chosen = random.Random(self._options.seed).sample(places, min(self._options.count, len(places)))
        survived = 0
        for turn, (path, number) in enumerate(chosen, 1):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            line, change = next(mutant for at, mutant in enumerate(mutants(tree)) if at == number)
            count, by = self._noticed(path, line, tree)
            if by is None:
                survived += 1
                print(f"survived {count} tests: {package}/{path.name}:{line}: {change}", flush=True)
            elif self._options.verbose:
                print(f"noticed: {package}/{path.name}:{line}: {change}: {by}", flush=True)
            if turn % 10 == 0:
                print(f"{turn - survived} of {turn} noticed", flush=True)
        return len(chosen), survived

    def _noticed(self, path: Path, line: int, changed: ast.Module) -> tuple[int, str | None]:
        """(tests that were run, which of them failed)."""
        lines = lines_of(self._copy / "snapreport", path, line)
        swaps = changed_functions(path, changed)
        while True:
            tests = tests_of(self._calls, lines, self._options.seconds)
            if not tests:
                return 0, None
            by = self._run(tests, swaps) if swaps else self._run_imported(tests, path, changed)
            if by is None or by in self._sound:
                return len(tests), by
            if by not in self._calls or self._run([by], []) is None:
                self._sound.add(by)
                return len(tests), by
            del self._calls[by]  # it fails alone, or where others ran before

    def _run(self, tests: list[str], swaps: list[tuple[FunctionType, CodeType]]) -> str | None:
        """The test that fails, or that ran when the process was ended."""

        def run() -> None:
            for function, code in swaps:
                function.__code__ = code
            items = [self._items[test] for test in tests]
            for item, following in zip(items, [*items[1:], None], strict=True):
                self._failed.write_text(item.nodeid, encoding="utf-8")
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                if item.session.testsfailed:
                    raise SystemExit

        limit = 20 + 4 * sum(self._calls[test][0] for test in tests)
        return None if forked(limit, run) else self._failed.read_text(encoding="utf-8")

    def _run_imported(self, tests: list[str], path: Path, changed: ast.Module) -> str | None:
        """Likewise, in an interpreter of its own that imports the changed file."""
        before = path.read_text(encoding="utf-8")
        limit = 60 + 4 * sum(self._calls[test][0] for test in tests)
        path.write_text(ast.unparse(changed), encoding="utf-8")
        try:
            command = [sys.executable, "-B", "-m", "pytest", *ARGUMENTS, *(f"tests/{test}" for test in tests)]
            done = subprocess.run(command, timeout=limit, capture_output=True, text=True)
            failed = re.search(r"(?m)^(?:FAILED|ERROR) (?:tests/)?(test_.*?)(?: - .*)?$", done.stdout)
            if done.returncode not in (0, 1, 2) and not failed:
                raise RuntimeError(done.stdout + done.stderr)
            return None if done.returncode == 0 else failed[1] if failed else tests[0]
        except subprocess.TimeoutExpired:
            return tests[0]
        finally:
            path.write_text(before, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutants", description=__doc__)
    parser.add_argument("packages", nargs="*", help=f"of {', '.join(PACKAGES)}; default all")
    parser.add_argument("--count", type=int, default=60, help="how many of each, chosen at random; default 60")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--files", nargs="*", default=[], help="of these files alone")
    parser.add_argument(
        "--tests", nargs="*", default=["[!b]*", "b[!r]*"], help="of files: jobs*; default all without browser"
    )
    parser.add_argument("--seconds", type=float, default=60, help="of processor time, for a mutant's tests; default 60")
    parser.add_argument("--calls", type=Path, default=Path(tempfile.gettempdir()) / "snapreport-calls")
    parser.add_argument("--verbose", action="store_true", help="print the test that noticed each of the others")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / "copy"
        leave = shutil.ignore_patterns("node_modules", ".git", ".venv*", "__pycache__", ".mypy_cache")
        shutil.copytree(ROOT, copy, ignore=leave)
        os.chdir(copy)
        sys.path.insert(0, str(copy))
        nowhere = str(copy / "none")
        os.environ |= {
            "PYTHONPATH": str(copy),
            "SNAPREPORT_REAL_SNAPSHOTS": nowhere,
            "SNAPREPORT_RECORDED": nowhere,
        }
        calls = recorded_calls(copy, options.calls.resolve(), options.tests)
        trials = Trials(options, copy, calls)
        files = sorted({f"tests/{test.partition('::')[0].rpartition('/')[2]}" for test in calls})
        pytest.main([*ARGUMENTS, "-s", *files], plugins=[trials])
    print("\n".join(trials.table))


if __name__ == "__main__":
    main()
