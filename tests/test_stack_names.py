"""A stack is named by the program's own line, or the model's where that only launches it, in Python and on the page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import corpus
import name_oracle
import oracle
import pytest
import recorded
from decoder import Report

import snapreport
from snapreport.timeline.own_code import own_lines, stack_names

# (recording, function of the line that names, the expected name): all bytes allocated there have the name.
LAUNCHED = [
    ("hf_trainer", "frameworks_scen.py:42"),
    ("hf_trainer_oom", "frameworks_scen.py:42"),
    ("peft_lora", "frameworks_scen.py:52"),
]


def test_names_are_the_oracle_s(snapshot_path: Path) -> None:
    corpus.replayed(snapshot_path)
    recording = corpus.loaded(snapshot_path).recording
    names = stack_names(recording)
    rows = recording.frames.select("filename", "line", "name").rows()
    seen = {stack for device in corpus.replayed(snapshot_path).values() for stack in stacks_of(device)}
    for number in range(len(names.frame)):
        stack = tuple(rows[i] for i in recording.stack(number))
        if stack not in seen:
            continue
        frame = name_oracle.named_frame(stack)
        assert (rows[names.frame[number]] if names.frame[number] >= 0 else None) == frame
        if names.frame[number] >= 0:
            assert recording.stack(number)[names.place[number]] == names.frame[number]
        launcher = name_oracle.split(stack)[1] if stack in name_oracle.LAUNCHED else None
        assert (rows[names.launcher[number]] if names.launcher[number] >= 0 else None) == launcher


def stacks_of(device: Any) -> set[Any]:
    """Those of events and blocks, which the oracle also reads."""
    return {oracle.frames_of(event) for event in device.events} | {block["stack"] for block in device.blocks}


@pytest.mark.parametrize(("name", "launcher"), LAUNCHED)
def test_frameworks_are_named_by_the_model(name: str, launcher: str) -> None:
    """Not by the one line that calls ``trainer.train()``, which every stack shares; that follows as "from"."""
    recording = recorded.load(name).recording
    timeline = recorded.load(name).timeline(0)
    lines = own_lines(recording)
    live = timeline.stacks_at_peak.filter(timeline.stacks_at_peak["stack"] > 0)
    frames = recording.frames.select("filename", "name").rows()
    seen = 0
    for stack, size, _ in live.rows():
        files = [frames[i][0] for i in recording.stack(stack)]
        if any("transformers/models/" in file for file in files):
            assert "modeling_llama.py:" in lines[stack] and lines[stack].endswith(f" from {launcher}")
            seen += size
    assert seen > 0.2 * timeline.peak_bytes
    top = next(row["stack"] for row in timeline.top_stacks if row["stack"])
    assert lines[top].startswith("forward modeling_llama.py:") and not lines[top].startswith("frameworks_scen")


def test_the_optimizer_of_a_framework_is_not_named_by_the_launcher() -> None:
    lines = own_lines(recorded.load("hf_trainer").recording).to_list()
    assert "_init_group adam.py:179 from frameworks_scen.py:42" in lines
    lines = own_lines(recorded.load("lightning_fit").recording).to_list()
    assert "training_step frameworks_scen.py:17" in lines  # the program's own, which is no launcher
    assert "_init_group adam.py:179 from frameworks_scen.py:27" in lines


def test_a_program_with_its_own_model_is_named_by_it() -> None:
    """timm's layers run inside this model's forward, and most bytes come through one of its lines."""
    if "lightning_oom.pickle" not in corpus.real_names():
        pytest.skip(corpus.NO_REAL)
    snapshot = snapreport.load(corpus.path_of("lightning_oom.pickle"))
    lines = own_lines(snapshot.recording)
    tops = [lines[row["stack"]] for row in snapshot.timeline(0).top_stacks]
    assert tops[:3] == ["forward dit.py:125", "forward dit.py:126", "forward dit.py:126"]


def test_page_and_python_name_stacks_alike(snapshot_path: Path, report_of: Callable[..., Path]) -> None:
    """The page has no rule of its own: it reads the positions of the naming frames."""
    report = Report(report_of(snapshot_path).read_text(encoding="utf-8"))
    recording = corpus.loaded(snapshot_path).recording
    names, rows = stack_names(recording), recording.frames.select("filename", "line", "name").rows()
    stacks, columns = report.stacks(), report.section("stacks")
    for column, wanted in (("stack_name", names.frame), ("stack_launcher", names.launcher)):
        assert len(columns[column]) == len(stacks)
        found = [stack[place - 1] if place else None for stack, place in zip(stacks, columns[column], strict=True)]
        assert found == [rows[frame] if frame >= 0 else None for frame in wanted]
