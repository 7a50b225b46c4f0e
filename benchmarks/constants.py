"""Numeric constants of the rules that no recording in the repository can tell from twice, half, eight times or an
eighth of their value: ``python -m benchmarks.constants findings``.

The answer to a constant of ``findings`` or ``timeline`` are the findings of tests/recordings and the first sentences
about them, to one of ``jobs`` what is said of small generated jobs. Only recordings that call a function with the
constant in it are computed again. One that changes nothing is printed: a recording is missing, or the constant does
nothing.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import pkgutil
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

import generator
from msgspec.structs import replace

import snapreport
from snapreport.contracts import plain
from snapreport.findings.diagnosis import headline
from snapreport.findings.run import findings
from snapreport.jobs.job_json import job_json
from snapreport.reading.recording import Recording
from snapreport.snapshot import Snapshot

RECORDINGS = Path(__file__).resolve().parent.parent / "tests" / "recordings"
SMALL = {"hidden": 256, "layers": 2, "steps": 3, "micro_batches": 2, "operations": 4, "vocabulary": 4000}
JOBS: tuple[dict[str, Any], ...] = (
    {"kind": "data", "ranks": 4, "heavy": 1},
    {"kind": "data", "ranks": 6, "straggler": 3, "leak": 24 << 20},
    {"kind": "data", "ranks": 6, "oom": 4, "memory": 8 << 30},
    {"kind": "data", "ranks": 4, "hosts": 2, "clock_us": 60_000_000},
    {"kind": "pipeline", "ranks": 8, "layers": 8, "straggler": 4, "leak": 24 << 20},
    {"kind": "pipeline", "ranks": 8, "layers": 8, "replicas": 2},
    {"kind": "experts", "ranks": 8, "heavy": 5, "factor": 3.5},
    {"kind": "experts", "ranks": 8, "unevenness": 0.75, "jitter": 0.3},
)
NAME = re.compile(r"_?[A-Z][A-Z0-9_]*")
Answer = Callable[[], str]


def modules_of(package: str) -> list[ModuleType]:
    parent = importlib.import_module(f"snapreport.{package}")
    return [importlib.import_module(f"{parent.__name__}.{one.name}") for one in pkgutil.iter_modules(parent.__path__)]


def constants(own: list[ModuleType], every: list[ModuleType]) -> Iterator[tuple[str, float, list[ModuleType]]]:
    """(name, value, the module that has it and those that import it) of each that is written as a number."""
    sources = {module: Path(str(module.__file__)).read_text(encoding="utf-8") for module in every}
    for module in own:
        for name in dict.fromkeys(numbers_in(ast.parse(sources[module]))):
            value = vars(module)[name]
            users = [m for m in every if m is not module and vars(m).get(name) is value]
            users = [m for m in users if re.search(rf"(?s)import [^.]*\b{name}\b", sources[m])]
            yield f"{module.__name__.removeprefix('snapreport.')}.{name}", value, [module, *users]


def numbers_in(tree: ast.Module) -> Iterator[str]:
    """Names in capitals that are assigned a number; codes that count from 0 are none."""
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(target.elts, node.value.elts, strict=True))
            is_code = any(isinstance(value, ast.Constant) and value.value == 0 for _, value in pairs)
            for named, value in pairs:
                if isinstance(named, ast.Name) and NAME.fullmatch(named.id) and not is_code and is_number(value):
                    yield named.id


def is_number(node: ast.expr) -> bool:
    inner = list(ast.walk(node))
    is_plain = all(
        isinstance(one, ast.Constant | ast.BinOp | ast.UnaryOp | ast.operator | ast.unaryop) for one in inner
    )
    return is_plain and all(type(one.value) in (int, float) for one in inner if isinstance(one, ast.Constant))


def of_recording(recording: Recording) -> str:
    # A copy, since what follows from a recording is remembered for it.
    snapshot = Snapshot(replace(recording))
    found = findings(snapshot)
    first = [str(line) for device in snapshot.devices for line in headline(found, device)]
    return json.dumps([first, *(finding.to_json() for finding in found)])


def of_job(folder: str) -> str:
    return json.dumps(plain(job_json(snapreport.job([folder], jobs=1))))


def answers(package: str, scratch: str) -> list[Answer]:
    if package == "jobs":
        for number, options in enumerate(JOBS):
            generator.write_job(f"{scratch}/{number}", **{**SMALL, **options})
        return [partial(of_job, f"{scratch}/{number}") for number in range(len(JOBS))]
    paths = sorted(RECORDINGS.rglob("*.pickle*"), key=lambda path: path.stat().st_size)
    return [partial(of_recording, snapreport.load(path).recording) for path in paths]


def traced(answer: Answer) -> tuple[str, set[tuple[str, str]]]:
    """An answer, and the (file, global name) of everything that functions called for it refer to."""
    called: set[CodeType] = set()

    def note(frame: FrameType, _event: str, _argument: object) -> None:
        called.add(frame.f_code)

    threading.settrace(note)
    sys.settrace(note)
    said = tried(answer)
    sys.settrace(None)
    return said, {(code.co_filename, name) for code in called for name in code.co_names}


def tried(answer: Answer) -> str:
    try:
        return answer()
    except Exception as error:  # noqa: BLE001  # some values make no sense
        return repr(error)


def is_noticed(
    name: str, value: float, users: list[ModuleType], known: list[tuple[Answer, str, set[tuple[str, str]]]]
) -> str | None:
    """By which factor a constant must differ to change an answer; None where it never does."""
    reached = [
        (answer, before)
        for answer, before, names in known
        if any((str(module.__file__), name) in names for module in users)
    ]
    for factor in (2, 1 / 2, 8, 1 / 8):
        for module in users:
            setattr(module, name, type(value)(value * factor))
        if any(tried(answer) != before for answer, before in reached):
            return f"× {factor:g}"
    return None


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.constants", description=__doc__)
    parser.add_argument("packages", nargs="*", help="findings, timeline or jobs; default all")
    parser.add_argument("--only", default="", help="constants whose name has this in it")
    options = parser.parse_args()
    packages = options.packages or ["findings", "timeline", "jobs"]
    every = [module for name in ("findings", "timeline", "jobs", "report", "forecast") for module in modules_of(name)]
    with tempfile.TemporaryDirectory() as scratch:
        for package in packages:
            known = [(answer, *traced(answer)) for answer in answers(package, scratch)]
            count = unnoticed = 0
            for name, value, users in constants(modules_of(package), every):
                if options.only not in name:
                    continue
                count += 1
                factor = is_noticed(name.rpartition(".")[2], value, users, known)
                for module in users:
                    setattr(module, name.rpartition(".")[2], value)
                if factor != "× 2":
                    print(f"{name} = {value}: {factor or 'changes nothing'}", flush=True)
                unnoticed += factor is None
            print(f"{package}: {unnoticed} of {count} constants change nothing", flush=True)


if __name__ == "__main__":
    main()
