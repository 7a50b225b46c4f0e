"""Runs programs one after another, each in a fork of this process, which has already imported torch: the import takes
two seconds, and most programs a tenth of one.

python forks.py: reads calls from standard input, a line of JSON each, {"argv": [program, ...], "env": {...}}, and
answers each with a line: {"code", "out", "err"}. CUDA starts in the fork, and reads its settings there.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import tempfile
import traceback

import torch._dynamo  # noqa: F401  # imported by the first optimizer


def run(argv: list[str], variables: dict[str, str], out: int, err: int) -> None:
    """Runs in the fork."""
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.environ.update(variables)
    sys.argv = argv
    code = 0
    try:
        runpy.run_path(argv[0], run_name="__main__")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def main() -> None:
    for line in sys.stdin:
        call = json.loads(line)
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            child = os.fork()
            if child == 0:
                run(call["argv"], call["env"], out.fileno(), err.fileno())
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            texts = []
            for file in (out, err):
                file.seek(0)
                texts.append(file.read().decode("utf-8", "replace"))
        print(json.dumps({"code": code, "out": texts[0], "err": texts[1]}), flush=True)


main()
