"""``stats --brief``: short whatever the snapshot holds, and the same numbers as the whole."""

from __future__ import annotations

import json
from pathlib import Path

import corpus
import pytest
from cli import in_process, on_loaded

from snapreport.findings.run import findings
from snapreport.report.brief import MOST_BYTES, MOST_TEXT


@pytest.mark.parametrize("name", ["oom", "leak", "multi-gpu", "truncated", "no-stacks", *corpus.varied_names()])
def test_every_snapshot_is_short_and_right(name: str) -> None:
    snapshot_path = corpus.path_of(name)
    text = on_loaded("stats", "--brief", snapshot_path)
    assert text.code == 0 and len(text.out.encode()) <= MOST_TEXT
    run = on_loaded("stats", "--brief", "--json", snapshot_path)
    assert run.code == 0 and len(run.out.encode()) <= MOST_BYTES
    (file,) = run.json["snapshots"]
    snapshot = corpus.loaded(snapshot_path)
    every = findings(snapshot)
    for device in file["devices"]:
        timeline = snapshot.timeline(device["device"])
        assert device["peak_allocated_bytes"] == timeline.peak_bytes == sum(device["categories"].values())
        assert device["is_lower_bound"] == bool(timeline.recording_gaps)
        titles = {str(f.title): f for f in every if f.device == device["device"]}
        for finding in device["findings"]:
            own = titles.get(finding["title"])
            assert own is not None or finding["title"].endswith("…")
            if own is not None and finding["saving"]:
                assert finding["saving"]["peak_bytes"] == own.evidence["saving"]["peak_bytes"]
        worst = [f for f in every if f.device == device["device"] and f.severity == "error"]
        assert not worst or device["findings"][0]["severity"] == "error"
    first, *others = file["devices"]
    whole = sum(f.device == first["device"] and f.kind != "peak" for f in every)
    assert all(len(first["findings"]) >= min(whole, len(device["findings"])) for device in others), "the worst device"
    assert first["activity"] in " ".join(text.out.split())
    shown = {device["device"] for device in file["devices"]}
    some = {d for d in snapshot.devices if len(snapshot.allocations(d)) or len(snapshot.events(d))}
    assert len(some - shown) == file["left_out"].get("devices", 0)


def test_the_remedy_and_its_place_are_in_the_text() -> None:
    text = on_loaded("stats", "--brief", corpus.path_of("oom")).out
    advice = next(
        f for f in findings(corpus.loaded(corpus.path_of("oom"))) if f.kind == "advice" and f.evidence["where"]
    )
    assert advice.evidence["where"].rpartition("/")[2] in text and str(advice.evidence["effort"]) in text


@pytest.mark.parametrize("option", [["--markdown"], ["--query", "size>1MiB"]])
def test_what_does_not_go_together(option: list[str]) -> None:
    assert in_process("stats", "--brief", *option, corpus.path_of("small")).code == 2


def test_several_snapshots() -> None:
    run = on_loaded("stats", "--brief", "--json", corpus.path_of("small"), corpus.path_of("oom"))
    assert [Path(one["file"]).name for one in json.loads(run.out)["snapshots"]] == ["small.pickle", "oom.pickle"]


@pytest.mark.skipif("adamw_foreach_step.pickle" not in corpus.real_names(), reason="needs ../shared")
def test_what_two_remedies_save_together_is_said_where_there_is_room() -> None:
    """In this file only the second remedy at the second peak makes the first one worth 14 GiB."""
    run = on_loaded("stats", "--brief", "--json", corpus.path_of("adamw_foreach_step.pickle"))
    first = run.json["snapshots"][0]["devices"][0]["findings"][0]
    assert "fused=True" in first["detail"] and "51.6 GiB" in first["detail"]


@pytest.mark.parametrize("name", ["oom", "leak", "multi-gpu"])
def test_the_command_that_writes_a_report_prints_how_it_begins(name: str, tmp_path: Path) -> None:
    path = corpus.path_of(name)
    size, *begins = on_loaded(path, "-o", str(tmp_path / "report.html")).err.splitlines()
    (file,) = on_loaded("stats", "--brief", "--json", path).json["snapshots"]
    assert size.startswith(f"{tmp_path / 'report.html'}: ") and all(len(line) <= 100 for line in begins)
    assert begins and " ".join(begins) == file["headline"][0]
