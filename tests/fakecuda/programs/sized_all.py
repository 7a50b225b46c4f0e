"""Runs programs of ``sized.py`` and ``sized_data.py``, each in a fork of this process, which has imported torch once.

``sized_all.py FOLDER``: every program at several values, recorded; ``SIZED_VALUES`` is a JSON object: the end of a
program's name → its values. ``sized_all.py -``: what standard input lists, not recorded, a line for each run: program,
value, GiB of the device. Prints a line for each run: program, value, what the program printed.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from pathlib import Path

import torch._dynamo  # noqa: F401  # imported by the first optimizer

PROGRAM = Path(__file__).with_name("sized.py")


def output_of(out: str, program: str, value: int, gib: str = "") -> str:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(writing, 1)
        if gib:
            os.environ["FAKE_GPU_GIB"] = gib
        sys.argv = [str(PROGRAM), out, program, str(value)]
        code = 1
        try:
            runpy.run_path(str(PROGRAM), run_name="__main__")
            sys.stdout.flush()
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading) as stream:
        text = stream.read()
    if os.waitpid(child, 0)[1]:
        sys.exit(f"{program} at {value} failed")
    return text.strip().splitlines()[-1]


def main() -> None:
    if sys.argv[1] == "-":
        for line in sys.stdin:
            program, value, gib = line.split()
            print(program, value, output_of("-", program, int(value), gib), flush=True)
        return
    folder, values = Path(sys.argv[1]), json.loads(os.environ["SIZED_VALUES"])
    lines = [line for path in (PROGRAM, PROGRAM.with_name("sized_data.py")) for line in path.read_text().splitlines()]
    names = [line[4 : line.index("(")] for line in lines if line.startswith("def ")]
    for program in names:
        for value in values.get(program.rpartition("_")[2], ()):
            out = str(folder / f"{program}.{value}.pickle")
            print(program, value, output_of(out, program, value), flush=True)


if __name__ == "__main__":
    main()
