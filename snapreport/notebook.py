"""Reports in notebooks: a snapshot shows itself as the last value of a cell, and ``%%snapreport`` records a cell.

Jupyter, VS Code and Colab show HTML that a value offers (``_repr_html_``). The report is in a frame's ``srcdoc``:
nothing is served, nothing is fetched, and its styles and the notebook's do not meet.
"""

from __future__ import annotations

import argparse
import shlex
import tempfile
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from snapreport.errors import SnapshotError, one_line
from snapreport.report.build import build_report
from snapreport.snapshot import Snapshot, load
from snapreport.terminal import echo

if TYPE_CHECKING:
    from collections.abc import Sequence

HEIGHT = 720
"""Pixels of the frame. The page fits itself to any; below 500 its legend folds."""
MOST = 20 << 20
"""Bytes of a report inside a notebook, which is saved with it; what matters least is left out to fit."""


def frame(snapshots: Sequence[Snapshot], height: int = HEIGHT) -> str:
    """A report of the snapshots as an HTML frame."""
    document = build_report(snapshots, max_size=MOST).decode("utf-8")
    names = ", ".join(snapshot.recording.name for snapshot in snapshots)
    return (
        f'<iframe title="{escape(f"Memory of {names}")}" srcdoc="{escape(document)}" width="100%" height="{height}" '
        'sandbox="allow-scripts allow-downloads allow-popups allow-popups-to-escape-sandbox" '
        'allow="clipboard-write" style="border: 1px solid #8886"></iframe>'
    )


class Shown:
    """Snapshots that one cell shows as one report."""

    def __init__(self, snapshots: Sequence[Snapshot], height: int) -> None:
        self.snapshots, self._height = list(snapshots), height

    def __repr__(self) -> str:
        return repr(self.snapshots)

    def _repr_html_(self) -> str:
        return frame(self.snapshots, self._height)


def load_ipython_extension(shell: Any) -> None:
    """``%load_ext snapreport``."""
    shell.register_magic_function(lambda line, cell: _cell(shell, line, cell), "cell", "snapreport")


def _arguments(line: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="%%snapreport", description="Record a cell and show its memory.")
    parser.add_argument("-o", "--output", metavar="DIR", help="keep the recording; default: a temporary folder")
    parser.add_argument("--height", type=int, default=HEIGHT, help="pixels of the report")
    return parser.parse_args(shlex.split(line))


def _cell(shell: Any, line: str, cell: str) -> Shown | None:
    """Runs the cell, also where it fails, and shows what it recorded; the variable ``_`` is that."""
    from snapreport.recorder.api import record

    try:
        options = _arguments(line)
    except SystemExit:  # argparse has said why
        return None
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(options.output or scratch)
        before = set(folder.rglob("*")) if folder.is_dir() else set()
        with record(folder):
            result = shell.run_cell(cell)  # tells errors of the cell itself
        written = sorted(path for path in set(folder.rglob("*")) - before if path.is_file())
        try:
            snapshots = [load(path) for path in written]
        except SnapshotError as error:
            echo(f"snapreport: {one_line(str(error))}")
            return None
    if not snapshots:
        echo("snapreport: nothing was recorded" + ("" if result.success else ": the cell failed before it used memory"))
        return None
    return Shown(snapshots, options.height)
