"""The package of docs/plugins.md, installed by pip: its rule, its reader and its exporter are used."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import corpus
import pytest

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "plugins.md"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plugins")
    blocks = dict(re.findall(r"```(toml|python)\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL))
    points = re.sub(r'\[project\.entry-points\."(.+)"\]', r"[\1]", blocks["toml"]).replace('"', "")
    info = "acme_memory-1.0.dist-info"
    wheel = folder / "acme_memory-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("acme_memory.py", blocks["python"])
        file.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: acme-memory\nVersion: 1.0\n")
        file.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(f"{info}/entry_points.txt", points)
        file.writestr(f"{info}/RECORD", "")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--target", str(folder / "site")]
    subprocess.run([*pip, str(wheel)], check=True, capture_output=True)
    return folder / "site"


def run(site: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH", "")]))}
    command = [sys.executable, "-m", "snapreport", *map(str, arguments)]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def test_a_reader_and_a_rule(installed: Path, tmp_path: Path) -> None:
    snap, page = tmp_path / "run.acme", tmp_path / "report.html"
    snap.write_text(f"ACME\n{json.dumps([2048, 512])}")
    done = run(installed, "stats", "--json", snap)
    assert json.loads(done.stdout)["snapshots"][0]["devices"][0]["peak_allocated_bytes"] == 2560
    snap = corpus.path_of("pools")
    done = run(installed, snap, "-o", page)
    assert done.returncode == 0, done.stderr
    rows = corpus.loaded(snap).allocations(0).rows(named=True)
    big = [row for row in rows if row["category"] == "input" and row["size"] > 4 << 20]
    assert big and f"{len(big)} inputs are larger than 4 MiB" in page.read_text("utf-8")


def test_an_exporter(installed: Path) -> None:
    snap = corpus.path_of("oom")
    done = run(installed, "export", snap, "--to", "acme-csv", "-o", "-")
    assert done.stdout.split() == [f"{snap.name},0,{corpus.loaded(snap).peak(0)['allocated']}"]


def test_a_package_that_is_broken_is_named(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "acme_memory.py").write_text("import nothing_of_that_name")
    done = run(Path(f"{tmp_path}{os.pathsep}{installed}"), "stats", corpus.path_of("oom"))
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "of acme-memory cannot be loaded: No module named" in done.stderr
