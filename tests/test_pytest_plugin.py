"""The pytest plugin: memory limits as markers, measured on PyTorch's own allocator (tests/fakecuda)."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import corpus
import fake_torch
import pytest
from fake_torch import Done, FakeTorch

import snapreport

PACKAGE = str(Path(snapreport.__file__).parent.parent)
MIB = "1 << 20"

TESTS_OF_MEMORY = f"""
import pytest, torch
kept = []

def empty(mib):
    return torch.empty(mib * ({MIB}), dtype=torch.uint8, device="cuda")

@pytest.fixture(scope="module")
def weights():
    return empty(100)

@pytest.mark.limit_cuda_memory("32 MiB")
def test_within():
    empty(16); empty(32)

@pytest.mark.limit_cuda_memory("32 MiB")
def test_beyond():
    x = empty(16); empty(17)

@pytest.mark.limit_cuda_memory("32 MiB")
def test_fixtures_do_not_count(weights):
    empty(30)

@pytest.mark.limit_cuda_leaks("1 MiB", warmups=2)
def test_leak():
    kept.append(empty(3))

@pytest.mark.limit_cuda_leaks("1 MiB", warmups=2)
def test_cache_that_is_filled_once():
    if len(kept) < 50: kept.extend(empty(2) for _ in range(50))

@pytest.mark.limit_cuda_leaks("1 MiB")
@pytest.mark.parametrize("size", [1, 2])
def test_cycle_is_collected(size):
    cycle = [empty(size)]; cycle.append(cycle)

def test_without_marker():
    empty(200)

def test_that_fails():
    x = empty(5); assert False, "for its own reasons"
"""


@pytest.fixture(params=fake_torch.parameters())
def torch_cuda(request: pytest.FixtureRequest) -> FakeTorch:
    if request.param is not None and not request.param.has("pytest"):
        pytest.skip("no pytest beside this PyTorch")
    return request.param


def run(torch_cuda: FakeTorch, folder: Path, *options: str, text: str = TESTS_OF_MEMORY) -> Done:
    (folder / "test_memory.py").write_text(text)
    path = fake_torch.package_folder(folder / "path")
    call = ["-m", "pytest", "-p", "no:cacheprovider", "-q", *options, folder / "test_memory.py"]
    return torch_cuda.run(*call, PYTHONPATH=path)


def outcomes(done: Done) -> str:
    return done.out.strip().splitlines()[-1].partition(" in ")[0]


def test_without_the_plugin_nothing_is_measured(torch_cuda: FakeTorch, tmp_path: Path) -> None:
    done = run(torch_cuda, tmp_path, "-W", "ignore")
    assert outcomes(done) == "1 failed, 8 passed"  # the one that fails for its own reasons


def test_limits(torch_cuda: FakeTorch, tmp_path: Path) -> None:
    done = run(torch_cuda, tmp_path, "-p", "snapreport", "--cuda-memory", "--strict-markers")
    assert outcomes(done) == "3 failed, 6 passed", done.out + done.err
    assert "test_beyond allocated 33.0 MiB of CUDA memory at its peak, more than 32.0 MiB" in done.out
    assert "test_leak left 3.00 MiB of CUDA memory allocated, more than 1.00 MiB" in done.out
    table = done.out.rpartition(" CUDA memory =")[2].splitlines()
    assert table[1].split()[:2] == ["200", "MiB"] and table[1].endswith("::test_without_marker")
    assert table[2].split()[:2] == ["33.0", "MiB"] and table[2].endswith("::test_beyond")


def test_reports_of_failures(torch_cuda: FakeTorch, tmp_path: Path) -> None:
    """Each failure has a snapshot, named after the test; passing tests have none."""
    done = run(torch_cuda, tmp_path, "-p", "snapreport", "--cuda-memory-reports", str(tmp_path / "reports"))
    assert outcomes(done) == "3 failed, 6 passed", done.out + done.err
    snapshots = sorted(path.name for path in (tmp_path / "reports").glob("*.pickle.gz"))
    assert [name.partition("test_memory.py_")[2] for name in snapshots] == [
        "test_beyond.pickle.gz", "test_leak.pickle.gz", "test_that_fails.pickle.gz",
    ]  # fmt: skip
    beyond = snapreport.load(tmp_path / "reports" / snapshots[0])
    assert beyond.timeline(0).peak_bytes == 33 << 20 and beyond.recording.recorder.reason == "test"
    assert "Snapshot: " in done.out or "Report: " in done.out


def test_several_workers(torch_cuda: FakeTorch, tmp_path: Path) -> None:
    if not torch_cuda.has("xdist"):
        pytest.skip("no pytest-xdist beside this PyTorch")
    done = run(torch_cuda, tmp_path, "-p", "snapreport", "--cuda-memory", "-n", "2", "--dist", "loadfile")
    assert outcomes(done) == "3 failed, 6 passed", done.out + done.err
    assert "200 MiB" in done.out.rpartition(" CUDA memory =")[2]


def test_a_bad_limit(torch_cuda: FakeTorch, tmp_path: Path) -> None:
    text = "import pytest\n@pytest.mark.limit_cuda_memory('much')\ndef test_one(): pass\n"
    done = run(torch_cuda, tmp_path, "-p", "snapreport", text=text)
    assert 'limit_cuda_memory takes one size, such as "2 GiB"' in done.out and done.code != 0


@pytest.mark.parametrize(
    ("option", "outcome"), [([], "1 passed, 1 skipped"), (["--cuda-memory-require"], "1 failed, 1 passed")]
)
def test_without_cuda(option: list[str], outcome: str, tmp_path: Path) -> None:
    """Markers skip with the reason, or fail where CUDA is required; other tests run."""
    (tmp_path / "test_memory.py").write_text(
        "import pytest\n@pytest.mark.limit_cuda_memory('1 GiB')\ndef test_one(): pass\ndef test_two(): pass\n"
    )
    call = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-p",
        "snapreport",
        "-rs",
        *option,
        "-q",
        str(tmp_path),
    ]
    variables = {**os.environ, "PYTHONPATH": PACKAGE, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(call, env=variables, capture_output=True, text=True, check=False, cwd=tmp_path)
    last = done.stdout.strip().splitlines()[-1]
    assert last.startswith(outcome) and "CUDA memory is not measured: PyTorch" in done.stdout, done.stdout + done.stderr


PLAIN_TESTS = """
import sys, pytest

def test_light():
    assert "snapreport.pytest_plugin" in sys.modules
    assert not {"numpy", "polars", "torch"} & set(sys.modules)

@pytest.mark.limit_cuda_memory("1 GiB")
def test_limited(): pass
"""


def installed(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """pytest over ``PLAIN_TESTS`` where the package is installed, as its metadata have it."""
    points = tomllib.loads((corpus.ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["pytest11"]
    metadata = folder / "path" / "snapreport-0.0.dist-info"
    metadata.mkdir(parents=True)
    lines = [f"{name} = {target}" for name, target in points.items()]
    (metadata / "entry_points.txt").write_text("\n".join(["[pytest11]", *lines]))
    (metadata / "METADATA").write_text("Name: snapreport\nVersion: 0.0\n")
    (folder / "test_plain.py").write_text(PLAIN_TESTS)
    call = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "-p",
        "no:hypothesispytest",
    ]
    variables = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(folder / "path"), PACKAGE]),
        "CUDA_VISIBLE_DEVICES": "",
    }
    call += ["--strict-markers", "-W", "error", *options, "test_plain.py"]
    return subprocess.run(call, env=variables, capture_output=True, text=True, check=False, cwd=folder)


@pytest.mark.parametrize("options", [[], ["-p", "snapreport"]], ids=["entry point", "twice"])
def test_found_by_pytest_and_off(options: list[str], tmp_path: Path) -> None:
    """A test without a limit is not measured, and nothing heavy is imported for it; a limit asks for a measurement."""
    done = installed(tmp_path, *options)
    assert done.stdout.strip().splitlines()[-1].startswith("1 passed, 1 skipped"), done.stdout + done.stderr


def test_left_out(tmp_path: Path) -> None:
    done = installed(tmp_path, "-p", "no:snapreport", "--cuda-memory")
    assert "unrecognized arguments: --cuda-memory" in done.stderr
