"""The options of a job's report on the command line: its size, quoted source, links."""

from __future__ import annotations

from pathlib import Path

import generator
import pytest
from cli import assert_refused, in_process
from decoder import Report

SMALL = {"hidden": 256, "layers": 2, "steps": 3, "micro_batches": 2, "operations": 4, "vocabulary": 4000}


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return generator.write_job(tmp_path_factory.mktemp("job"), "experts", ranks=3, **SMALL)


def shown_in_full(path: Path) -> int:
    return len(Report(path.read_text(encoding="utf-8")).manifest["job"]["detail"])


def test_a_report_of_ranks_fits_a_size(ranks: list[Path], tmp_path: Path) -> None:
    """Also when given to the plain command. What is left out is stated: parts first, then ranks in full."""
    full, small = tmp_path / "full.html", tmp_path / "small.html"
    assert in_process(*ranks, "-o", full).code == 0
    assert shown_in_full(full) == 2
    size = full.stat().st_size
    parts = in_process(*ranks, "-o", small, "--max-size", size - 100)
    assert parts.code == 0 and "left out to fit" in parts.err and shown_in_full(small) == 2
    assert small.stat().st_size <= size - 100
    # Less than what leaving out columns makes room for.
    alone = in_process("job", *ranks, "-o", small, "--max-size", size - 8_000)
    assert alone.code == 0 and "not shown in full, to fit" in alone.err and shown_in_full(small) < 2
    assert small.stat().st_size <= size - 8_000
    assert "shown in full, to fit" in small.read_text(encoding="utf-8")
    assert_refused(in_process("job", *ranks, "-o", tmp_path / "no.html", "--max-size", "50KB"), "allowed")


def test_source_and_links_of_the_ranks_in_full(ranks: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "job.html"
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "pretrain.py").write_text("line\n" * 120)
    links = ("--link", "vscode://file/{path}:{line}", "--strip-prefix", "/local/node000/train")
    done = in_process(*ranks, "-o", out, "--source", tmp_path, *links)
    assert done.code == 0, done.err
    report = Report(out.read_text(encoding="utf-8"))
    assert [rule["url"] for rule in report.section("stacks")["source_links"]] == ["vscode://file/{path}:{line}"]
    (name,) = report.section("source")["files"]
    assert name.endswith("train/pretrain.py")


def test_page_options_need_a_page(ranks: list[Path]) -> None:
    assert_refused(in_process("job", *ranks, "--json", "--max-size", "1MB"), "give -o")
    assert_refused(in_process("job", *ranks, "--link", "javascript:{path}"), "--link")


def test_a_sample_of_a_job(tmp_path: Path) -> None:
    assert in_process("sample", "job", "-o", tmp_path / "run").code == 0
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [f"rank{rank}.pickle" for rank in range(4)]
    job = in_process("job", tmp_path / "run", "--json").json
    assert job["headline"][0].startswith("Rank 2 of 4 ran out of memory at step 3.")
