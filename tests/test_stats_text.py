"""``stats`` prints what matters to people: findings, settings, and stacks by the program's own lines."""

from __future__ import annotations

import re
from pathlib import Path

import corpus
from cli import in_process as run
from cli import on_loaded

from snapreport.findings.run import findings
from snapreport.timeline.operators import stack_labels

NOISE = re.compile(r"torch::unwind|CapturedTraceback|c10::|_PyEval|PyObject_")


def test_findings_settings_and_stacks(telling_path: Path) -> None:
    out = on_loaded("stats", telling_path).out
    ticket = on_loaded("stats", "--markdown", telling_path).out
    snapshot = corpus.loaded(telling_path)
    words = " ".join(out.split())
    for finding in findings(snapshot):
        if finding.kind != "advice":
            assert " ".join(finding.title.replace("`", "").split()) in words.replace("`", "")
    lines = stack_labels(snapshot.recording)
    shown = {timeline.device: timeline for timeline in map(snapshot.timeline, snapshot.devices) if timeline.peak_bytes}
    for timeline in shown.values():
        for row in timeline.top_stacks[:3]:
            name = lines[row["stack"]] or "no stack trace"
            assert name in out
            assert not NOISE.search(name) or "::" not in name
    if shown:
        assert "Allocator settings that are not the default" in out and "About this recording" in out
        assert "About this recording" in ticket


def test_cpp_frames_never_name_a_stack_that_has_python() -> None:
    """These stacks begin with C++ frames of the unwinder, the dispatcher and the allocator."""
    for name in ("adamw_foreach_step.pickle", "lightning_oom.pickle", "inference_churn.pickle"):
        if name in corpus.real_names():
            for arguments in (("stats",), ("stats", "--markdown"), ("stats", "--query", "live:peak")):
                assert not NOISE.search(on_loaded(*arguments, corpus.path_of(name)).out)


def test_help_of_the_bare_command_has_the_options_of_a_report() -> None:
    out = run("--help").out
    assert all(option in out for option in ("--output", "--title", "--max-size", "--source", "--rules", "--version"))


def test_json_has_the_frames_of_the_stacks_that_it_names_only_on_request() -> None:
    path = corpus.path_of("oom")
    short = on_loaded("stats", path, "--json")
    assert '"filename"' not in short.out
    (entry,) = on_loaded("stats", path, "--json", "--frames").json["snapshots"]
    (same,) = short.json["snapshots"]
    frames = entry.pop("stacks")
    assert entry == same
    named = {int(number) for number in re.findall(r'"stack": (\d+)', short.out)}
    assert {int(number) for number in frames} == named
    snapshot = corpus.loaded(path)
    assert all(rows == snapshot.frames(int(number)).rows(named=True) for number, rows in frames.items())
    assert on_loaded("stats", path, "--frames").code == 2
