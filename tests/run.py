"""Runs every test on a machine that has only Python 3.11 or newer: ``python3 tests/run.py [pytest arguments]``.

Installs the package as a reader would (a wheel with the front end in it, not the checkout) into a virtual environment
with what the tests need, finds or installs a Chromium, runs the front end's own tests where npm is there, then pytest.
Its last line is pytest's; its exit code is the first that is not 0. Standard library only.

``--venv DIR`` uses that environment (made when missing; default ``.venv-test``); ``--no-install`` leaves it as it is.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent
# A fresh clone beside an old one must not run the other's tools.
CLEAN = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")}


def say(text: str) -> None:
    print(f"== {text}", flush=True)


def run(*command: str | Path, cwd: Path = ROOT) -> int:
    """Run a command, its output passing through; its exit code."""
    return subprocess.run([str(part) for part in command], cwd=cwd, env=CLEAN, check=False).returncode


def must(*command: str | Path, cwd: Path = ROOT) -> None:
    code = run(*command, cwd=cwd)
    if code:
        sys.exit(f"{' '.join(map(str, command))}: exit code {code}")


def environment(folder: Path, install: bool) -> Path:
    """Make the virtual environment and install the package with its test extra; the path of its Python."""
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if not python.exists():
        say(f"virtual environment {folder}")
        venv.create(folder, with_pip=True, symlinks=os.name != "nt")
        (folder / ".gitignore").write_text("*\n")
    if install:
        say("installing the package with what its tests need")
        # Not editable: what is tested is the wheel. pip makes a local folder's wheel anew every time.
        must(python, "-m", "pip", "install", "--quiet", ".[test]")
    return python


def browser(python: Path) -> None:
    """See that there is a Chromium: the machine's, else Debian's, else playwright's own. The tests fail without one."""
    found = [python, TESTS / "browser.py"]
    if run(*found) == 0:
        return
    if shutil.which("apt-get") and hasattr(os, "geteuid") and os.geteuid() == 0:
        say("installing Debian's chromium")
        run("apt-get", "update", "-qq")
        for package in ("chromium-headless-shell", "chromium"):
            if run("apt-get", "install", "-y", "-qq", "--no-install-recommends", package) == 0:
                break
    if run(*found):
        say("downloading playwright's chromium")
        run(python, "-m", "playwright", "install", "chromium")


def front_end() -> int:
    """Type check and test the front end with npm; 0 where there is none (pytest still tests the built page)."""
    if not shutil.which("npm"):
        say("front end: no npm here, so its unit tests and type check are left out")
        return 0
    say("front end: type check and unit tests")
    with tempfile.TemporaryDirectory() as scratch:
        # Away from the checkout: installing there would leave a node_modules behind.
        copy = Path(scratch) / "static"
        shutil.copytree(ROOT / "static", copy, ignore=shutil.ignore_patterns("node_modules", "dist"))
        return (
            run("npm", "ci", "--silent", "--no-audit", "--no-fund", cwd=copy)
            or run("npm", "run", "--silent", "check", cwd=copy)
            or run("npm", "test", "--silent", cwd=copy)
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv-test")
    parser.add_argument("--no-install", action="store_true")
    options, rest = parser.parse_known_args()
    if sys.version_info < (3, 11):  # noqa: UP036  # run by whatever python3 there is
        sys.exit(f"Python 3.11 or newer is needed, this is {sys.version.split()[0]}")
    folder = options.venv.resolve()
    python = environment(folder, not options.no_install)
    browser(python)
    first = front_end()
    say("pytest")
    CLEAN["SNAPREPORT_TEST_VENV"] = str(folder)
    # A file's and a snapshot's tests stay together (tests/spread.py), so that what they share is made once; two
    # browsers keep two cores busy.
    side_by_side = ["-n", str(min(4, os.cpu_count() or 1)), "--dist", "loadfile"]
    code = run(python.parent / "pytest", "-c", TESTS / "pytest.ini", *(rest or [*side_by_side, TESTS]))
    return first or code


if __name__ == "__main__":
    sys.exit(main())
