"""check over the ranks of a job, and diff of two jobs."""

from __future__ import annotations

import re
import statistics
from pathlib import Path
from typing import Any

import generator
import pytest
from cli import in_process

import snapreport
from snapreport.jobs.rank_findings import merged_findings, where_found
from snapreport.number_format import bytes_text

SMALL = {"hidden": 256, "layers": 2, "steps": 3, "micro_batches": 2, "operations": 4, "vocabulary": 4000}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight ranks, of which rank 3 leaks."""
    made = tmp_path_factory.mktemp("job")
    generator.write_job(made, "data", ranks=8, straggler=3, leak=16 << 20, **SMALL)
    return made


@pytest.fixture(scope="module")
def digests(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Digests of the same ranks, which no process of their own reads."""
    return digested(folder, tmp_path_factory.mktemp("digests"))


def digested(folder: Path, out: Path) -> Path:
    out.mkdir(exist_ok=True)
    for path in folder.iterdir():
        (out / f"{path.stem}.digest").write_bytes(snapreport.digest(path))
    return out


@pytest.fixture(scope="module")
def peaks(folder: Path) -> list[int]:
    loaded = [snapreport.load(path) for path in sorted(folder.iterdir())]
    return [max(snapshot.timeline(device).peak_bytes for device in snapshot.devices) for snapshot in loaded]


def checked(*arguments: object) -> tuple[int, dict[str, Any]]:
    run = in_process("check", *arguments, "--json")
    return run.code, run.json


def test_imbalance_is_the_worst_rank_above_the_median(digests: Path, peaks: list[int]) -> None:
    exact = max(peaks) / statistics.median(peaks) - 1
    code, document = checked(digests, "--max-imbalance", f"{100 * exact - 0.1:.4f}%")
    check = document["checks"][0]
    assert code == 1 and check["rule"] == "max-imbalance" and check["value"] == max(peaks)
    assert check["message"].startswith("rank 3:") and "metrics.py:31" in check["evidence"][0]
    said = re.search(r" ([\d.]+)% above the median of \d+ ranks", check["message"])
    assert said is not None and abs(float(said[1]) - 100 * exact) <= 0.5
    assert checked(digests, "--max-imbalance", f"{100 * exact + 0.1:.4f}%")[0] == 0


def test_limits_hold_for_the_worst_rank(digests: Path, peaks: list[int]) -> None:
    assert checked(digests, "--max-peak", f"{max(peaks)}B")[0] == 0
    code, document = checked(digests, "--max-peak", f"{max(peaks) - 1}B")
    assert code == 1 and len(document["checks"]) == 1
    assert document["checks"][0]["file"].endswith("rank_00003_step_00000003_steps.digest")


def test_a_missing_rank_decides_nothing(digests: Path, tmp_path: Path) -> None:
    for path in sorted(digests.iterdir())[:7]:
        (tmp_path / path.name).symlink_to(path)
    assert checked(tmp_path, "--max-peak", "40GiB")[0] == 2
    assert checked(tmp_path, "--max-peak", "2MiB")[0] == 1, "what is broken is broken, whatever is missing"


def test_every_rank_fits_or_the_one_that_does_not_is_named(folder: Path, digests: Path, tmp_path: Path) -> None:
    reserved = {row.rank: row.digest.peak_reserved for row in snapreport.job(digests, jobs=1).rows}
    code, document = checked(folder, "--fits", f"{max(reserved.values())}B")
    assert code == 0 and "no rank reserved more" in document["checks"][0]["message"]
    code, document = checked(folder, "--fits", "64MiB")
    assert code == 1 and document["checks"][0]["message"].startswith("rank 3: runs out of memory")
    # A rank's own check says how much it needs, to 2 MiB: that is enough for all.
    least = document["checks"][0]["value"]
    code, document = checked(folder, "--fits", f"{least}B")
    assert code == 0 and document["checks"][0]["message"].startswith("all 8 ranks run on")
    # A digest does not contain enough for a replay.
    digest = tmp_path / "rank3.digest"
    digest.write_bytes(snapreport.digest(sorted(folder.iterdir())[3]))
    code, document = checked(digest, "--fits", "64MiB")
    assert code == 2 and "only its digest" in document["checks"][0]["unknown"]


def test_growth_is_that_of_the_worst_rank(digests: Path, peaks: list[int], tmp_path: Path) -> None:
    generator.write_job(tmp_path / "job", "data", ranks=8, **SMALL)
    before = digested(tmp_path / "job", tmp_path / "before")
    assert checked(digests, "--baseline", digests, "--max-growth", "0%")[0] == 0
    grown = max(peaks) - min(peaks)
    assert checked(digests, "--baseline", before, "--max-growth", f"{grown}B")[0] == 0
    code, document = checked(digests, "--baseline", before, "--max-growth", f"{grown - 1}B")
    check = document["checks"][0]
    assert code == 1 and check["value"] == max(peaks) and check["limit"] == max(peaks) - 1
    assert check["message"].startswith("rank 3: ") and "log_step" in " ".join(check["evidence"])
    # The same two jobs compared: one rank changed, and the comparison says where.
    text = in_process("diff", before, digests).out
    assert "Ranks 0–7: no change on most ranks" in text and "  Rank 3: " in text and "log_step train/metrics.py" in text
    assert "New outlier: Rank 3 of 8 holds " in text and "train/metrics.py:31" in text


def test_the_evidence_of_an_imbalance_is_about_the_highest_rank(tmp_path: Path) -> None:
    """The first stage holds most; the outlier is another rank."""
    generator.write_job(tmp_path / "job", "pipeline", ranks=8, straggler=5, leak=4 << 20, **{**SMALL, "hidden": 128})
    made = digested(tmp_path / "job", tmp_path / "digests")
    code, document = checked(made, "--max-imbalance", "5%", "--fail-on", "oom")
    imbalance, calm = document["checks"]
    assert code == 1 and imbalance["message"].startswith("rank 0: ")
    assert imbalance["evidence"] and all(" more in " in line and "rank 5" not in line for line in imbalance["evidence"])
    assert calm["passed"] and calm["file"] == str(made), "no single rank's file"


def test_what_most_ranks_have_is_described_by_a_typical_one(digests: Path) -> None:
    """Not by the rank that leaks, which is named as the one with most."""
    made = snapreport.job(digests, jobs=1)
    merged = {one.finding.kind: one for one in merged_findings(made)}
    common = merged["live_at_end"]
    assert common.rows == list(range(8))
    sizes = sorted(
        finding.bytes for row in made.rows for finding in row.packed.read().findings if finding.kind == "live_at_end"
    )
    assert common.finding.bytes in (sizes[3], sizes[4]) and common.row != 3
    assert common.most == (3, sizes[-1])
    assert where_found(made, common) == f"on all 8 ranks, most on rank 3: {bytes_text(sizes[-1])}"


@pytest.mark.parametrize(("steps", "code"), [(2, 2), (9, 0)])
def test_too_few_steps_decide_nothing_of_a_leak(steps: int, code: int, tmp_path: Path) -> None:
    generator.write_job(tmp_path / "job", "data", ranks=2, **{**SMALL, "steps": steps, "micro_batches": 1})
    found, document = checked(digested(tmp_path / "job", tmp_path / "digests"), "--fail-on", "leak")
    (check,) = document["checks"]
    reason = "Too few steps to detect a leak: record at least four. (on all 2 ranks)" if code == 2 else ""
    assert found == code and check["message"] == (reason or "no leak found on 2 ranks")
    assert check["unknown"] == reason


def test_bad_usage(folder: Path) -> None:
    assert in_process("check", folder, "--max-imbalance", "10").code == 2
    assert "is a job" in in_process("check", next(folder.iterdir()), "--baseline", folder, "--max-growth", "1%").err
    assert in_process("check", folder).code == 2


def test_two_jobs(digests: Path, tmp_path: Path) -> None:
    generator.write_job(tmp_path / "job", "data", ranks=9, **{**SMALL, "micro_batches": 2, "hidden": 320})
    digested(tmp_path / "job", tmp_path / "after")
    run = in_process("diff", digests, tmp_path / "after", "--json")
    assert run.code == 0, run.err
    document = run.json
    assert document["schema"] == "snapreport-job-diff/1"
    before, after = snapreport.job(digests, jobs=1), snapreport.job(tmp_path / "after", jobs=1)
    expected = [
        {"rank": rank, "before_bytes": int(before.peaks[rank]), "after_bytes": int(after.peaks[rank])}
        for rank in range(8)
    ]
    assert document["ranks"] == expected
    assert (document["only_before"], document["only_after"]) == ([], [8])
    assert (document["new_outliers"], document["gone_outliers"]) == ([], [3])
    assert document["worst_before"]["rank"] == 3
    group = document["groups"][0]
    assert group["ranks"] == list(range(8)) and group["after_bytes"] > group["before_bytes"]
    total = sum(place["change_bytes"] for place in group["places"])
    assert total == pytest.approx(group["after_bytes"] - group["before_bytes"], rel=0.1)
    text = in_process("diff", digests, tmp_path / "after").out
    assert "No longer an outlier: rank 3." in text and "Only in the second job: rank 8." in text


def test_two_jobs_as_a_page(digests: Path, tmp_path: Path) -> None:
    generator.write_job(tmp_path / "job", "data", ranks=9, **{**SMALL, "hidden": 320})
    digested(tmp_path / "job", tmp_path / "<after>")
    out = tmp_path / "diff.html"
    run = in_process("diff", digests, tmp_path / "<after>", "-o", out)
    assert run.code == 0 and "No longer an outlier: rank 3." in run.out, run.err
    page = out.read_text(encoding="utf-8")
    assert "&lt;after&gt;" in page and "<after>" not in page and "<script" not in page and "default-src 'none'" in page
    assert all(f'id="rank-{rank}"' in page for rank in range(8)) and 'id="rank-8"' not in page
    assert "No longer an outlier: rank 3." in page and len(page) < 100_000


def test_a_job_against_itself_changed_nothing(digests: Path) -> None:
    run = in_process("diff", digests, digests, "--json")
    assert all(entry["before_bytes"] == entry["after_bytes"] for entry in run.json["ranks"])
    assert all(not group["places"] for group in run.json["groups"])


def test_a_comparison_of_two_jobs_can_be_redacted(tmp_path: Path) -> None:
    """Only where a digest is made; so the ranks are snapshots here."""
    for name, straggler in (("before", None), ("alice", 0)):
        generator.write_job(tmp_path / name, "data", ranks=1, straggler=straggler, leak=16 << 20, **SMALL)
    out = tmp_path / "diff.html"
    jobs, hide = (tmp_path / "before", tmp_path / "alice"), ("--redact-pattern", "alice|log_step|metrics")
    run = in_process("diff", *jobs, "-o", out, *hide)
    assert run.code == 0 and "*** ~/***.py" in run.out, run.err
    for text in (run.out, out.read_text("utf-8")):
        assert not [name for name in ("alice", "log_step", "metrics") if name in text]
    assert in_process("diff", *jobs, "--device", "0").code == 2
