"""The pytest plugin, which pytest finds as an entry point: limits on CUDA memory and leaks, as test markers.

    @pytest.mark.limit_cuda_memory("2 GiB")
    @pytest.mark.limit_cuda_leaks("1 MiB", warmups=2)

Without effect until a test has a marker or an option asks for measurements: neither torch nor polars is imported before
that.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from snapreport.number_format import bytes_text
from snapreport.sizes import parse_size

if TYPE_CHECKING:
    from snapreport.recorder.session import Recorder

MEMORY, LEAKS = "limit_cuda_memory", "limit_cuda_leaks"
_PROPERTY = "snapreport_cuda_bytes"
_SHOWN = 10  # tests in the table of --cuda-memory


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options, in a group of their own."""
    group = parser.getgroup("snapreport", "CUDA memory")
    group.addoption("--cuda-memory", action="store_true", help="list the tests that allocate most CUDA memory")
    group.addoption(
        "--cuda-memory-reports", metavar="DIR", help="write a report of each test that breaks a memory limit or fails"
    )
    group.addoption(
        "--cuda-memory-require",
        action="store_true",
        help="fail tests with memory limits, instead of skipping, without CUDA",
    )
    group.addoption(
        "--cuda-memory-empty-cache", action="store_true", help="empty PyTorch's cache before each test that is measured"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declares the markers."""
    config.addinivalue_line("markers", f"{MEMORY}(size): fail when the test allocates more CUDA memory at its peak")
    config.addinivalue_line(
        "markers", f"{LEAKS}(size, warmups=1): fail when a repeated run leaves more CUDA memory allocated"
    )


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    """Measures the test function, without its fixtures."""
    limits = {name: _limit(pyfuncitem, name) for name in (MEMORY, LEAKS)}
    wanted = pyfuncitem.config.getoption("cuda_memory") or pyfuncitem.config.getoption("cuda_memory_reports")
    if not wanted and not any(limit is not None for limit in limits.values()):
        return (yield)
    missing = _missing()
    if missing:
        if any(limit is not None for limit in limits.values()):
            if pyfuncitem.config.getoption("cuda_memory_require"):
                pytest.fail(f"{missing}, and --cuda-memory-require is given", pytrace=False)
            pytest.skip(missing)
        return (yield)
    return (yield from _measured(pyfuncitem, limits[MEMORY], limits[LEAKS]))


def _measured(item: pytest.Function, most: int | None, leak: int | None) -> Iterator[None]:
    if leak is not None:
        arguments = {name: item.funcargs[name] for name in item._fixtureinfo.argnames}
        marker = item.get_closest_marker(LEAKS)
        for _ in range(marker.kwargs.get("warmups", 1) if marker else 0):
            item.obj(**arguments)
    if item.config.getoption("cuda_memory_empty_cache"):
        gc.collect()
        _torch().cuda.empty_cache()
    folder = item.config.getoption("cuda_memory_reports")
    recorder = _recorder(folder) if folder else None
    before, passed = _start(), False
    try:
        result = yield
        passed = True
    finally:
        peak = max((after - old for after, old in zip(_peaks(), before, strict=True)), default=0)
        item.user_properties.append((_PROPERTY, max(peak, 0)))
        problem = ""
        if most is not None and peak > most:
            problem = f"allocated {bytes_text(peak)} of CUDA memory at its peak, more than {bytes_text(most)}"
        elif leak is not None and passed:
            gc.collect()
            left = max((now - old for now, old in zip(_allocated(), before, strict=True)), default=0)
            if left > leak:
                problem = f"left {bytes_text(left)} of CUDA memory allocated, more than {bytes_text(leak)}"
        written = _finish(item, recorder) if recorder is not None and (problem or not passed) else ""
        if recorder is not None:
            recorder.stop()
    if problem:
        pytest.fail(f"{item.name} {problem}{written}", pytrace=False)
    return result


def _limit(item: pytest.Function, name: str) -> int | None:
    marker = item.get_closest_marker(name)
    if marker is None:
        return None
    text = marker.args[0] if len(marker.args) == 1 else None
    size = text if type(text) is int else parse_size(text) if type(text) is str else None
    if size is None:
        raise pytest.UsageError(f'{item.nodeid}: {name} takes one size, such as "2 GiB"')
    return int(size)


def _torch() -> Any:
    import torch

    return torch


def _missing() -> str:
    """Why CUDA memory cannot be measured here; empty where it can."""
    try:
        torch = _torch()
    except ImportError:
        return "CUDA memory is not measured: PyTorch is not installed"
    if not torch.cuda.is_available():
        return f"CUDA memory is not measured: PyTorch {torch.__version__} finds no CUDA device"
    return ""


def _start() -> list[int]:
    """Begins a measurement: the bytes allocated on each device by now."""
    cuda = _torch().cuda
    cuda.init()
    for device in range(cuda.device_count()):
        cuda.reset_peak_memory_stats(device)
    return _allocated()


def _allocated() -> list[int]:
    cuda = _torch().cuda
    return [cuda.memory_allocated(device) for device in range(cuda.device_count())]


def _peaks() -> list[int]:
    cuda = _torch().cuda
    return [cuda.max_memory_allocated(device) for device in range(cuda.device_count())]


def _recorder(folder: str) -> Recorder:
    from snapreport.recorder.options import Options
    from snapreport.recorder.session import Recorder

    return Recorder(Options(str(Path(folder).resolve()), at_exit=False, on_oom=False)).start()


def _finish(item: pytest.Function, recorder: Recorder) -> str:
    """Writes the snapshot and report of a failed test; the end of its message."""
    path = recorder.dump("test")
    if path is None:
        return ""
    name = re.sub(r"[^\w.-]+", "_", item.nodeid)[-150:]
    target = path.replace(path.with_name(f"{name}.pickle.gz"))
    try:
        from snapreport import load, write_report

        report = target.with_name(f"{name}.html")
        write_report([load(target)], report, title=item.nodeid)
    except (ImportError, ValueError, OSError):  # what the recorder needs is there, what the report needs may not be
        return f"\nSnapshot: {target}"
    return f"\nReport: {report}"


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """The most expensive tests; with pytest-xdist, those of all workers."""
    if not config.getoption("cuda_memory"):
        return
    reports = [report for kind in ("passed", "failed") for report in terminalreporter.stats.get(kind, [])]
    rows = {
        report.nodeid: value
        for report in reports
        for key, value in getattr(report, "user_properties", ())
        if key == _PROPERTY and report.when == "call"
    }
    terminalreporter.section("CUDA memory")
    if not rows:
        terminalreporter.write_line(_missing() or "no test was measured")
    for name, size in sorted(rows.items(), key=lambda row: (-row[1], row[0]))[:_SHOWN]:
        terminalreporter.write_line(f"{bytes_text(size):>10}  {name}")
