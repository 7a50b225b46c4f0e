"""``snapreport check`` where jobs go wrong: several files, pipes, baselines with other devices, existing outputs."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import corpus
import pytest
from cli import assert_refused, process
from cli import in_process as run
from planted import path_of, planted

from snapreport.contracts import json_text
from snapreport.findings.gate import check
from snapreport.findings.gate_rules import Growth, Rules

TINY = {"steps": 2, "layers": 1, "hidden": 64, "heads": 2, "sequence": 32, "vocabulary": 512}


def tiny(**changes: Any) -> Path:
    return path_of("training", **{**TINY, **changes})


def peak(path: Path) -> int:
    return max(device.peak_bytes for device in corpus.replayed(path).values())


def test_one_bad_file_of_several_fails_and_is_named() -> None:
    good, bad = tiny(), tiny(regression=2.0)
    done = run("check", good, bad, "--max-peak", peak(good), "--json")
    assert done.code == 1
    assert [(c["file"], c["passed"]) for c in done.json["checks"]] == [(good.name, True), (bad.name, False)]
    assert run("check", good, bad, "--max-peak", peak(bad)).code == 0


def test_one_unreadable_file_of_several_decides_nothing(tmp_path: Path) -> None:
    """No result is written: half of one would look complete."""
    broken = tmp_path / "broken.pickle"
    broken.write_bytes(tiny().read_bytes()[:-40])
    done = run("check", tiny(), broken, "--max-peak", "1GiB", "--summary-md", tmp_path / "out.md")
    assert_refused(done, broken)
    assert not (tmp_path / "out.md").exists()


def test_from_a_pipe() -> None:
    content = tiny().read_bytes()
    assert run("check", "-", "--max-peak", "1GiB", stdin=content).code == 0
    done = run("check", "-", "--max-peak", "1MiB", "--json", stdin=content)
    assert done.code == 1 and not done.json["passed"]
    both = run("check", "-", "--baseline", tiny(), "--max-growth", "0%", stdin=content)
    assert both.code == 0
    assert run("check", tiny(), "--baseline", "-", "--max-growth", "0%", stdin=content).code == 0
    for arguments in (("-", "-", "--max-peak", "1GiB"), ("-", "--baseline", "-", "--max-growth", "5%")):
        assert_refused(run("check", *arguments, stdin=content), "once")


def test_a_device_that_the_baseline_does_not_have() -> None:
    """A second device with memory is growth from nothing; a missing device is reported and passes."""
    one, two = tiny(), tiny(devices=2)
    done = run("check", two, "--baseline", one, "--max-growth", "50%", "--json")
    checks = {c["device"]: c for c in done.json["checks"]}
    assert done.code == 1
    assert checks["cuda:0"]["passed"] and not checks["cuda:1"]["passed"]
    assert "the baseline has no such device" in checks["cuda:1"]["message"] and checks["cuda:1"]["evidence"]
    assert run("check", two, "--baseline", one, "--max-growth", "50GiB").code == 0
    gone = run("check", one, "--baseline", two, "--max-growth", "50%")
    assert gone.code == 0 and "not in this snapshot" in gone.out


@pytest.mark.skipif("private_pool_gpu3.pickle" not in corpus.real_names(), reason=corpus.NO_REAL)
def test_a_baseline_of_another_device_cannot_be_judged() -> None:
    done = run("check", tiny(), "--baseline", corpus.path_of("private_pool_gpu3.pickle"), "--max-growth", "5%")
    assert_refused(done, "no device in common")


def test_every_device_is_held_to_the_limit() -> None:
    path = path_of("multi-gpu", steps=1, layers=2, hidden=128, heads=4, sequence=64, memory=2 << 30)
    devices = corpus.replayed(path)
    limit = sorted(device.peak_bytes for device in devices.values())[-2]
    checks = run("check", path, "--max-peak", limit, "--json").json["checks"]
    assert [c["passed"] for c in checks] == [device.peak_bytes <= limit for device in devices.values()]
    assert sum(not c["passed"] for c in checks) == 1
    told = run("check", path, "--fail-on", "oom", "--json").json["checks"]
    assert [c["passed"] for c in told] == [not any(e["action"] == "oom" for e in d.events) for d in devices.values()]


@pytest.mark.parametrize(
    ("preset", "kind"),
    [("oom", "oom"), ("leak", "leak"), ("churn", "churn"), ("fragmentation", "fragmentation")],
)
def test_each_kind_fails_by_its_name(preset: str, kind: str) -> None:
    """And no other: the message is the finding's own."""
    path = path_of(preset)
    done = run("check", path, "--fail-on", " LEAK,churn ,, oom,fragmentation,oom", "--json")
    failed = [c["rule"] for c in done.json["checks"] if c["status"] == "failed"]
    assert done.code == 1 and f"fail-on {kind}" in failed
    assert set(failed) <= {f"fail-on {kind}", "fail-on oom"}
    assert [c["rule"] for c in done.json["checks"]] == [
        f"fail-on {k}" for k in ("leak", "churn", "oom", "fragmentation")
    ]
    passed = ",".join(c["rule"].split()[1] for c in done.json["checks"] if c["status"] == "passed")
    assert run("check", path, "--fail-on", passed).code == 0


def test_a_hint_is_no_failure() -> None:
    """Reference cycles are reported as information: their memory is freed, only late."""
    assert run("check", path_of("leak", leak=0, cycles=3), "--fail-on", "leak").code == 0


def test_rules_of_ones_own(tmp_path: Path) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text('[[rule]]\ncategory = "input"\nfunction = "forward"\n')
    assert run("check", tiny(), "--max-peak", "1GiB", "--rules", rules).code == 0
    for text in (
        "[[rule]\n",
        '[[rule]]\ncategory = "nonsense"\nfunction = "x"\n',
        '[[rule]]\ncategory = "input"\nfunction = "("\n',
    ):
        rules.write_text(text)
        assert_refused(run("check", tiny(), "--max-peak", "1GiB", "--rules", rules), rules)
    assert_refused(run("check", tiny(), "--max-peak", "1GiB", "--rules", tmp_path / "none.toml"), "none.toml")


def test_what_would_be_written_over_is_refused_first(tmp_path: Path) -> None:
    snap = tmp_path / "snap.pickle"
    shutil.copy(tiny(), snap)
    before = snap.read_bytes()
    for option in ("--summary-md", "--junit"):
        assert_refused(run("check", snap, "--max-peak", "1GiB", option, snap), "the snapshot itself")
        assert_refused(
            run("check", tiny(), "--baseline", snap, "--max-growth", "5%", option, snap), "the snapshot itself"
        )
        assert_refused(run("check", snap, "--max-peak", "1GiB", option, tmp_path), "is a directory")
    assert snap.read_bytes() == before
    both = tmp_path / "both"
    assert_refused(run("check", snap, "--max-peak", "1GiB", "--summary-md", both, "--junit", both), "the same file")
    assert not both.exists()


def test_standard_output_holds_one_thing() -> None:
    markdown = run("check", tiny(), "--max-peak", "1GiB", "--summary-md", "-")
    assert markdown.code == 0 and markdown.out.startswith("## 1 memory check passed") and "ok  " not in markdown.out
    xml = run("check", tiny(), "--max-peak", "1MiB", "--junit", "-")
    assert xml.code == 1 and xml.out.startswith("<testsuites>")
    for more in (("--json",), ("--junit", "-")):
        assert_refused(run("check", tiny(), "--max-peak", "1GiB", "--summary-md", "-", *more), "once")


def test_as_a_process_the_exit_code_is_the_verdict(tmp_path: Path) -> None:
    """An empty summary file that the job created is replaced and keeps its mode."""
    summary = tmp_path / "summary"
    summary.touch(0o600)
    failed = process("check", path_of("leak"), "--fail-on", "leak", "--summary-md", summary)
    assert failed.code == 1 and failed.err == "" and "log_step" in failed.out
    assert summary.stat().st_mode & 0o777 == 0o600 and "log_step" in summary.read_text().replace("\\", "")
    assert process("check", tiny(), "--max-peak", "1GiB").code == 0
    assert_refused(process("check", tmp_path / "none.pickle", "--max-peak", "1GiB"), "none.pickle")


def test_shares_are_exact() -> None:
    """29% of 100 is 29, though 0.29 is slightly less in binary."""
    assert Growth(share=29 / 100).limit(100) == 129
    assert Growth(share=0.0).limit(1 << 50) == 1 << 50
    snapshot = planted("training", **TINY)
    (result,) = check(snapshot, Rules(max_peak=snapshot.timeline(0).peak_bytes))
    assert result.passed and json_text(result)
