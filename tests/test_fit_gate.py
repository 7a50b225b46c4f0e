"""``snapreport check --fits … --at … --to …``: values that were not recorded as a rule."""

from __future__ import annotations

import json
from pathlib import Path

import cli
import corpus
import pytest

import snapreport
from snapreport.forecast.prediction import ROOM

MIB = 1 << 20


def check(*arguments: object) -> tuple[int, list[dict[str, object]]]:
    done = cli.in_process("check", *arguments, "--json")
    return done.code, json.loads(done.out)["checks"] if done.out else []


@pytest.fixture(scope="module")
def path() -> Path:
    return corpus.path_of("small")


@pytest.fixture(scope="module")
def ends(path: Path) -> tuple[int, int]:
    """Bytes that batch 16 reserves at least and at most, estimated from the recording as one at batch 8."""
    (device,) = snapreport.fit([path], [8], to=[16])["devices"]
    row = device["predictions"][-1]
    return row["low_bytes"], row["high_bytes"]


def test_an_estimate_decides_outside_its_range_only(path: Path, ends: tuple[int, int]) -> None:
    low, high = ends
    assert high / low > (1 + ROOM) / (1 - ROOM) - 0.01
    for memory, code, status in [
        (high + MIB, 0, "passed"),
        ((low + high) // 2, 2, "unknown"),
        (low - MIB, 1, "failed"),
    ]:
        found, checks = check("--fits", f"{memory}B", "--at", "batch=8", "--to", "16", path)
        assert (found, [one["status"] for one in checks]) == (code, [status])
        assert checks[0]["rule"] == "fits"
        assert checks[0]["limit"] == memory


def test_one_value_is_each_recordings_own_and_several_are_fitted_together(path: Path) -> None:
    """Two equal recordings do not depend on the number: what is recorded is what any value takes."""
    peak = snapreport.load(path).peak(0)["max_reserved"]
    at_most = ("--fits", f"{peak}B", "--to", "16,32")
    code, checks = check(*at_most, "--at", "batch=4,8", path, path)
    assert code == 0
    assert [one["value"] for one in checks] == [peak, peak]
    code, checks = check(*at_most, "--at", "8", path, path)
    assert code != 0
    assert len(checks) == 4
    code, checks = check("--fits", f"{peak // 2}B", "--to", "16", "--at", "batch=4,8", path, path)
    assert (code, checks[0]["passed"]) == (1, False)


def test_other_outputs_and_rules_beside_it(path: Path, tmp_path: Path) -> None:
    junit = tmp_path / "junit.xml"
    rules = ["--max-peak", "80GiB", "--fits", "80GiB", "--at", "batch=8", "--to", "16", "--junit", junit]
    done = cli.in_process("check", *rules, path)
    assert done.code == 0
    assert "within the limit of 80.0 GiB (foretold)" in done.out
    assert "fits" in junit.read_text()
    assert done.out.count("max-peak") == 1


def test_what_cannot_be_foretold_is_not_decided(path: Path) -> None:
    code, (one,) = check("--fits", "80GiB", "--at", "length=64", "--to", "128", path)
    assert (code, one["status"]) == (2, "unknown")
    code, (one,) = check("--fits", "80GiB", "--at", "8", "--to", "16", corpus.path_of("oom"))
    assert (code, one["status"]) == (2, "unknown")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--at", "8", "--to", "16"],
        ["--fits", "1GiB", "--at", "8"],
        ["--fits", "1GiB", "--to", "8"],
        ["--fits", "1GiB", "--at", "=8", "--to", "16"],
        ["--fits", "1GiB", "--at", "batch=", "--to", "16"],
        ["--fits", "1GiB", "--at", "4,8", "--to", "16"],
    ],
)
def test_refusals(path: Path, arguments: list[str]) -> None:
    done = cli.in_process("check", *arguments, path)
    assert done.code == 2
    assert len(done.err.strip().splitlines()) == 1
