"""Of a job recorded at two lengths: the rank that fails first, against the job at a third one."""

from __future__ import annotations

import json
from pathlib import Path

import cli
import generator
import msgspec
import pytest

import snapreport
from snapreport.contracts.fit import FitDocument
from snapreport.report.fit_text import fit_text

SMALL = {"hidden": 256, "layers": 2, "steps": 2, "micro_batches": 2, "operations": 4, "vocabulary": 4000}
HEAVY = 2


def job_at(folder: Path, tokens: int) -> Path:
    path = folder / f"tokens{tokens}"
    generator.write_job(path, "data", ranks=3, heavy=HEAVY, tokens=tokens, **SMALL)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lengths")


def test_the_rank_that_fails_first(folder: Path) -> None:
    recorded = [job_at(folder, tokens) for tokens in (1024, 2048)]
    job_at(folder, 4096)
    ran = {}
    for rank in range(3):
        (path,) = (folder / "tokens4096").glob(f"rank_0000{rank}_*")
        snapshot = snapreport.load(path)
        (device,) = (device for device in snapshot.devices if len(snapshot.events(device)))
        ran[rank] = snapshot.peak(device)
    memory = max(peak["max_reserved"] for peak in ran.values())
    options = ["--at", "1024,2048", "--to", "4096", "--name", "tokens", "--memory", f"{memory}B"]
    found = json.loads(cli.in_process("fit", *recorded, *options, "--json").out)
    for row in found["ranks"]:
        assert row["reason"] is None
        assert row["predictions"][-1]["peak_allocated_bytes"] == ran[row["rank"]]["allocated"]
        assert row["predictions"][-1]["fits"]
    (first,) = found["first_to_fail"]
    assert first["rank"] == HEAVY
    assert not first["tied_ranks"]
    assert 4096 <= first["value"] < 4096 * 1.1
    assert found["devices"][0]["largest"][0]["value"] == first["value"]
    text = fit_text(msgspec.convert(found, FitDocument))
    assert f"rank {HEAVY}" in text
    assert "3 ranks" in text


def test_ranks_that_fail_together_are_all_named(folder: Path) -> None:
    recorded = []
    for tokens in (512, 1024):
        path = folder / f"equal{tokens}"
        generator.write_job(path, "data", ranks=3, tokens=tokens, **SMALL)
        recorded.append(path)
    options = ["--at", "512,1024", "--name", "tokens", "--memory", "400MiB"]
    done = cli.in_process("fit", *recorded, *options, "--json")
    (first,) = json.loads(done.out)["first_to_fail"]
    assert (first["rank"], first["tied_ranks"]) == (0, [1, 2])
    assert "all 3 ranks" in cli.in_process("fit", *recorded, *options).out


def test_refusals(folder: Path) -> None:
    ranks = sorted(job_at(folder, 512).iterdir())
    one, other = folder / "one", folder / "other"
    for alone, path in ((one, ranks[0]), (other, ranks[1])):
        alone.mkdir()
        path.rename(alone / path.name)
    for arguments in ([one, other, "--at", "1,2"], [one, other], [one, other, "--at", "8"]):
        done = cli.in_process("fit", *arguments)
        assert done.code == 2
        assert len(done.err.strip().splitlines()) == 1
