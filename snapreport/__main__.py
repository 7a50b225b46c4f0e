"""``snapreport`` as a program: ``python -m snapreport`` and the installed command."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import NoReturn

from snapreport.cli import main


def run() -> NoReturn:
    """Run the command line and leave.

    The process ends where its work does: the interpreter's own end looks for cycles and lets go of every object one by
    one, 0.07 s after a million events, and the system takes all of it back anyway.
    """
    try:
        main(prog_name="snapreport")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    with contextlib.suppress(OSError, ValueError):  # nobody reads on, or it was closed
        sys.stdout.flush()
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    run()
