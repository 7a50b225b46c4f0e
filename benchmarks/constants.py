"""Numeric constants of the rules that no small recording can tell from twice or half of their value:
``python -m benchmarks.constants --seconds 600``.

Each constant of ``snapreport/findings`` is doubled and halved, and the findings of ``tests/recordings/witnesses`` are
computed again. One that changes none of them is printed: a recording is missing, or the constant does nothing.
"""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
import random
import re
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import snapreport
from snapreport import findings as package
from snapreport.findings import run
from snapreport.snapshot import Snapshot

RECORDINGS = Path(__file__).resolve().parent.parent / "tests" / "recordings" / "witnesses"
NAME = re.compile(r"_?[A-Z][A-Z0-9_]*")


def constants(modules: list[ModuleType]) -> Iterator[tuple[str, float, list[ModuleType]]]:
    """(name, value, the module that has it and those that import it)."""
    sources = {module: Path(str(module.__file__)).read_text(encoding="utf-8") for module in modules}
    for module in modules:
        for name, value in vars(module).items():
            own = re.search(rf"(?m)^(?:\w+, )*{name}(?:, \w+)*(?:: [^=]+)? = ", sources[module])
            if NAME.fullmatch(name) and type(value) in (int, float) and own:
                users = [m for m in modules if m is not module and re.search(rf"import .*\b{name}\b", sources[m])]
                yield f"{module.__name__.rsplit('.', 1)[1]}.{name}", value, [module, *users]


def answer(snapshot: Snapshot) -> str:
    run._known.clear()
    try:
        return json.dumps([finding.to_json() for finding in run.findings(snapshot)])
    except (
        ArithmeticError,
        LookupError,
        TypeError,
        ValueError,
    ) as error:  # it makes no sense
        return repr(error)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.constants", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="of processor time; default 600")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    modules = [
        importlib.import_module(f"{package.__name__}.{one.name}") for one in pkgutil.iter_modules(package.__path__)
    ]
    snapshots = [snapreport.load(path) for path in sorted(RECORDINGS.iterdir(), key=lambda path: path.stat().st_size)]
    before = [answer(snapshot) for snapshot in snapshots]
    every = list(constants(modules))
    random.Random(options.seed).shuffle(every)
    tried = unnoticed = 0
    for name, value, users in every:
        if time.process_time() > options.seconds:
            break
        tried += 1
        for changed in (type(value)(value * 2), type(value)(value / 2)):
            for module in users:
                setattr(module, name.split(".")[1], changed)
            if any(answer(snapshot) != was for snapshot, was in zip(snapshots, before, strict=True)):
                break
        else:
            unnoticed += 1
            print(f"unnoticed: {name} = {value}", flush=True)
        for module in users:
            setattr(module, name.split(".")[1], value)
    print(f"{unnoticed} of {tried} constants tried, of {len(every)}, change nothing when doubled or halved")


if __name__ == "__main__":
    main()
