"""What all tests share: the corpus of snapshots, reports made once each, a browser, and notices of skipped tests."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import breadth
import corpus
import fake_torch
import hypothesis
import pytest
import spread

FAILED = pytest.StashKey[bool]()
sys.setrecursionlimit(10_000)  # hypothesis and hostile pickles nest deeply; the product must not need this

# Derandomised, so that a failed run can be repeated; HYPOTHESIS_PROFILE=deep searches further.
hypothesis.settings.register_profile(
    "default",
    max_examples=breadth.examples(60),
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(hypothesis.HealthCheck),
)
hypothesis.settings.register_profile(
    "deep", parent=hypothesis.settings.get_profile("default"), max_examples=3000, derandomize=False
)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_configure() -> None:
    """Refuses to test a checkout where the installed package was meant (tests/run.py sets the environment)."""
    expected = os.environ.get("SNAPREPORT_TEST_VENV")
    if expected:
        import snapreport

        where = Path(snapreport.__file__).resolve()
        if not where.is_relative_to(Path(expected).resolve()):
            pytest.exit(f"snapreport comes from {where}, not from {expected}", returncode=3)
    keep_freed_memory()


def keep_freed_memory() -> None:
    """A command gives freed memory back to the system after each file, for which it collects garbage. In this process
    that walks what all tests share, for some tenths of a second: a quarter of the time of all tests. Those that start
    processes of their own have it.
    """
    from snapreport import process_memory

    process_memory.release_freed = lambda: None
    process_memory._call = lambda *_: None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """``snapshot_path``: generated and real snapshots in turn; ``real_path``: all real ones alone;
    ``shown_path``: those that differ in what a page can show; ``telling_path``: in what is found in them.
    """
    every = {
        "snapshot_path": corpus.names, "real_path": corpus.real_names, "shown_path": corpus.shown_names,
        "telling_path": corpus.telling_names,
    }  # fmt: skip
    for fixture, names in every.items():
        if fixture in metafunc.fixturenames:
            given = names() or [pytest.param("none", marks=pytest.mark.skip(reason=corpus.NO_REAL))]
            metafunc.parametrize(fixture, given, indirect=True, scope="session")


@pytest.fixture(params=fake_torch.parameters())
def torch_cuda(request: pytest.FixtureRequest) -> fake_torch.FakeTorch:
    """Every PyTorch over the fake driver in turn; a skip where there is none."""
    return request.param


@pytest.fixture(scope="session")
def snapshot_path(request: pytest.FixtureRequest) -> Path:
    return corpus.path_of(request.param)


@pytest.fixture(scope="session")
def shown_path(request: pytest.FixtureRequest) -> Path:
    return corpus.path_of(request.param)


@pytest.fixture(scope="session")
def telling_path(request: pytest.FixtureRequest) -> Path:
    return corpus.path_of(request.param)


@pytest.fixture(scope="session")
def real_path(request: pytest.FixtureRequest) -> Path:
    return corpus.path_of(request.param)


@pytest.hookimpl(trylast=True)  # after pytest has brought tests of one session-wide parameter together
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if breadth.IS_NARROW:
        breadth.leave_out(config, items)
    spread.put_in_order(items)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Hides what was collected from the garbage collector: every command that a test runs in this process would
    otherwise walk 190,000 objects for a tenth of a second. It then runs seldom: what tests share would be walked again
    and again, a quarter of the processor time of tests of findings.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 20, 100)


@pytest.hookimpl(optionalhook=True)  # pytest-xdist's; without it the tests run in one process
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    return spread.scheduler(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Records on a test that it failed, for the fixtures that clean up after it."""
    report = yield
    item.stash[FAILED] = item.stash.get(FAILED, False) or report.failed
    return report


def pytest_terminal_summary(terminalreporter: Any) -> None:
    found = len(corpus.real_names())
    told = f"real snapshots tested: {found} from {corpus.REAL}" if found else f"NOTICE: {corpus.NO_REAL}"
    terminalreporter.write_line(told, yellow=not found, bold=not found)
    if not fake_torch.FOLDERS:
        terminalreporter.write_line(f"NOTICE: {fake_torch.NONE}", yellow=True, bold=True)


@pytest.fixture(scope="session")
def report_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """``report_of(*snapshots)`` → the path of a report of them, made once."""
    from snapreport import write_report

    made: dict[tuple[Path, ...], Path] = {}

    def report(*snapshots: Path) -> Path:
        if snapshots not in made:
            path = tmp_path_factory.mktemp("report") / f"{snapshots[0].stem}.html"
            write_report([corpus.loaded(snapshot) for snapshot in snapshots], path)
            made[snapshots] = path  # not before: a report that could not be made would fail as a missing one
        return made[snapshots]

    return report


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """One running browser for the session. A machine without one fails, with a hint."""
    import browser

    with browser.launched() as running:
        yield running


@pytest.fixture
def open_report(chromium: Any) -> Iterator[Callable[..., Any]]:
    """``open_report(path, "#hash", **context)`` → an opened page; none may send a request or log an error."""
    import pages

    opened = []

    def open_one(path: Path, fragment: str = "", **options: Any) -> pages.Opened:
        opened.append(pages.open_report(chromium, path, fragment, **options))
        return opened[-1]

    yield open_one
    for page in opened:
        page.page.context.close()
    for page in opened:
        page.check()


@pytest.fixture(scope="session")
def pool(chromium: Any) -> Iterator[Any]:
    import pool

    kept = pool.Pool(chromium)
    yield kept
    kept.close()


@pytest.fixture
def borrow_report(pool: Any, request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """Like ``open_report``, but a page that an earlier test has opened, reset to its start, where there is one.

    For tests of what a page shows and does. Tests of opening, of what is stored between openings, of lost contexts and
    of anything else that a page does not recover from open their own page.
    """
    lent = []

    def borrow(path: Path, fragment: str = "", **options: Any) -> Any:
        lent.append(pool.lend(path, fragment, **options))
        return lent[-1].opened

    yield borrow
    for page in lent:
        if request.node.stash.get(FAILED, False) or page.opened.told or page.opened.outside:
            pool.drop(page)
        else:
            pool.take_back(page)
    for page in lent:
        page.opened.check()
